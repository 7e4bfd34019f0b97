"""The subscriber's process of a bench: counts, keeps every id in order of arrival, and measures what its task says.

Started by `stage` as `python -m delivery.bench.consumer JSON`; talks by lines of JSON on its standard output. The ids
go to a file, eight bytes each in native order, and what belongs to each to files beside it, for the parent to hold
against what was published. It ends when it has what it expected, on SIGTERM, and at the end of its standard input, so
that it never outlives the bench, however that ends.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn

import msgspec

from delivery.bench.children import say
from delivery.bench.tallies import MemberTally, SpreadTally, StormTally, Tally
from delivery.embedded.lifeline import end_with_parent
from delivery.metastore.policy import RetryPolicy
from subscriber import Subscriber, Subscription

Listener = Literal["plain", "latency", "first", "slow", "member", "storm"]


class Task(msgspec.Struct):
    """What to receive."""

    zookeeper: str
    queue: str
    name: str
    expected: int
    """End after this many messages."""
    ids_file: str
    member: str = ""
    """In a shared subscription, its name."""
    start: str = "latest"
    topics: list[str] = []
    filter: str | None = None
    retry: RetryPolicy | None = None
    listener: Listener = "plain"
    """What is noted: how late each message was, when the first came, the time of each; or what goes wrong."""
    slow: float = 0.0
    """Seconds that a slow listener takes for a message."""
    batches: bool = False
    """Use a batch listener."""
    spread: bool = False
    """The queue has several partitions: note each message's."""
    seconds_max: float = 600.0


class Outcome(msgspec.Struct):
    """What was received. Times are CLOCK_MONOTONIC, which all processes of a machine share."""

    count: int
    attached_ns: int
    first_ns: int
    """0 unless asked for; of a storm, when the last message came that had not failed."""
    last_ns: int
    latencies_ns: list[int]
    redelivered: int
    """Messages that came again after they had failed."""


class _ToldToStop(BaseException):
    """Raised in the main thread by SIGTERM."""


def run(task: Task) -> Outcome:
    """Subscribe, receive what is expected, and leave the durable state for the parent to look at."""
    if task.listener == "storm":
        logging.getLogger("subscriber").setLevel(logging.CRITICAL)  # it fails on purpose
    tally = _tally(task)
    signal.signal(signal.SIGTERM, _told)
    subscriber = Subscriber(task.name, zookeeper=task.zookeeper, member=task.member or None)
    subscription = subscriber.subscribe(
        task.queue, start=task.start, topics=task.topics or None, filter=task.filter, retry=task.retry,
        kind="shared" if task.member else None,
    )  # fmt: skip
    _listen(task, tally, subscription)
    attached_ns = time.monotonic_ns()
    with subscriber, suppress(_ToldToStop):
        say({"ready": True})
        tally.done.wait(task.seconds_max)
    tally.save(Path(task.ids_file))
    return Outcome(
        len(tally.ids), attached_ns, tally.first_ns, tally.last_ns, tally.latencies, tally.redelivered
    )  # fmt: skip


def _told(*_: object) -> NoReturn:
    raise _ToldToStop


def _tally(task: Task) -> Tally:
    if task.listener == "member":
        return MemberTally(task.expected, Path(task.ids_file))
    if task.listener == "storm":
        return StormTally(task.expected)
    return (SpreadTally if task.spread else Tally)(task.expected)


def _listen(task: Task, tally: Tally, subscription: Subscription) -> None:
    if task.batches:
        subscription.batch_listener(tally.first_batch if task.listener == "first" else tally.batch)
    elif task.listener == "slow":
        subscription.listener(tally.slowly(task.slow))
    else:
        listeners = {"latency": tally.timed_message, "first": tally.first_message}
        subscription.listener(listeners.get(task.listener, tally.message))


if __name__ == "__main__":
    end_with_parent()
    say(run(msgspec.json.decode(sys.argv[1], type=Task)))
