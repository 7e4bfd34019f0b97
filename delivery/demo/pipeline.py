"""What becomes of the flights when they are delivered: archived, dropped from the live log, replayed and audited."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from delivery import wall
from delivery.client import Client
from delivery.demo import records
from delivery.demo.crew import DemoFailed, Receiver
from delivery.demo.errands import Archive, Audit, Replay, SparkSide
from delivery.demo.flights import Flight, tally
from delivery.demo.receiver import DELIVERIES, Scope, Task, records_of
from delivery.demo.show import Lane, Screen
from delivery.demo.steps import Step, audited, heard

AGAIN = "again"
"""The new subscription."""
ARCHIVE, AUDIT = "archive", "audit"
"""Folders, in the demo's."""
_TRIM_SECONDS = 60.0
_HEAR_SECONDS = 60.0
_QUIET_SECONDS = 0.5
_POLL_SECONDS = 0.1


class Pipeline:
    """Of one queue, in the demo's folder, which is also the engine's."""

    def __init__(self, client: Client, address: str, queue: str, folder: Path, screen: Screen) -> None:
        self._client, self._address, self._queue, self._folder, self._screen = client, address, queue, folder, screen
        self._percent = 0

    def run(
        self, spark: SparkSide, flights: Sequence[Flight], subscribed: Mapping[str, int], until_ms: int
    ) -> list[Step]:  # fmt: skip
        """All steps. Raises HootError.

        `subscribed` is how many messages each subscription has had. What is older than `until_ms` is dropped.
        """
        carrier, _ = Counter(flight.carrier for flight in flights).most_common(1)[0]
        return [
            self._archive(spark, len(flights)),
            self._trim(len(flights), until_ms),
            *self._replay(spark, carrier, [flight for flight in flights if flight.carrier == carrier]),
            *self._audit(spark, subscribed),
        ]

    def _archive(self, spark: SparkSide, count: int) -> Step:
        self._screen.say(f"archiving queue {self._queue} as Parquet")
        begun = time.monotonic()
        with self._lane("archive"):
            errand = Archive(self._queue, str(self._folder / ARCHIVE))
            messages, files, size = spark.ask(errand, tuple[int, int, int], self._reached)
        return Step(
            name="archive", what="archived", expected=count, found=messages, seconds=time.monotonic() - begun,
            note=f"{files:,} files, {_megabytes(size)}",
        )  # fmt: skip

    def _trim(self, count: int, until_ms: int) -> Step:
        """Only the newest segment of each partition is left, and the queue holds as many messages as before."""
        begun, before = time.monotonic(), self._live_bytes()
        age_seconds = (wall.ms() - until_ms) / 1000
        self._screen.say(f"dropping what is older than {age_seconds:.1f} s from the live log, where it is archived")
        self._client.update_queue(self._queue, ttl_seconds=age_seconds)
        while not self._is_trimmed():
            if time.monotonic() - begun > _TRIM_SECONDS:
                raise DemoFailed(f"the live log is not trimmed after {_TRIM_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        self._client.update_queue(self._queue, ttl_seconds=None)
        held = sum(one.messages for one in self._client.queue_info(self._queue).partitions)
        return Step(
            name="trim", what="in archive and live log together", expected=count, found=held,
            seconds=time.monotonic() - begun,
            note=f"live log: {_megabytes(before)} before, {_megabytes(self._live_bytes())} now",
        )  # fmt: skip

    def _replay(self, spark: SparkSide, carrier: str, flights: Sequence[Flight]) -> list[Step]:
        """By SQL into another queue, where a subscription hears them that was not there when they were published."""
        target = f"{self._queue}-{carrier}"
        self._screen.say(f"replaying carrier {carrier} into queue {target} and its new subscription {AGAIN!r}")
        partitions = self._client.queue_record(self._queue).settings.partitions
        self._client.create_queue(target, partitions=partitions)
        task = Task(self._address, target, str(self._folder), [Scope(AGAIN)])
        begun = time.monotonic()
        with Receiver(task, self._folder / "subscriber.log") as receiver:
            sql = f"select * from messages where cast(key as string) = '{carrier}'"  # noqa: S608 - two letters
            with self._lane("replay"):
                stored = spark.ask(Replay(self._queue, target, sql), int, self._reached)
            replayed = time.monotonic()
            self._hear(receiver, len(flights))
        [expected] = tally((flight.carrier, flight.delay) for flight in flights).values()
        heard_now = list(records.read(records_of(self._folder, AGAIN)))
        return [
            Step(name="replay", what=f"stored in {target}", expected=len(flights), found=stored,
                 seconds=replayed - begun),
            heard(f"to subscription {AGAIN}", expected, heard_now, time.monotonic() - replayed),
        ]  # fmt: skip

    def _hear(self, receiver: Receiver, count: int) -> None:
        deadline = time.monotonic() + _HEAR_SECONDS
        while records.count(records_of(self._folder, AGAIN)) < count and time.monotonic() < deadline:
            receiver.check()
            time.sleep(_POLL_SECONDS)
        time.sleep(_QUIET_SECONDS)  # what should not come would come now

    def _audit(self, spark: SparkSide, subscribed: Mapping[str, int]) -> list[Step]:
        self._screen.say(f"auditing the subscriptions of queue {self._queue}")
        begun = time.monotonic()
        with self._lane("audit"):
            errand = Audit(self._queue, str(self._folder / AUDIT), str(self._folder / DELIVERIES))
            counts = spark.ask(errand, dict[str, dict[str, int]], self._reached)
        seconds = time.monotonic() - begun
        return [audited(name, count, counts.get(name, {}), seconds) for name, count in subscribed.items()]

    @contextmanager
    def _lane(self, name: str) -> Iterator[None]:
        self._percent = 0
        with self._screen.progress([Lane(f"{name} %", 100, lambda: self._percent)]):
            yield
            self._percent = 100

    def _reached(self, done: int, total: int) -> None:
        self._percent = max(self._percent, 100 * done // max(1, total))  # stages that begin later make it less

    def _segments(self) -> list[Path]:
        return list(self._folder.glob(f"queues/{self._queue}~*/*/*.log"))

    def _live_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._segments())

    def _is_trimmed(self) -> bool:
        return max(Counter(path.parent for path in self._segments()).values(), default=0) <= 1


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
