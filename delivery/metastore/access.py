"""What the catalog's parts share: the managers, opened when they are first needed, and errors that tell what to do."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from delivery.errors import BadVersion, MetadataUnavailable, UnknownQueue
from delivery.metastore import records
from delivery.metastore.managers import layout
from delivery.metastore.managers.ownership import TopicOwnershipManager
from delivery.metastore.managers.persistence import TopicPersistenceManager
from delivery.metastore.managers.queues import QueueManager
from delivery.metastore.managers.subscriptions import SubscriptionDataManager
from delivery.metastore.managers.topics import TopicGenerations
from delivery.metastore.managers.transactions import TransactionRecords
from delivery.metastore.ops import InDoubt, Op, Refused
from delivery.metastore.tables.base import MetaStore
from delivery.metastore.znodes import ZNodes
from delivery.model import near_names

ATTEMPTS: Final = 40
"""How often a compare-and-set is tried against others before the caller is told."""
PAUSE_SECONDS: Final = 0.002
PAUSE_SECONDS_MAX: Final = 0.25

R = TypeVar("R", bound=msgspec.Struct)


class Managers:
    """All managers over one MetaStore, whose tables are made where they are missing."""

    def __init__(self, store: MetaStore) -> None:
        self.queues = QueueManager(store)
        self.owners = TopicOwnershipManager(store)
        self.persistence = TopicPersistenceManager(store)
        self.subscriptions = SubscriptionDataManager(store)
        self.topics = TopicGenerations(store)
        self.transactions = TransactionRecords(store)


class Access:
    """Base of the catalog's parts. Blocking; as thread-safe as the znodes and the MetaStore underneath."""

    def __init__(self, zk: ZNodes, store: MetaStore) -> None:
        """Asks nobody: neither has to be there yet."""
        self._zk = zk
        self._store = store
        self._opened: Managers | None = None

    @property
    def is_laid_out(self) -> bool:
        """Whether this ZooKeeper holds Hoot's metadata. Raises LayoutMismatch when it is in another MetaStore."""
        found = layout.read_layout(self._zk)
        if found is not None:
            layout.check_layout(found, self._store)
        return found is not None

    @property
    def _has_tables(self) -> bool:
        return self._opened is not None or self.is_laid_out

    @property
    def managers(self) -> Managers:
        """The managers. Raises MetadataUnavailable before the first `ensure_layout`, and LayoutMismatch."""
        if self._opened is None:
            if not self._has_tables:
                raise MetadataUnavailable(
                    "this ZooKeeper holds nothing of Hoot yet: start a region host with `hoot serve`"
                )
            self._opened = Managers(self._store)
        return self._opened

    def _apply(self, ops: Sequence[Op], path: str, value: bytes) -> Refused | None:
        """`multi`, with an answer that got lost settled by looking: nobody else writes this very value to `path`."""
        try:
            return self._zk.multi(ops)
        except InDoubt:
            found = self._zk.get(path)
            if found is None or found[0] != value:
                raise
            return None

    def _get(self, path: str, kind: type[R]) -> R | None:
        found = self._zk.get(path)
        return None if found is None else records.decode(found[0], kind, path)

    def _unknown_queue(self, name: str) -> UnknownQueue:
        near = near_names(name, self.managers.queues.names_around(name))
        hint = f"did you mean {' or '.join(near)}?" if near else f"create it with `hoot queue create {name}`"
        return UnknownQueue(f"there is no queue {name!r}: {hint}")


def crowded(what: str) -> BadVersion:
    """Others changed `what` under us, time and again."""
    return BadVersion(f"{what} is being changed by others at this moment; try again")


def give_way(attempt: int) -> None:
    """Pause before the next attempt at what others are changing, too; at random, so that they do not meet again."""
    if attempt:
        time.sleep(random.uniform(0.0, min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2.0**attempt)))
