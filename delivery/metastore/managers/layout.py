"""Which MetaStore a cluster was formatted for (seed 000; Hedwig's FactoryLayout).

    /hoot/metastore/layout    MetaLayout, JSON; always in ZooKeeper, whichever MetaStore it names: all hosts meet there

It also names the kinds of metadata that are in HBase instead, and where that is, for clients have no settings.

Whoever creates it first decides. A host that is set up for another one does not start, as it would keep its own owners
and checkpoints beside those of the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from delivery.errors import LayoutMismatch, MetadataUnavailable
from delivery.metastore import records
from delivery.metastore.managers import (
    ownership,
    persistence,
    queues,
    snapshots,
    states,
    subscriptions,
    topics,
    transactions,
)
from delivery.metastore.ops import InDoubt, NodeExists
from delivery.metastore.tables.base import HBasePlace, MetaStore
from delivery.metastore.znodes import ZNodes
from delivery.model import lay_out

FOLDER: Final = "/hoot/metastore"
PATH: Final = f"{FOLDER}/layout"
MANAGERS_VERSION: Final = 1
"""Of what the managers keep in the tables."""
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ownership": (ownership.TABLE, transactions.TABLE),
    "persistence": (persistence.TABLE,),
    "queues": (queues.TABLE, topics.TABLE),
    "subscriptions": (subscriptions.TABLE, states.TABLE, snapshots.TABLE),
}
"""The tables of each kind of metadata, which are in one place."""
TABLES: Final = tuple(table for tables in KINDS.values() for table in tables)
NOWHERE: Final = HBasePlace((), "", "")


class MetaLayout(msgspec.Struct, frozen=True):
    """The MetaStore by its name, the versions of how it and the managers keep their data, and what is in HBase."""

    metastore: str
    metastore_version: int
    managers_version: int = MANAGERS_VERSION
    hbase: HBasePlace | msgspec.UnsetType = msgspec.UNSET
    """Not written where there is nothing."""

    @property
    def place(self) -> HBasePlace:
        """What is in HBase."""
        return NOWHERE if isinstance(self.hbase, msgspec.UnsetType) else self.hbase


lay_out(MetaLayout)


def read_layout(zk: ZNodes) -> MetaLayout | None:
    """What the cluster was formatted for, None before its first start. Raises LayoutMismatch when it cannot be read."""
    found = zk.get(PATH)
    if found is None:
        return None
    try:
        return msgspec.json.decode(found[0], type=MetaLayout)
    except msgspec.DecodeError as error:
        raise LayoutMismatch(
            f"{PATH} is no layout that this program knows ({error}): use the program that wrote it, or wipe all of"
            " Hoot's metadata with `hoot metastore format`"
        ) from error


def ensure_layout(zk: ZNodes, store: MetaStore) -> MetaLayout:
    """Format an empty cluster for `store`, or see that it is. Of many who start at once all of one kind succeed.

    The folders of hosts and listeners are made on the way.

    Raises LayoutMismatch, nothing touched, when it was formatted for another.
    """
    wanted = _layout_of(store)
    layout = read_layout(zk)
    if layout is None:
        for path in (records.ROOT, FOLDER, records.HOSTS, records.LISTENERS):
            with contextlib.suppress(NodeExists):
                zk.create(path)
        store.prepare()
        with contextlib.suppress(NodeExists, InDoubt):  # whoever was first, what is there now counts
            zk.create(PATH, msgspec.json.encode(wanted))
        layout = read_layout(zk)
    if layout is None:
        raise MetadataUnavailable(f"{PATH} could not be written, or was wiped at this moment: try again")
    check_layout(layout, store)
    store.check()
    if layout != wanted:  # the gateways have moved: clients learn of it from here
        zk.set(PATH, msgspec.json.encode(wanted))
    return wanted


def check_layout(layout: MetaLayout, store: MetaStore) -> MetaLayout:
    """`layout` if it is that of `store` and of this program. Raises LayoutMismatch."""
    wanted = _layout_of(store)
    if _in_hbase(layout) != _in_hbase(wanted):
        raise LayoutMismatch(
            f"this cluster keeps {_in_hbase(layout)} in HBase, and this host is set up to keep {_in_hbase(wanted)}"
            " there: set hbase_metadata and hbase_prefix alike, use another folder of ZooKeeper, or wipe all of Hoot's"
            " metadata with `hoot metastore format`"
        )
    if msgspec.structs.replace(layout, hbase=wanted.hbase) != wanted:
        raise LayoutMismatch(
            f"this cluster's metadata is in the MetaStore {layout.metastore!r}, version {layout.metastore_version}."
            f"{layout.managers_version}, and this program is set up for {wanted.metastore!r}, version"
            f" {wanted.metastore_version}.{wanted.managers_version}: set it up alike, use another folder of ZooKeeper,"
            " or wipe all of Hoot's metadata with `hoot metastore format`"
        )
    return layout


def _layout_of(store: MetaStore) -> MetaLayout:
    place = store.place
    return MetaLayout(store.name, store.version, hbase=place if place is not None and place.kinds else msgspec.UNSET)


def _in_hbase(layout: MetaLayout) -> str:
    """In words; the gateways may be others at any time."""
    kinds = ", ".join(layout.place.kinds)
    return f"{kinds} (tables {layout.place.prefix}.*)" if kinds else "nothing"


def format_metastore(zk: ZNodes, store: MetaStore, tables: Iterable[str] = TABLES) -> None:
    """Wipe what the managers keep in `store`, damaged or not, then the layout. For a cluster at rest: no host may run.

    The layout goes last: when this breaks off, no host of another kind starts on what is left, and it can be repeated.
    """
    for name in tables:
        store.drop_table(name)
    zk.delete(PATH)
