"""The demo from start to end: publish and receive, kill the subscriber, kill the host, count, archive, compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from delivery.client import Client, connect
from delivery.config import HostConfig
from delivery.demo import records
from delivery.demo.crew import DemoFailed, Publishing, Receiver
from delivery.demo.errands import Count, spark_side
from delivery.demo.flights import Flight, Sums, Tally
from delivery.demo.pipeline import Pipeline
from delivery.demo.receiver import Scope, Task, records_of
from delivery.demo.report import Fault, Limits, MessageKey, Report, Run, evaluate
from delivery.demo.show import Lane, Screen
from delivery.demo.steps import Step
from delivery.ids import MessageId
from delivery.local import HostProcess, LocalEngine
from delivery.model import partition_of

QUEUE = "flights"
PARTITIONS = 4
WHOLE = "all"
SCOPES = (Scope(WHOLE), Scope("jfk", topic="JFK"), Scope("p01", partitions=[0, 1]))
SERVED = ("--set", "retention_interval_seconds=0.5")
"""So that nobody waits long for what is dropped."""

PER_SECOND_MAX = 12_000
"""The publisher's pace: some 28 s for all flights, so that the kills hit the middle and two cores are not busy."""
PUBLISH_SECONDS_MIN = 4.0
"""Few events are published more slowly, so that the kills hit their middle, too."""
KILL_SUBSCRIBER_AT, KILL_HOST_AT, HOLD_AT = 0.35, 0.65, 0.75
"""Shares of the events: the first two delivered to the whole-queue subscription, the last published. The publisher
holds there until both kills are over, so that they are in the middle of publishing however slow the machine is."""

_POLL_SECONDS = 0.02
_STALL_SECONDS = 60.0
_SETTLE_SECONDS = 20.0
_SETTLE_POLL_SECONDS = 0.2
_QUIET_SECONDS = 0.5


