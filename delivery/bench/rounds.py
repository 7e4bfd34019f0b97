"""One round of `hoot bench compare`: what one peer does in each case, checked, as figures.

The clock begins behind a first message that every subscriber has received: connections are made, and queues are known.
A publish counts when the backlog that it left is drained whole and in order. A drain is timed from its first message:
joining a group takes Kafka seconds, whatever the backlog.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, Protocol

import msgspec

from delivery.bench.checking import BenchFailed
from delivery.bench.children import Child
from delivery.bench.peers.base import HEAD_BYTES, Peer
from delivery.bench.peers.consumer import Outcome, Task
from delivery.bench.report import percentile_ms
from delivery.bench.schedule import Schedule

CASES: Final = ("publish", "live", "drain", "latency", "fanout")
TOGETHER: Final = (("publish", "drain"), ("live",), ("latency",), ("fanout",))
"""One of these is measured, and fails, as a whole."""


class Load(msgspec.Struct, frozen=True):
    """What is published."""

    size: int
    messages: int
    rate: float = 1000.0
    """Of the latency case, for ten seconds."""
    seconds: float = 10.0
    subscriptions: int = 8
    """Of the fan-out, which publishes an eighth of the messages with eight of them."""


class Figures(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came out of a case."""

    case: str
    messages: int
    """Published, or delivered in all."""
    per_second: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None


class Consumer(Protocol):
    """A subscriber's process."""

    def ready(self) -> None:
        """Return when it has its first message. Raises BenchFailed."""

    def outcome(self) -> Outcome:
        """When it has the last. Raises BenchFailed."""

    def kill(self) -> None:
        """Leave nothing of it."""


class ConsumerProcess(Child):
    """One that runs `delivery.bench.peers.consumer`."""

    def __init__(self, task: Task) -> None:
        """See Child."""
        super().__init__("peers.consumer", task)

    def outcome(self) -> Outcome:
        """See Consumer."""
        return self.tell(Outcome)


class Round:
    """One peer, whose server runs at an address, under one load."""

    def __init__(
        self, peer: Peer, address: str, load: Load, consumer: Callable[[Task], Consumer] = ConsumerProcess
    ) -> None:
        self._peer, self._address, self._load, self._consumer = peer, address, load, consumer
        self._messages = max(1, int(load.messages * peer.share))

    def figures(self, cases: Sequence[str]) -> Iterator[Figures]:
        """Of these cases. Raises BenchFailed for what was lost, doubled or reordered."""
        if "publish" in cases or "drain" in cases:
            yield from (found for found in self._publish_and_drain() if found.case in cases)
        if "live" in cases:
            yield self._live("live", self._messages, 1)
        if "latency" in cases:
            yield self._latency()
        if "fanout" in cases:
            count = self._load.subscriptions
            yield self._live("fanout", max(1, self._messages // count), count)

    def _publish_and_drain(self) -> list[Figures]:
        queue, groups, bodies = *self._prepared(1), self._bodies(self._messages)
        with self._peer.publisher(self._address, queue) as send:
            send(self._first())
            begun = time.monotonic_ns()
            send(bodies)
            published = _figures("publish", len(bodies), time.monotonic_ns() - begun)
        with self._consuming(queue, groups, len(bodies) + 1) as [consumer]:
            consumer.ready()
            found = _checked(consumer)
        return [published, _figures("drain", len(bodies), max(1, found.last_ns - found.first_ns))]

    def _live(self, case: str, messages: int, subscriptions: int) -> Figures:
        queue, groups = self._prepared(subscriptions)
        bodies = self._bodies(messages)
        with (
            self._consuming(queue, groups, messages + 1) as consumers,
            self._peer.publisher(self._address, queue) as send,
        ):
            send(self._first())
            for consumer in consumers:
                consumer.ready()
            begun = time.monotonic_ns()
            send(bodies)
            last = max([_checked(consumer).last_ns for consumer in consumers])
        return _figures(case, messages * subscriptions, last - begun)

    def _latency(self) -> Figures:
        queue, groups = self._prepared(1)
        messages = int(self._load.rate * self._load.seconds)
        with (
            self._consuming(queue, groups, messages + 1, timed=True) as [consumer],
            self._peer.publisher(self._address, queue) as send,
        ):
            send(iter(self._first()))  # as the others will be sent
            consumer.ready()
            begun = time.monotonic_ns()
            send(self._paced(messages))
            found = _checked(consumer)
        ordered = sorted(found.latencies_ns[messages // 10 :])  # before, caches and connections get warm
        p50, p99, p999 = (percentile_ms(ordered, share) for share in (0.5, 0.99, 0.999))
        rated = _figures("latency", messages, found.last_ns - begun)
        return msgspec.structs.replace(rated, p50_ms=p50, p99_ms=p99, p999_ms=p999)

    # -- what they stand on

    def _prepared(self, subscriptions: int) -> tuple[str, list[str]]:
        queue, groups = f"bench-{secrets.token_hex(6)}", [f"group{number}" for number in range(subscriptions)]
        self._peer.prepare(self._address, queue, groups)
        return queue, groups

    @contextmanager
    def _consuming(
        self, queue: str, groups: Sequence[str], expected: int, *, timed: bool = False
    ) -> Iterator[list[Consumer]]:
        with ExitStack() as stack:
            consumers = []
            for group in groups:
                task = Task(self._peer.name, self._address, queue, group, expected, timed)
                consumers.append(self._consumer(task))
                stack.callback(consumers[-1].kill)
            yield consumers

    def _first(self) -> list[bytes]:
        return [bytes(max(HEAD_BYTES, self._load.size))]

    def _bodies(self, messages: int) -> list[bytes]:
        rest = secrets.token_bytes(max(8, self._load.size - 8))
        return [number.to_bytes(8, "little") + rest for number in range(1, messages + 1)]

    def _paced(self, messages: int) -> Iterator[bytes]:
        rest = secrets.token_bytes(max(0, self._load.size - HEAD_BYTES))
        schedule = Schedule(self._load.rate)
        for number in range(1, messages + 1):
            due = schedule.wait(number)
            yield number.to_bytes(8, "little") + due.to_bytes(8, "little") + rest


def _checked(consumer: Consumer) -> Outcome:
    found = consumer.outcome()
    if found.trouble:
        raise BenchFailed(found.trouble)
    return found


def _figures(case: str, messages: int, nanoseconds: int) -> Figures:
    return Figures(case, messages, round(messages / (nanoseconds / 1e9), 1))
