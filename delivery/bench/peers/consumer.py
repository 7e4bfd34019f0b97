"""The process of a subscriber of `hoot bench compare`: `python -m delivery.bench.peers.consumer JSON`.

It says a line when it has its first message, and one about all of them in the end; see `children`.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import msgspec

from delivery.bench.children import say
from delivery.bench.peers.base import Inbox
from delivery.embedded.lifeline import end_with_parent

_LOOK_SECONDS = 0.2


class Task(msgspec.Struct):
    """What to receive."""

    peer: str
    address: str
    queue: str
    group: str
    expected: int
    timed: bool = False
    """Note how late each message is."""
    seconds_max: float = 300.0
    """After which it gives up."""


class Outcome(msgspec.Struct):
    """What was received. Times are CLOCK_MONOTONIC."""

    first_ns: int
    last_ns: int
    latencies_ns: list[int]
    trouble: str
    """See Inbox."""


def run(task: Task) -> Outcome:
    """Receive what is expected."""
    from delivery.bench.peers.every import EVERY

    inbox, peer = Inbox(task.expected), EVERY[task.peer]
    watching = threading.Thread(target=_watch, args=(inbox, task.seconds_max), daemon=True)
    watching.start()
    peer.consume(task.address, task.queue, task.group, inbox, inbox.take_timed if task.timed else inbox.take)
    watching.join()
    return Outcome(inbox.first_ns, inbox.last_ns, inbox.latencies, inbox.trouble())


def _watch(inbox: Inbox, seconds: float) -> None:
    """Tell of the first message; end the process when the last does not come."""
    end = time.monotonic() + seconds
    if inbox.begun.wait(seconds):
        say({"ready": True})
    while not inbox.over:
        time.sleep(_LOOK_SECONDS)
        if time.monotonic() > end:
            sys.stderr.write(f"{len(inbox.bodies)} of {inbox.expected} messages came in {seconds:g} s\n")
            sys.stderr.flush()
            os._exit(1)


if __name__ == "__main__":
    end_with_parent()
    say(run(msgspec.json.decode(sys.argv[1], type=Task)))
