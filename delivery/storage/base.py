"""The interface that every message store implements, and the values that pass through it.

A store keeps the stamped record batches of partitions, byte for byte. It is synchronous and blocking: the caller hops
to a thread per group of batches, never per message. It enforces fencing (an append counts only while its epoch stands)
but decides nothing about ownership.

The order of an append is the heart of it: write, make durable, *then* confirm that the epoch still stands. If it stood
after the write was durable, any later owner's seal includes the write; if not, the append is reported as fenced and
readers never see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from delivery.batch import Header
from delivery.batch.select import Refuses
from delivery.errors import HootError
from delivery.ids import ID_MAX
from delivery.model import Durability, QueueSettings
from delivery.storage.sealed import EpochIds


class PartitionKey(msgspec.Struct, frozen=True, order=True):
    """One partition of one generation of a queue; the name of its place in a store."""

    queue: str
    generation: str
    """The queue's own id: a queue deleted and created again is another queue."""
    partition: int

    def __str__(self) -> str:
        return f"{self.queue}/{self.partition}"


class StoredBatch(msgspec.Struct, frozen=True):
    """What a store remembers of a producer's batch, to answer a repeated publish with the first one's ids."""

    producer_id: int
    sequence: int
    base_id: int
    count: int
    crc: int = 0
    """The checksum of its payload as it was published, 0 where that is not known."""


class PartitionState(msgspec.Struct, frozen=True):
    """What opening a partition found out."""

    last_id: int
    """The highest id stored, 0 when nothing ever was."""
    producers: tuple[StoredBatch, ...]
    """The last batches of each recent producer, and of less recent ones the last, oldest first."""
    sealed: tuple[EpochIds, ...] = ()
    """What older epochs left, oldest first, as far as it is there still; none where nothing outlives an owner."""


class Append(msgspec.Struct, frozen=True):
    """One stamped batch on its way into a store."""

    key: PartitionKey
    epoch: int
    header: Header
    batch: bytes
    durability: Durability


class Chunk(msgspec.Struct, frozen=True):
    """Whole batches read from a partition, one after another in one string of bytes."""

    data: bytes
    headers: tuple[Header, ...]
    covered: int | None = None
    """Where something refused was left out: the last id that was looked at. `headers` may be empty then."""

    @property
    def last_id(self) -> int:
        """The last id that the chunk covers."""
        return self.headers[-1].last_id if self.covered is None else self.covered


class Bounds(msgspec.Struct, frozen=True):
    """What a partition holds now."""

    first_id: int
    """The lowest id still stored, 0 when nothing is."""
    last_id: int
    """The watermark: everything up to here is complete and may be read."""
    messages: int
    bytes: int


class Amount(msgspec.Struct, frozen=True):
    """How much lies between two ids."""

    messages: int
    """An id that a batch keeps behind its messages counts as one."""
    bytes: int
    """Of the batches; of one that is cut by an end a part, at most all of it."""

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.messages + other.messages, self.bytes + other.bytes)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.messages - other.messages, self.bytes - other.bytes)


NOTHING: Final = Amount(0, 0)


class MessageStore(Protocol):
    """A store of record batches. Thread-safe; every method may block; raises StorageUnavailable when it cannot work."""

    def open(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> PartitionState:
        """Take a partition under `epoch`: fence every older epoch, then find what they stored and seal it.

        Opening again under the same epoch gives the state anew. Raises Fenced when a newer epoch is already there,
        CorruptRecord when stored data that was acknowledged is damaged, MessagesGone when it is not there any more as a
        whole, WrongStore when it is in a store of another kind (the partition must not be served).
        """

    def append(self, group: Sequence[Append]) -> list[HootError | None]:
        """Store a group of batches, each partition's in the order given, and answer each: None for stored, or an error.

        A partition's batches after its first failed one fail, too. One flush to disk per partition serves the whole
        group where durability is `fsync`. Fenced: it does not count. StorageUnavailable: the outcome is unknown
        (UnknownOutcome for whoever published) and the partition accepts nothing more until it is opened anew. The same
        goes for the others when one is answered with InvalidRequest: the store will never take it, and has not.
        """

    def append_at_once(self, item: Append, /) -> list[HootError | None] | None:
        """`append` of one batch, where nothing but its bytes has to be written and nobody is in the way.

        None, with nothing done, where it could take longer than that: the caller uses `append` then. So it may be
        called where waiting is not allowed, if the time that a flush takes is.
        """

    def read(self, key: PartitionKey, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """The next whole batches with an id above `after`, at most `bytes_max` (but always at least one batch).

        What `refuses` refuses may be left out, whole batches or the messages of some of their topics (the batch is
        sparse then, under the same ids): a store that can skip them without reading them does.
        The first batch may begin at or below `after`. None when there is nothing more up to the watermark.
        Raises CorruptRecord where the stored bytes are damaged.
        """

    def bounds(self, key: PartitionKey) -> Bounds:
        """What the partition holds, up to the watermark."""

    def measure(self, key: PartitionKey, after: int, until: int) -> Amount:
        """What has an id above `after` and up to `until`: takes index entries and at most two stretches of headers.

        What the engine keeps between the messages counts for no message, but with its bytes; an id that is kept for a
        message elsewhere counts for one.
        """

    def trim(self, key: PartitionKey, settings: QueueSettings, now_ms: int, until: int = ID_MAX) -> int:
        """Drop the oldest whole segments that `settings` no longer keep (age, then size); returns the bytes freed.

        Nothing above `until` is dropped (what memory alone holds is bounded all the same, and what HBase removes by
        itself cannot be kept).
        """

    def prepare_release(self, key: PartitionKey) -> None:
        """The partition will be released soon, and is appended to until then: do what makes the next `open` quick.

        Nothing depends on it: where it raises, the next `open` does all of it. Unknown or closed partitions are fine.
        """

    def release(self, key: PartitionKey) -> None:
        """Stop serving a partition: close its files. Unknown or closed partitions are fine."""

    def queues(self) -> list[tuple[str, str]]:
        """The queues that it holds anything of: name and generation."""

    def delete(self, queue: str, generation: str) -> None:
        """Drop all partitions of a queue. Missing ones are fine."""

    def close(self) -> None:
        """Release everything. Closing twice is fine."""
