"""A queue as applications see it: publish, scan, and where its partitions begin and end."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from delivery.client.accumulator import Limits
from delivery.client.calls import CALL_SECONDS, Calls, count_messages, partition_info
from delivery.client.direct import DirectPublisher
from delivery.client.hosts import Owners
from delivery.client.machine import Target
from delivery.client.outgoing import Bytes, NewMessage, Outgoing
from delivery.client.publisher import Publisher
from delivery.client.receipts import PublishedMessage
from delivery.client.scanners import CombinedPartitionScanner, PartitionScanner, QueueScanner, Scope, View
from delivery.errors import Closed, InvalidRequest
from delivery.ids import MessageId, Start
from delivery.metastore.records import QueueRecord
from delivery.model import QueueSettings, check_isolation, check_partition


class PartitionBounds(msgspec.Struct, frozen=True):
    """What a partition holds now. Ids are 0 when it holds nothing."""

    partition: int
    first: MessageId
    last: MessageId
    """Everything up to here is complete and can be read."""
    messages: int
    bytes: int
    epoch: int
    """Of its owner."""


class Queue:
    """One queue of a Client, which it lives with: closing the client ends it. Thread-safe."""

    _publisher_kind: type[Publisher] = Publisher

    def __init__(
        self, record: QueueRecord, owners: Owners, calls: Calls, look: Callable[[], QueueRecord],
        view: View | None = None,
    ) -> None:  # fmt: skip
        """`look` gives the record as it is now, `view` what of transactions is committed."""
        self._record, self._owners, self._calls, self._view = record, owners, calls, view
        settings = record.settings
        self._outgoing = Outgoing(
            record.name, settings.partitions, settings.body_bytes_max, lambda: look().settings.body_bytes_max
        )
        self._lock = threading.Lock()
        self._direct: DirectPublisher | None = None
        self._publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()
        self._closed = False

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, partitions={self.partitions})"

    @property
    def name(self) -> str:
        """Its name."""
        return self._record.name

    @property
    def partitions(self) -> int:
        """How many partitions it has: 0 … partitions − 1. Never changes."""
        return self._record.settings.partitions

    @property
    def record(self) -> QueueRecord:
        """The queue's record as it was when this object was made."""
        return self._record

    @property
    def settings(self) -> QueueSettings:
        """The settings as they were when this object was made."""
        return self._record.settings

    # -- publishing

    def put(
        self, body: Bytes, *, key: Bytes | None = None, topic: str = "", headers: Mapping[str, bytes] | None = None,
        partition: int | None = None, timeout: float = 30.0,
    ) -> PublishedMessage:  # fmt: skip
        """Publish one message and wait until it is stored. Calls from many threads share round trips.

        It goes to `partition` if given, else to the one of its `key` (`model.partition_of`), else to a random one
        (seed 004, section 3.2).

        Raises UnknownOutcome when it may or may not be stored after `timeout` seconds. With any other error nothing was
        stored: InvalidRequest and MessageTooLarge for what is over a limit, UnknownQueue, NoHost, HostUnreachable,
        MetadataUnavailable, Throttled, StorageUnavailable, ClockWrong, Closed, and QueueFull where a subscription had
        as much before it as the queue allows for as long as that. An interrupt leaves the outcome unknown.
        """
        row, size = self._outgoing.row(body, key, topic, headers)
        if partition is not None:
            check_partition(partition, self.partitions, self.name)
        return self._publisher().publish([(row, size, partition)], timeout)[0]

    def put_many(self, messages: Iterable[Bytes | NewMessage], *, timeout: float = 30.0) -> list[PublishedMessage]:
        """Publish many and wait until all are stored; the results are in the order of `messages`.

        All are checked before the first is sent. Messages of one partition are stored in their order. Raises as `put`,
        for the first message that was not stored; others may be. Use `publisher` to learn each one's outcome.
        """
        given = list(messages)
        plain = self._outgoing.plain(given)
        if plain is not None:
            return self._publisher().publish_plain(plain, timeout)
        return self._publisher().publish([self._outgoing.row_of(message) for message in given], timeout)

    def put_of_transaction(self, pointer: int, messages: Iterable[NewMessage], *, timeout: float) -> None:
        """`put_many` for what a transaction publishes (see Transaction): in batches that hold nothing else."""
        self._publisher().publish([self._outgoing.row_of(message) for message in messages], timeout, pointer)

    def publisher(
        self, *, linger_ms: float = 2.0, batch_bytes: int = 512 * 1024, batch_messages: int = 8192, in_flight: int = 8,
        buffer_bytes: int = 64 * 1024 * 1024, timeout: float = 30.0, hop: bool = False,
    ) -> Publisher:  # fmt: skip
        """A batching publisher: `put` returns a receipt at once. Close it, or use it as a context manager.

        A batch is sent when it holds `batch_bytes` or `batch_messages`, or is `linger_ms` old, for which it waits up to
        2 ms longer while something is unanswered; at most `in_flight` batches (16) per partition are. `put` waits while
        `buffer_bytes` are unanswered. What is not stored after `timeout` seconds fails, also what waited for room in a
        queue with a limit of its own (QueueFull). `hop` leaves all sending to the publisher's own thread.
        Raises InvalidRequest for a setting out of bounds.
        """
        limits = Limits(
            linger=linger_ms / 1000, batch_bytes=batch_bytes, batch_messages=batch_messages, buffer_bytes=buffer_bytes
        )
        made = self._publisher_kind(self._target(), limits, in_flight=in_flight, timeout=timeout, hop=hop)
        with self._lock:
            self._check_open()
            self._publishers.add(made)
        return made

    # -- scanning (seed 004, section 3.4)

    def scanner(self, **options: Any) -> QueueScanner:  # noqa: ANN401 - the fields of Scope
        """A scanner over all partitions, merged by id. Options: see `scanners.Scope`."""
        return QueueScanner(self._calls, self.name, self.partitions, *self._scope(options))

    def partition_scanner(self, partition: int, **options: Any) -> PartitionScanner:  # noqa: ANN401
        """A scanner over one partition. Options: see `scanners.Scope`. Raises UnknownPartition."""
        check_partition(partition, self.partitions, self.name)
        return PartitionScanner(self._calls, self.name, partition, *self._scope(options))

    def combined_scanner(
        self, partitions: Iterable[int], **options: Any  # noqa: ANN401
    ) -> CombinedPartitionScanner:  # fmt: skip
        """A scanner over some partitions, merged by id. Options: see `scanners.Scope`. Raises UnknownPartition."""
        chosen = [check_partition(number, self.partitions, self.name) for number in dict.fromkeys(partitions)]
        return CombinedPartitionScanner(self._calls, self.name, chosen, *self._scope(options))

    def _scope(self, options: dict[str, Any]) -> tuple[Scope, View | None]:
        scope = Scope(**options)
        if check_isolation(scope.isolation) == "uncommitted":
            return scope, None
        if self._view is None:
            raise InvalidRequest("nobody manages transactions here, so that nothing is known to be committed")
        return scope, self._view

    # -- looking

    def bounds(self, partition: int, *, timeout: float = CALL_SECONDS) -> PartitionBounds:
        """Where a partition begins and ends now. Raises UnknownPartition, NoHost, HostUnreachable."""
        check_partition(partition, self.partitions, self.name)
        found = partition_info(self._calls.call, self.name, partition, timeout=timeout)
        return PartitionBounds(
            partition, MessageId(found.firstId), MessageId(found.lastId), found.messages, found.bytes, found.epoch
        )

    def count(self, partition: int, after: int, until: int = 0, *, timeout: float = CALL_SECONDS) -> int:
        """How many messages of a partition have an id above `after` and, unless it is 0, up to `until`."""
        check_partition(partition, self.partitions, self.name)
        return count_messages(self._calls.call, self.name, partition, after, until, timeout=timeout)

    def close(self) -> None:
        """Close its publishers; calls that follow raise Closed. Closing the client does it. Closing twice is fine."""
        with self._lock:
            self._closed = True
            direct, self._direct = self._direct, None
            publishers = list(self._publishers)
        if direct is not None:
            direct.close()
        for publisher in publishers:
            publisher.__exit__(Closed, None, None)

    def _target(self) -> Target:
        return Target(self._record, self._outgoing, self._owners)

    def _publisher(self) -> DirectPublisher:
        with self._lock:
            self._check_open()
            if self._direct is None:
                self._direct = DirectPublisher(self._target())
            return self._direct

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the client of this queue is closed")


__all__ = ["NewMessage", "PartitionBounds", "PublishedMessage", "Queue", "Start"]
