"""A table without an order in ZooKeeper: entries in 4,096 buckets by hash (seed 001, "how to organize your metadata").

The arithmetic: a million keys are 244 to a bucket. A key of 60 characters takes 64 bytes in the bucket's listing, 16 KB
in all; of the longest keys there can be, 512 bytes that all have to be escaped, a bucket lists 680 in the 1 MiB that
ZooKeeper's Java client takes (kazoo has read 4 MiB here without complaint), and the table then has 2.8 million of them.
ZooKeeper's memory ends before: an entry takes about 1 KB of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from delivery import logs
from delivery.errors import CorruptRecord, HootError, MetadataUnavailable
from delivery.metastore.ops import Create, NoNode, Op, Refused, size_of
from delivery.metastore.tables.base import Change, Found, MetaStore, MetastoreCursor, MetastoreTable, ToWatch
from delivery.metastore.tables.changes import Work, first_of_each, work_off
from delivery.metastore.tables.cursors import BufferedCursor
from delivery.metastore.tables.entries import decode_key, decode_value, encode_key
from delivery.metastore.tables.ranges import KeyRange
from delivery.metastore.tables.values import EMPTY, Fields, Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.metastore.tables.watching import OneShots
from delivery.metastore.znodes import ZNodes

log = logs.logger(__name__)

BUCKETS: Final = 4096
CHANGES_AT_ONCE: Final = 250
REQUEST_BYTES: Final = 900_000
"""Above this a request takes no further change; a single one always fits (see VALUE_BYTES_MAX)."""

_BUCKETS_AT_ONCE: Final = 16


class HashedTable(MetastoreTable):
    """A table below `path`. A transaction carries many changes; a refused one is tried again without the culprits."""

    def __init__(self, store: MetaStore, name: str, zk: ZNodes, shots: OneShots, path: str) -> None:
        super().__init__(store, name)
        self._zk = zk
        self._shots = shots
        self._keys = f"{path}/keys"
        self._buckets: set[str] = set()
        """Those that are known to be there."""

    def _read(self, keys: Sequence[str], *, whole: bool) -> list[Found]:
        found = self._zk.get_many([self._path(key) for key in keys])
        return [one and self._entry(key, *one, whole) for key, one in zip(keys, found, strict=True)]

    def _entry(self, key: str, data: bytes, version: int, whole: bool) -> Found:
        try:
            value: Value = decode_value(data, self.name, key) if whole else EMPTY
        except CorruptRecord as error:
            return error
        return Versioned(value, Version(version))

    def _arm(self, watches: Sequence[ToWatch]) -> None:
        self._shots.add(watches, self._path, self._look)

    def _look(self, keys: Sequence[str]) -> list[Found]:
        return self._read(keys, whole=True)

    def _cursor(self, keys: KeyRange, fields: Fields) -> MetastoreCursor:  # noqa: ARG002 (it is everything)
        return BufferedCursor(_BucketKeys(self._zk, self._keys), lambda names: self.get_many(names, fields))

    # -- changing

    def _change(self, changes: Sequence[Change]) -> list[Version | HootError]:
        works = [Work(change, self.name, self._path(change.key)) for change in changes]
        work_off(self._arranged(works), self._round)
        return [work.outcome for work in works if work.outcome is not None]

    def _arranged(self, works: list[Work]) -> list[Work]:
        """In the order in which they are done; the changes of one key in that in which they came."""
        return works

    def _round(self, pending: Sequence[Work]) -> None:
        """One transaction."""
        batch = first_of_each(pending, CHANGES_AT_ONCE)
        looking = [work for work in batch if work.looks]
        for work, seen in zip(
            looking, self._zk.get_many([work.path for work in looking]) if looking else (), strict=True
        ):
            work.see(seen)
        planned = self._fitting([work for work in batch if work.outcome is None])
        if planned:
            self._commit(planned)

    def _fitting(self, works: Sequence[Work]) -> dict[Work, Op]:
        """As many as go into one request, each with its operation."""
        planned: dict[Work, Op] = {}
        size = 0
        for work in works:
            op = work.op()
            size += size_of(op) + self._extra(work)
            if planned and size > REQUEST_BYTES:
                break
            planned[work] = op
        return planned

    def _extra(self, work: Work) -> int:  # noqa: ARG002 (for those who keep more than the entry)
        """What else a change puts into the request, in bytes."""
        return 0

    def _commit(self, planned: dict[Work, Op], more: Sequence[Op] = ()) -> Refused | None:
        """Apply all and `more`, or none."""
        self._ensure_buckets({work.path.rpartition("/")[0] for work in planned if work.creates})
        for work in planned:
            work.sent = True
        refused = self._zk.multi([*planned.values(), *more])
        if refused is not None and isinstance(refused.error, NoNode):
            self._buckets.clear()  # the table was dropped and made again
        for work in planned:
            if refused is None:
                work.done()
            else:
                work.refused()
        return refused

    def _ensure_buckets(self, paths: set[str]) -> None:
        missing = paths - self._buckets
        while missing:
            names = self._zk.children(self._keys)
            if names is None:
                raise MetadataUnavailable(f"table {self.name} is not there any more: it was dropped")
            self._buckets.update(f"{self._keys}/{name}" for name in names)
            missing -= self._buckets
            if missing and self._zk.multi([Create(path) for path in sorted(missing)]) is None:
                self._buckets |= missing

    def _path(self, key: str) -> str:
        number = int.from_bytes(blake2b(key.encode(), digest_size=2).digest()) % BUCKETS
        return f"{self._keys}/{number:03x}/{encode_key(key)}"


class _BucketKeys:
    """The keys of a table, bucket by bucket."""

    def __init__(self, zk: ZNodes, folder: str) -> None:
        self._zk = zk
        self._folder = folder
        self._buckets: list[str] | None = None
        self._at = 0

    def more(self) -> Sequence[str] | None:
        """See Keys. Foreign names are skipped: a key that cannot be written cannot be read or removed either."""
        if self._buckets is None:
            self._buckets = self._zk.children(self._folder) or []
        folders = [f"{self._folder}/{name}" for name in self._buckets[self._at : self._at + _BUCKETS_AT_ONCE]]
        if not folders:
            return None
        listed = self._zk.children_many(folders)
        self._at += len(folders)
        return [key for folder, names in zip(folders, listed, strict=True) for key in _keys_of(folder, names or ())]


def _keys_of(folder: str, names: Sequence[str]) -> list[str]:
    keys = []
    for name in names:
        try:
            keys.append(decode_key(name, folder))
        except CorruptRecord:
            log.warning("%s/%s is not Hoot's and is passed over", folder, name)
    return keys
