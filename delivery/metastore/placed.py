"""A cluster's MetaStore: each kind of metadata in ZooKeeper or in HBase, as the layout says (seed 000).

    /hoot/metastore/cluster    what HBase's table names its owner by; made by the first host that keeps anything there

A host knows from its settings what is to be where, and does not start when the layout says otherwise. Everybody else
learns it from the layout, with the gateways of HBase.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from typing import TYPE_CHECKING, ClassVar, Final

from delivery.errors import ConfigError, LayoutMismatch, MetadataUnavailable
from delivery.metastore.managers import layout
from delivery.metastore.managers.layout import KINDS, NOWHERE
from delivery.metastore.ops import InDoubt, NodeExists
from delivery.metastore.tables.base import HBasePlace, MetaStore, MetastoreScannableTable, MetastoreTable
from delivery.metastore.tables.watching import ValueWatches
from delivery.metastore.tables.zookeeper import ZooKeeperMetaStore
from delivery.metastore.znodes import ZNodes

if TYPE_CHECKING:
    from delivery.metastore.tables.hbase import HBaseMetaStore

CLUSTER: Final = f"{layout.FOLDER}/cluster"
CALL_SECONDS: Final = 30.0
"""For one exchange with a gateway of HBase."""


def hbase_place(kinds: str, prefix: str, gateways: str) -> HBasePlace:
    """Kinds of metadata, with commas between, in the tables of HBase that begin with `prefix`. Raises ConfigError."""
    wanted = sorted({kind.strip() for kind in kinds.split(",") if kind.strip()})
    if unknown := [kind for kind in wanted if kind not in KINDS]:
        raise ConfigError(f"hbase_metadata: {unknown[0][:40]!r} is none of {', '.join(KINDS)}")
    return HBasePlace(tuple(wanted), prefix, gateways) if wanted else NOWHERE


class PlacedMetaStore(MetaStore):
    """Tables in ZooKeeper, but for those that belong in HBase. The session stays its owner's to stop."""

    name: ClassVar[str] = ZooKeeperMetaStore.name
    version: ClassVar[int] = ZooKeeperMetaStore.version

    def __init__(
        self, zk: ZNodes, watches: ValueWatches, place: HBasePlace | None = None, *, call_seconds: float = CALL_SECONDS
    ) -> None:
        """Asks nobody yet. Without a `place` the layout tells it."""
        super().__init__()
        self._zk, self._place, self._call_seconds = zk, place, call_seconds
        self._zookeeper = ZooKeeperMetaStore(zk, watches)
        self._lock = threading.Lock()
        self._hbase: HBaseMetaStore | None = None

    @property
    def place(self) -> HBasePlace:
        """What is in HBase. Raises LayoutMismatch when the layout that tells it cannot be read."""
        if self._place is None:
            found = layout.read_layout(self._zk)
            if found is None:
                return NOWHERE
            self._place = found.place
        return self._place

    def prepare(self) -> None:
        """See MetaStore: take the table of HBase for this cluster. Raises LayoutMismatch, ConfigError."""
        if self.place.kinds:
            with contextlib.suppress(NodeExists, InDoubt):
                self._zk.create(CLUSTER, secrets.token_hex(8).encode())
            self._in_hbase().prepare()

    def check(self) -> None:
        """See MetaStore. Raises LayoutMismatch, ConfigError."""
        if self.place.kinds:
            self._in_hbase().check()

    def create_table(self, name: str) -> MetastoreTable:
        """See MetaStore."""
        return self._of(name).create_table(name)

    def create_scannable_table(self, name: str) -> MetastoreScannableTable:
        """See MetaStore."""
        return self._of(name).create_scannable_table(name)

    def drop_table(self, name: str) -> None:
        """See MetaStore. What is in HBase stays there when the layout cannot be read: it counts for nobody then."""
        try:
            store = self._of(name)
        except LayoutMismatch:
            store = self._zookeeper
            self._zk.delete(CLUSTER)
        try:
            store.drop_table(name)
        except LayoutMismatch:  # it was dropped in HBase, or is another cluster's now
            if store is self._zookeeper:
                raise

    def sweep(self) -> int:
        """See MetaStore."""
        return self._in_hbase().sweep() if self.place.kinds else 0

    def close(self) -> None:
        """See MetaStore."""
        super().close()
        self._zookeeper.close()
        with self._lock:
            if self._hbase is not None:
                self._hbase.close()

    def _of(self, name: str) -> MetaStore:
        tables = [table for kind in self.place.kinds for table in KINDS.get(kind, ())]
        return self._in_hbase() if name in tables else self._zookeeper

    def _in_hbase(self) -> HBaseMetaStore:
        self.check_open()
        with self._lock:
            if self._hbase is None:
                self._hbase = self._open()
            return self._hbase

    def _open(self) -> HBaseMetaStore:
        try:
            from delivery.hbase import Tables, parse_gateways
            from delivery.metastore.tables.hbase import HBaseMetaStore
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"metadata of this cluster are in HBase, which needs {error.name}: pip install 'hoot[hbase]'"
            ) from error
        found = self._zk.get(CLUSTER)
        if found is None:
            raise MetadataUnavailable(
                f"{CLUSTER} is not there, which names the metadata in HBase: was ZooKeeper wiped?"
            )
        place = self.place
        tables = Tables(parse_gateways(place.gateways), call_seconds=self._call_seconds)
        return HBaseMetaStore(tables, place.prefix, found[0].decode(errors="replace"))
