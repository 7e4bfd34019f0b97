"""The client of the engine in a test: the real one, with the engine's partitions in the place of connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from time import monotonic
from typing import Any, cast

import msgspec

from delivery.api.reading import Reading
from delivery.client.accumulator import Accumulator, Limits, Room
from delivery.client.calls import CALL_SECONDS, Calls
from delivery.client.client import Client
from delivery.client.hosts import Owners
from delivery.client.machine import Target
from delivery.client.managing import Manager
from delivery.client.publisher import Publisher
from delivery.client.queue import Queue
from delivery.client.receipts import Batch
from delivery.client.scanners import CombinedPartitionScanner, PartitionScanner, QueueScanner
from delivery.client.sender import Sender
from delivery.client.transactions import Transaction
from delivery.errors import HootError, HostUnreachable, InvalidRequest
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import HostRecord, QueueRecord
from delivery.testing.loop import StillLoop, at_once
from delivery.testing.partitions import LocalPartitions
from delivery.testing.znodes import MemorySession


class LocalCalls(Calls):
    """Calls about partitions, answered in the loop."""

    def __init__(self, loop: StillLoop, partitions: LocalPartitions) -> None:
        reading = Reading(cast("Any", partitions))  # all that it asks of an Ownership is `acquire`
        self._loop = loop
        self._methods: dict[str, Callable[..., Any]] = {
            "partitionInfo": reading.info, "countMessages": reading.count, "read": reading.read
        }  # fmt: skip

    def call(
        self, queue: str, partition: int, method: str, *args: object, timeout: float = CALL_SECONDS, wait: float = 0.0
    ) -> Any:
        """See Calls. Nothing is waited for: what is not there now, nobody brings."""
        return self._loop.call(lambda: at_once(self._methods[method](*args)))

    def ask(self, host: HostRecord, method: str, *args: object, timeout: float) -> Any:
        """See Calls."""
        raise HostUnreachable("the engine of a test has no host that could be asked")


class LocalSender(Sender):
    """Stores batches at once, in the loop."""

    def __init__(self, publish: Callable[[int, bytes], Any], accumulator: Accumulator, room: Room) -> None:
        self._publish, self._accumulator, self._lock, self._room = publish, accumulator, room.lock, room.freed
        self.failure: HootError | None = None
        self.settled = None
        self.asleep_until = self.held_until = 0.0

    def advance(self) -> None:
        """See Sender."""
        now = monotonic()
        with self._lock:
            self._accumulator.hurry(now)
            due = [(one, batch) for one in self._accumulator.ready(now) if (batch := self._accumulator.take(one, now))]
        for partition, batch in due:
            self._store(partition, batch)

    def reset(self, why: str) -> None:
        """Nothing is ever on its way."""

    def abandon(self, error: HootError) -> None:
        """See Sender."""
        with self._lock:
            held = self._accumulator.take_all()
        for batch in held:
            self._release(batch, error)
            batch.failed(error)

    def close(self) -> None:
        """Nothing is open."""

    def wait(self, seconds: float) -> None:
        """Nothing is waited for."""

    def wake(self) -> None:
        """Nobody sleeps."""

    def _store(self, partition: int, batch: Batch) -> None:
        data = batch.rows.encode(partition, 0, 0)
        try:
            stored = self._publish(partition, data)
        except HootError as error:
            self._fail(batch, error)
        else:
            self._release(batch, None)
            batch.stored(stored.base_id, stored.durability)


class LocalPublisher(Publisher):
    """A batching publisher whose messages are stored by `put`, each in a batch of its own: no thread lingers."""

    def __init__(self, target: Target, limits: Limits, **options: Any) -> None:
        super().__init__(target, msgspec.structs.replace(limits.check(), linger=0.0), **options)

    def _start(self) -> None:
        """Its callers do all."""


class LocalQueue(Queue):
    """A queue in the engine of a test."""

    _publisher_kind = LocalPublisher

    def __init__(
        self, record: QueueRecord, owners: Owners, calls: Calls, look: Callable[[], QueueRecord], loop: StillLoop,
        partitions: LocalPartitions,
    ) -> None:  # fmt: skip
        super().__init__(record, owners, calls, look)
        self._loop, self._local = loop, partitions

    def scanner(self, **options: Any) -> QueueScanner:
        """See Queue."""
        return super().scanner(**_not_following(options))

    def partition_scanner(self, partition: int, **options: Any) -> PartitionScanner:
        """See Queue."""
        return super().partition_scanner(partition, **_not_following(options))

    def combined_scanner(self, partitions: Any, **options: Any) -> CombinedPartitionScanner:
        """See Queue."""
        return super().combined_scanner(partitions, **_not_following(options))

    def _target(self) -> Target:
        def sender(_queue: str, _owners: Owners, accumulator: Accumulator, room: Room, _window: int) -> LocalSender:
            return LocalSender(self._publish, accumulator, room)

        return msgspec.structs.replace(super()._target(), sender=sender, random=lambda: Random(0))

    def _publish(self, partition: int, batch: bytes) -> Any:
        return self._loop.call(lambda: self._local.publish(self.name, partition, batch))


class LocalClient(Client):
    """A client of the engine in a test."""

    def __init__(self, session: MemorySession, catalog: Catalog, loop: StillLoop, partitions: LocalPartitions) -> None:
        self._loop, self._local = loop, partitions
        super().__init__(cast("Any", session), catalog, LocalCalls(loop, partitions))

    def transaction(self, timeout: float = 0.0) -> Transaction:
        """See Client."""
        raise InvalidRequest("the engine of a test has no transactions")

    @property
    def transactions(self) -> Manager:
        """See Client."""
        raise InvalidRequest("the engine of a test has no transactions")

    def _make_queue(self, record: QueueRecord) -> Queue:
        look = partial(self._admin.queue_record, record.name)
        return LocalQueue(record, self._owners, self._calls, look, self._loop, self._local)


def _not_following(options: dict[str, Any]) -> dict[str, Any]:
    if options.get("follow"):
        raise InvalidRequest(
            "a scanner cannot follow in a test: nobody publishes while it waits; scan without `follow`"
        )
    return options
