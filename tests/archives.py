"""What the tests of archives share: moving what a store holds into files, as the job does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from delivery.batch import Header, encode, headers_in, peek, stamp
from delivery.client.calls import Calls
from delivery.ids import ID_MAX, first_id_at
from delivery.metastore.catalog import Catalog
from delivery.metastore.tables.memory import MemoryMetaStore
from delivery.model import ArchivedRange, QueueSettings
from delivery.rpc.idl import load_idl
from delivery.spark.jobs.archive import Job
from delivery.spark.jobs.archiving import archive_stretch
from delivery.spark.planning import Engine
from delivery.storage.archive.folder import ArchiveFolder
from delivery.storage.archive.names import path_of
from delivery.storage.archive.store import ArchivedStore
from delivery.storage.archive.writing import Stretch, Written, write
from delivery.storage.base import Append, MessageStore, PartitionKey
from delivery.storage.locating import locate
from delivery.storage.memory import MemoryStore
from tests.stores import batches_of
from tests.znodes import FakeZNodes

DAY_MS = 86_400_000
START_MS = 1_732_165_000_000
IDL = load_idl("delivery")
AGED = QueueSettings(ttl_seconds=1)


def stretch(key: PartitionKey, after: int, until: int) -> Stretch:
    return Stretch(key.queue, key.generation, key.partition, after, until)


def batches_between(store: MessageStore, key: PartitionKey, after: int, until: int) -> Iterator[tuple[Header, bytes]]:
    """Those that begin above `after` and up to `until`."""
    at = after
    while (chunk := store.read(key, at, 1000)) is not None:
        for place, header in headers_in(chunk.data):
            if after < header.base_id <= until:
                yield header, chunk.data[place : place + header.length]
        at = chunk.last_id


def written(folder: Path, store: MessageStore, key: PartitionKey, after: int, until: int) -> Written | None:
    return write(folder, stretch(key, after, until), batches_between(store, key, after, until))


def archive(folder: Path, store: MessageStore, key: PartitionKey, cuts: Sequence[int]) -> tuple[ArchivedRange, ...]:
    """Archive up to each of `cuts`, in a file for each stretch that has any batches."""
    place, ranges, after = ArchiveFolder(folder, key.queue, key.generation), [], 0
    with place.taken():
        for until in cuts:
            made = written(folder, store, key, after, until)
            if made is not None:
                place.bring_in(key.partition, [(made.temporary, made.file)])
                ranges.append(made.file)
            after = until
    return tuple(ranges)


class Scene:
    """A queue of two partitions with a batch every eight hours of some days, the hosts' calls, and its archive."""

    def __init__(self, folder: Path, days: int = 2) -> None:
        self.folder = folder
        self.catalog = Catalog(FakeZNodes(), MemoryMetaStore())
        self.catalog.ensure_layout()
        self.record = self.catalog.create_queue("orders", QueueSettings(partitions=2))
        self.keys = [PartitionKey("orders", self.record.generation, number) for number in range(2)]
        self.store = MemoryStore()
        self.withheld = b"nothing of that"
        """The host gives no batch that holds this."""
        for key in self.keys:
            self.store.open(key, 1, QueueSettings())
            for number in range(days * 3):
                self.put(key, START_MS + number * DAY_MS // 3)
        self.all = [batches_of(self.store, key) for key in self.keys]
        calls = cast("Calls", self)
        self.hosts = Engine(lambda: self.catalog, calls, calls, patience=0.0)

    def put(self, key: PartitionKey, ms: int, topic: str = "") -> None:
        data = encode([(b"%d" % number, b"k", topic, b"") for number in range(3)], key.partition)
        header = peek(data)
        assert header is not None
        header, data = stamp(header, data, first_id_at(ms), 1)
        assert self.store.append([Append(key, 1, header, data, "fsync")]) == [None]

    def call(self, queue: str, partition: int, method: str, *args: Any, timeout: float = 0.0) -> Any:
        """What a region host answers."""
        key, bounds = self.keys[partition], self.store.bounds(self.keys[partition])
        if method == "partitionInfo":
            return IDL.PartitionInfo(
                firstId=bounds.first_id, lastId=bounds.last_id, messages=bounds.messages, bytes=bounds.bytes
            )
        if method == "countMessages":
            return self.store.measure(key, *args[2:]).messages
        if method == "locateMessages":
            return locate(partial(self.store.measure, key), *args[2:])
        assert method == "read"
        chunk = self.store.read(key, args[0].after, 1)
        whole = b"" if chunk is None or self.withheld in chunk.data else chunk.data
        return IDL.ReadReply(batches=whole, position=args[0].after if chunk is None else chunk.last_id)

    def job(self, folder: Path | None = None, **chosen: Any) -> Job:
        return Job(self.catalog, self.hosts, self.catalog.queue("orders"), folder or self.folder, **chosen)

    def run(self, at_once: int = 2, **chosen: Any) -> int:
        """Archive; how many messages."""
        return sum(one.messages for one in self.job(**chosen).run(self.spread, at_once, lambda *_: None))

    def spread(self, folder: Path, stretches: Sequence[Stretch]) -> list[Written | None]:
        return [archive_stretch(self.hosts, folder, one) for one in stretches]

    def recorded(self, partition: int) -> tuple[ArchivedRange, ...]:
        return self.catalog.archived("orders", partition)

    def check(self) -> None:
        """Every batch is archived once, in files that are recorded and no other, and readable without the store."""
        visible = {path for path in self.folder.rglob("*.parquet") if not path.name.startswith(".")}
        visible -= set((self.folder / "queue=orders" / ".writing").iterdir())
        paths = set()
        for key, batches in zip(self.keys, self.all, strict=True):
            files = self.recorded(key.partition)
            paths |= {path_of(self.folder, "orders", key.generation, key.partition, one) for one in files}
            self.store.trim(key, AGED, START_MS + 99 * DAY_MS)
            both = ArchivedStore(self.store, lambda keys: [self.recorded(one.partition) for one in keys])
            both.refresh([(key, str(self.folder))])
            assert batches_of(both, key) == batches
            assert both.measure(key, 0, ID_MAX).messages == sum(one.messages for one in files)
        assert visible == paths
