"""The MetaStore in ZooKeeper (seed 001), on the tree of znodes; kazoo is out of sight.

    FOLDER/tables/NAME                TableRecord, JSON
    FOLDER/tables/NAME/keys/3f9       one of up to 4,096 buckets, by hash of the key (see `hashed`)
    FOLDER/tables/NAME/keys/3f9/KEY   an entry: all its fields, its version the znode's
    FOLDER/tables/NAME/order/-LOW     an ordered table's only: a page of keys, none below LOW (see `pages`)

Entries never move, so that their versions count on whatever happens to the order. What may grow with the number of
keys is listed by bucket or read by page, each far below the 1 MiB that ZooKeeper's own client takes in a reply.
"""

from __future__ import annotations

import threading
from typing import ClassVar, Final

import msgspec

from delivery.errors import CorruptRecord, MetadataUnavailable
from delivery.metastore.errors import IllegalOperation
from delivery.metastore.ops import Create, Delete, NodeExists, NoNode, Op
from delivery.metastore.tables.base import MetaStore, MetastoreScannableTable, MetastoreTable, check_table
from delivery.metastore.tables.hashed import BUCKETS, HashedTable
from delivery.metastore.tables.ordered import OrderedTable
from delivery.metastore.tables.pages import first_page
from delivery.metastore.tables.watching import OneShots, ValueWatches
from delivery.metastore.znodes import ZNodes
from delivery.model import lay_out

FOLDER: Final = "/hoot/metastore"

_DELETES_AT_ONCE: Final = 250


class TableRecord(msgspec.Struct, frozen=True):
    """How a table is kept."""

    ordered: bool
    buckets: int = BUCKETS


lay_out(TableRecord)


class ZooKeeperMetaStore(MetaStore):
    """A MetaStore on a ZooKeeper session, which stays its owner's to stop; a ZooKeeperClient is both arguments."""

    name: ClassVar[str] = "zookeeper"
    version: ClassVar[int] = 1

    def __init__(self, zk: ZNodes, watches: ValueWatches, folder: str = FOLDER) -> None:
        super().__init__()
        self._zk = zk
        self._folder = folder
        self._shots = OneShots(watches)
        self._lock = threading.Lock()
        self._tables: dict[str, HashedTable | OrderedTable] = {}

    def create_table(self, name: str) -> MetastoreTable:
        """See MetaStore."""
        return self._table(name, ordered=False)

    def create_scannable_table(self, name: str) -> MetastoreScannableTable:
        """See MetaStore."""
        table = self._table(name, ordered=True)
        if not isinstance(table, OrderedTable):
            raise IllegalOperation(f"table {name!r} is there already, and without an order")
        return table

    def drop_table(self, name: str) -> None:
        """See MetaStore. Bucket by bucket, so that a table of any size is dropped in bounded memory."""
        self.check_open()
        path = self._path(check_table(name))
        with self._lock:
            self._tables.pop(name, None)
        for bucket in self._zk.children(f"{path}/keys") or ():
            self._delete_children(f"{path}/keys/{bucket}")
        for folder in ("keys", "order"):
            self._delete_children(f"{path}/{folder}")
        self._zk.delete_tree(path)

    def close(self) -> None:
        """See MetaStore. Leaves the session alone."""
        super().close()
        self._shots.close()

    def _table(self, name: str, *, ordered: bool) -> HashedTable | OrderedTable:
        self.check_open()
        check_table(name)
        with self._lock:
            table = self._tables.get(name)
        if table is None:
            kind = OrderedTable if self._record(name, ordered).ordered else HashedTable
            table = kind(self, name, self._zk, self._shots, self._path(name))
            with self._lock:
                table = self._tables.setdefault(name, table)
        return table

    def _record(self, name: str, ordered: bool) -> TableRecord:
        path = self._path(name)
        found = self._zk.get(path)
        if found is None:
            self._make(path, TableRecord(ordered))
            found = self._zk.get(path)
        if found is None:
            raise MetadataUnavailable(f"table {name!r} could not be made: it is being dropped at this moment")
        try:
            record = msgspec.json.decode(found[0], type=TableRecord)
        except msgspec.DecodeError as error:
            raise CorruptRecord(f"the value of {path} is no TableRecord: {error}") from error
        if record.buckets != BUCKETS:
            raise CorruptRecord(f"table {name!r} has {record.buckets} buckets; this program makes {BUCKETS}")
        return record

    def _make(self, path: str, record: TableRecord) -> None:
        ops: list[Op] = [Create(path, msgspec.json.encode(record)), Create(f"{path}/keys")]
        if record.ordered:
            ops += [Create(f"{path}/order"), first_page(f"{path}/order")]
        refused = self._zk.multi(ops)
        if refused is not None and isinstance(refused.error, NoNode):
            parts = f"{self._folder}/tables".split("/")
            for end in range(2, len(parts) + 1):
                try:
                    self._zk.create("/".join(parts[:end]))
                except NodeExists:
                    continue
            refused = self._zk.multi(ops)
        if refused is not None and not isinstance(refused.error, NodeExists):
            raise refused.error

    def _delete_children(self, path: str) -> None:
        names = self._zk.children(path) or []
        for at in range(0, len(names), _DELETES_AT_ONCE):
            refused = self._zk.multi([Delete(f"{path}/{name}") for name in names[at : at + _DELETES_AT_ONCE]])
            if refused is not None and not isinstance(refused.error, NoNode):
                raise refused.error

    def _path(self, name: str) -> str:
        return f"{self._folder}/tables/{name}"