class Demo:
    """One run in a folder. `tell` runs it; whatever it started has ended when it returns or raises."""

    def __init__(self, flights: Sequence[Flight], folder: Path, screen: Screen) -> None:
        self._flights, self._folder, self._screen = flights, folder, screen
        self._covered = {scope.name: _covered(scope, flights) for scope in SCOPES}
        self._faults: list[Fault] = []

    def tell(self) -> Report:
        """The whole story. Raises HootError when it cannot be told to its end."""
        say = self._screen.say
        say("starting ZooKeeper and a region host")
        with LocalEngine(self._folder, *SERVED) as engine, connect(engine.address) as client:
            client.create_queue(QUEUE, partitions=PARTITIONS, archive_first=True)
            task = Task(engine.address, QUEUE, str(self._folder), list(SCOPES))
            say("starting the subscriber's process with three subscriptions: " + ", ".join(self._covered))
            with Receiver(task, self._folder / "subscriber.log") as receiver:
                stored = self._publish(client, receiver, engine.host)
                behind = self._settle(client, receiver, stored)
            spark, steps = self._analyse(client, engine.address, stored)
        say("comparing")
        received = {name: list(records.read(records_of(self._folder, name))) for name in self._covered}
        report = evaluate(Run(
            flights=self._flights, stored=stored, covered=self._covered, records=received, faults=self._faults,
            limits=_limits(), spark=spark, steps=steps,
        ), WHOLE)  # fmt: skip
        report.differences.extend(f"subscription {name}: its checkpoint is not at the end" for name in behind)
        return report

    def _analyse(
        self, client: Client, address: str, stored: Sequence[MessageKey]
    ) -> tuple[dict[str, Tally], list[Step]]:  # fmt: skip
        """What one session of Spark's says and does.

        Of the live log stays what was published when both kills were over: an earlier host's segments can be dropped.
        """
        self._screen.say("counting with Spark")
        with spark_side(address, self._folder) as spark:
            counts = spark.ask(Count(QUEUE), dict[str, Sums])
            pipeline = Pipeline(client, address, QUEUE, self._folder, self._screen)
            covered = {name: len(of) for name, of in self._covered.items()}
            held = max(number for _, number in stored[: _share(len(stored), HOLD_AT)])
            steps = pipeline.run(spark, self._flights, covered, MessageId(held).timestamp_ms)
        return {carrier: Tally(*sums) for carrier, sums in counts.items()}, steps

    def _publish(self, client: Client, receiver: Receiver, host: HostProcess) -> list[MessageKey]:
        total = len(self._flights)
        pace = min(PER_SECOND_MAX, total / PUBLISH_SECONDS_MIN)
        self._screen.say(f"publishing {total:,} flights, {pace:,.0f} a second")
        with Publishing(client.queue(QUEUE), self._flights, pace, _share(total, HOLD_AT)) as publishing:
            with self._screen.progress(self._lanes(publishing)):
                self._wait_for(_share(total, KILL_SUBSCRIBER_AT), publishing, receiver)
                self._strike("the subscriber's process", receiver.kill, receiver.start)
                self._wait_for(_share(total, KILL_HOST_AT), publishing, receiver)
                self._strike("the region host", host.kill, host.start)
                publishing.release()
                self._wait_for(total, publishing, receiver)
            return publishing.stored()

    def _strike(self, what: str, kill: Callable[[], None], start: Callable[[], None]) -> None:
        self._screen.say(f"kill -9 {what}")
        at_ns = time.monotonic_ns()
        kill()
        start()
        fault = Fault(what, at_ns, time.monotonic_ns())
        self._faults.append(fault)
        self._screen.say(f"{what} runs again after {(fault.back_ns - at_ns) / 1e9:.1f} s")

    def _wait_for(self, delivered: int, publishing: Publishing, receiver: Receiver) -> None:
        """Until the whole-queue subscription has so many callbacks. Raises DemoFailed when nothing moves any more."""
        path = records_of(self._folder, WHOLE)
        moved_at, last = time.monotonic(), (-1, -1)
        while (count := records.count(path)) < delivered:
            receiver.check()
            publishing.check()
            now, state = time.monotonic(), (count, publishing.count)
            if state != last:
                moved_at, last = now, state
            if now - moved_at > _STALL_SECONDS:
                raise DemoFailed(f"nothing moved for {_STALL_SECONDS:.0f} s after {count:,} callbacks of {WHOLE!r}")
            time.sleep(_POLL_SECONDS)

    def _settle(self, client: Client, receiver: Receiver, stored: Sequence[MessageKey]) -> list[str]:
        """Wait until all is delivered and every checkpoint is at the end; the subscriptions whose are not in time."""
        ends: dict[int, int] = {}
        for partition, number in stored:
            ends[partition] = max(number, ends.get(partition, 0))
        deadline = time.monotonic() + _SETTLE_SECONDS
        while (self._short() or _behind(client, ends)) and time.monotonic() < deadline:
            receiver.check()
            time.sleep(_SETTLE_POLL_SECONDS)
        time.sleep(_QUIET_SECONDS)  # what should not come, a late duplicate, would come now
        return _behind(client, ends)

    def _short(self) -> bool:
        return any(records.count(records_of(self._folder, name)) < len(of) for name, of in self._covered.items())

    def _lanes(self, publishing: Publishing) -> list[Lane]:
        lanes = [Lane("published", len(self._flights), lambda: publishing.count)]
        for name, of in self._covered.items():
            lanes.append(Lane(name, len(of), partial(records.count, records_of(self._folder, name))))
        return lanes


def _covered(scope: Scope, flights: Sequence[Flight]) -> list[int]:
    """The places of the flights that belong to a subscription, by the documented route of keys to partitions."""
    partition = {flight.carrier: partition_of(flight.carrier.encode(), PARTITIONS) for flight in flights}
    return [n for n, flight in enumerate(flights) if scope.covers(partition[flight.carrier], flight.origin)]


def _behind(client: Client, ends: Mapping[int, int]) -> list[str]:
    """The subscriptions that have a checkpoint before the last message of a partition."""
    behind = []
    for scope in SCOPES:
        positions = {one.partition: one.position for one in client.subscription_info(QUEUE, scope.name).partitions}
        wanted = scope.partitions or range(PARTITIONS)
        if any(positions.get(number, 0) < ends.get(number, 0) for number in wanted):
            behind.append(scope.name)
    return behind


def _limits() -> Limits:
    config = HostConfig()
    return Limits(config.window_messages, config.window_bytes)


def _share(total: int, share: float) -> int:
    return max(1, round(total * share))
