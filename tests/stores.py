"""What the tests of message stores share: batches on their way into a store, and reading a store out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from delivery.batch import Header, open_batch
from delivery.errors import HootError
from delivery.model import Durability, Message
from delivery.storage.base import Append, MessageStore, PartitionKey
from delivery.storage.log import SegmentedLog
from delivery.storage.log.disk import Disk
from tests.strategies import stamped

KEY = PartitionKey("orders", "g1", 3)
OTHER = PartitionKey("orders", "g1", 4)
NOW_MS = 1_732_165_000_000


def batch(
    base_id: int,
    bodies: Sequence[bytes] = (b"body",),
    *,
    key: PartitionKey = KEY,
    epoch: int = 1,
    durability: Durability = "fsync",
    producer: tuple[int, int] = (0, 0),
    topic: str = "",
    spare: int = 0,
) -> Append:
    """A stamped batch of some bodies; with spare ids behind them it is one of the engine's own."""
    rows = [(body, None, "hoot.own" if spare else topic, b"") for body in bodies]
    header, data = stamped(rows, base_id, epoch=epoch, partition=key.partition, producer=producer, spare=spare)
    return Append(key, epoch, header, data, durability)


def sized(
    base_id: int, size: int, *, key: PartitionKey = KEY, epoch: int = 1, count: int = 1, topic: str = "",
    spare: int = 0,
) -> Append:  # fmt: skip
    """A batch of `count` messages that share about `size` bytes that nothing can compress or repeat."""
    bodies = [os.urandom(size // count) for _ in range(count)]
    return batch(base_id, bodies, key=key, epoch=epoch, topic=topic, spare=spare)


def store_all(store: MessageStore, batches: Sequence[Append]) -> None:
    """Append a group, every batch of which must be stored."""
    assert store.append(batches) == [None] * len(batches)


def headers_of(store: MessageStore, key: PartitionKey = KEY, after: int = 0, bytes_max: int = 1 << 20) -> list[Header]:
    """The headers of everything above `after`, read chunk by chunk."""
    found: list[Header] = []
    while (chunk := store.read(key, after, bytes_max)) is not None:
        found += chunk.headers
        after = chunk.last_id
    return found


def batches_of(store: MessageStore, key: PartitionKey = KEY, bytes_max: int = 1 << 20) -> list[bytes]:
    """The bytes of all batches of a partition, read chunk by chunk."""
    found, after = [], 0
    while (chunk := store.read(key, after, bytes_max)) is not None:
        at = 0
        for header in chunk.headers:
            found.append(chunk.data[at : at + header.length])
            at += header.length
        assert at == len(chunk.data)
        after = chunk.last_id
    return found


def messages_of(store: MessageStore, key: PartitionKey = KEY) -> list[Message]:
    """All messages of a partition."""
    return [message for data in batches_of(store, key) for message in open_batch(data).messages(key.queue)]


def bodies_of(store: MessageStore, key: PartitionKey = KEY) -> list[bytes]:
    """The bodies of all messages of a partition."""
    return [message.body for message in messages_of(store, key)]


def partition_folder(data: Path, key: PartitionKey = KEY) -> Path:
    """Where the log keeps a partition."""
    return data / "queues" / f"{key.queue}~{key.generation}" / f"{key.partition:05}"


def log_files(data: Path, kind: str = "log", key: PartitionKey = KEY) -> list[Path]:
    """The files of a partition of one kind, oldest first."""
    return sorted(partition_folder(data, key).glob(f"*.{kind}"))


class LogAtOnce(SegmentedLog):
    """The log, used as the trio thread of a host uses it for a batch that is alone."""

    def append(self, group: Sequence[Append]) -> list[HootError | None]:
        answers = self.append_at_once(group[0]) if len(group) == 1 else None
        return super().append(group) if answers is None else answers


class FaultyDisk(Disk):
    """A disk that fails when told to, and counts what it was asked for."""

    def __init__(self) -> None:
        self.room: int | None = None
        """Bytes that can still be written before the disk is full."""
        self.failing_sync = False
        self.step: int | None = None
        """The most bytes that one system call writes."""
        self.syncs = 0
        self.calls = 0

    def write_some(self, fd: int, parts: Sequence[bytes | memoryview], offset: int, *, synced: bool = False) -> int:
        self.calls += 1
        limit = min((each for each in (self.room, self.step) if each is not None), default=None)
        if limit is not None:
            if limit == 0:
                raise OSError(28, "No space left on device")
            data = b"".join(parts)[:limit]
            parts = [data]
        written = super().write_some(fd, parts, offset, synced=synced)
        if synced:
            self._synced()
        if self.room is not None:
            self.room -= written
        return written

    def sync(self, fd: int) -> None:
        self._synced()
        super().sync(fd)

    def _synced(self) -> None:
        self.syncs += 1
        if self.failing_sync:
            raise OSError(5, "Input/output error")
