"""Checkpoints: how far a subscription has been acknowledged, one znode per partition.

This is the hot path of the metadata: many checkpoints go into one transaction, which also checks that each partition
still has the owner who writes. What was last read or written is remembered, so that usually nothing has to be read.

A position may be on its way while its subscription is deleted and made again under the same name, and no transaction
can check that a znode is the same as before: the version of a new one begins at 0. So each checkpoint names the
subscription that it is of, by the time of its creation. A late one may still be the first in the new subscription's
folder; nobody takes it for a checkpoint of that, and the first one of the new subscription replaces it. One that is
there already stays: where the two differ, the subscription's record is looked at, and who is not of it saves nothing.
What is remembered is good enough for that: only the partition's owner saves, one save at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from delivery.errors import BadVersion, CorruptRecord, Fenced, HootError, MetadataUnavailable, UnknownSubscription
from delivery.ids import ID_MAX
from delivery.metastore import records
from delivery.metastore.access import ATTEMPTS, Access, checked_partition
from delivery.metastore.ops import Check, Create, NoNode, Op, Refused, Set
from delivery.metastore.records import Checkpoint, SubscriptionRecord
from delivery.metastore.znodes import ZNodes
from delivery.model import check_name

REMEMBERED_MAX: Final = 100_000
"""Above this many everything is forgotten, and read again as it is needed: some 20 MB."""
SAVED_AT_ONCE: Final = 250

_ABSENT: Final = -1  # as a version: there is no checkpoint yet


class CheckpointKey(Protocol):
    """Whose checkpoint."""

    @property
    def queue(self) -> str:
        """The queue's name."""
        ...

    @property
    def subscription(self) -> str:
        """The subscription's name."""
        ...

    @property
    def partition(self) -> int:
        """The partition's number."""
        ...


class CheckpointUpdate(Protocol):
    """One checkpoint to save."""

    @property
    def key(self) -> CheckpointKey:
        """Whose."""
        ...

    @property
    def checkpoint(self) -> Checkpoint:
        """The new position."""
        ...

    @property
    def partition_version(self) -> int:
        """Of the partition's record, when the one who saves became its owner; it must still be that."""
        ...


class _Known(NamedTuple):
    """What the last look or change left at a path."""

    version: int
    created_ms: int | None
    """Of the subscription of the checkpoint there; None when there is none."""
    id: int


_NOTHING: Final = _Known(_ABSENT, None, -1)


class _Entry:
    """An update on its way."""

    __slots__ = ("check", "created_ms", "error", "folder", "id", "key", "path", "tries", "value")

    def __init__(self, update: CheckpointUpdate) -> None:
        self.key = key = update.key
        queue, name = check_name("queue", key.queue), check_name("subscription", key.subscription)
        self.path = records.checkpoint_path(queue, name, checked_partition(queue, key.partition))
        assert update.partition_version >= 0, "only an owner saves checkpoints"
        self.check = Check(records.partition_path(queue, key.partition), update.partition_version)
        self.folder = records.subscription_path(queue, name)
        self.id = update.checkpoint.id
        self.created_ms = update.checkpoint.created_ms
        self.value = records.encode(update.checkpoint)
        self.tries = 0
        self.error: HootError | None = None

    def is_ahead(self, known: _Known | None) -> bool:
        """Whether it moves what is known forward; what is not known may be anything."""
        if known is None:
            return False
        return known.created_ms is None or (known.created_ms == self.created_ms and known.id < self.id)


class Checkpoints(Access):
    """Reading and saving checkpoints. Of several threads that save, one does it at a time."""

    def __init__(self, zk: ZNodes) -> None:
        super().__init__(zk)
        self._saving = threading.Lock()
        self._known: dict[str, _Known] = {}

    def checkpoints(self, queue: str, name: str) -> dict[int, Checkpoint]:
        """The checkpoints of a subscription, by partition. Raises UnknownSubscription, CorruptRecord."""
        folder = records.subscription_path(check_name("queue", queue), check_name("subscription", name))
        names = self._zk.children(folder)
        if names is None:
            raise _unknown_subscription(queue, name)
        numbers = self._partitions(folder, names)
        paths = [records.checkpoint_path(queue, name, number) for number in numbers]
        record, *values = self._zk.get_many([folder, *paths])
        if record is None:
            raise _unknown_subscription(queue, name)
        subscription = records.decode(record[0], SubscriptionRecord, folder)
        found = zip(numbers, paths, values, strict=True)
        read = {number: _decode(path, one[0]) for number, path, one in found if one is not None}
        return {number: checkpoint for number, checkpoint in read.items() if checkpoint.is_of(subscription)}

    def checkpoint(self, queue: str, name: str, partition: int) -> Checkpoint | None:
        """What is saved for one partition of a subscription, None when nothing is. Raises CorruptRecord.

        The caller knows the subscription, and whether this is of it.
        """
        number = checked_partition(check_name("queue", queue), partition)
        path = records.checkpoint_path(queue, check_name("subscription", name), number)
        found = self._zk.get(path)
        return None if found is None else _decode(path, found[0])

    def save_checkpoints(self, updates: Sequence[CheckpointUpdate]) -> list[HootError | None]:
        """Save many, each by itself: None where it was saved or where as much had been saved before, else the error.

        Checkpoints never go backwards here. Fenced: the partition has another owner. UnknownSubscription: it was
        deleted, and perhaps made anew. MetadataUnavailable: it may or may not have been saved. Names out of bounds
        raise InvalidRequest.
        """
        entries = [_Entry(update) for update in updates]
        with self._saving:
            if len(self._known) > REMEMBERED_MAX:
                self._known.clear()
            self._save(entries)
        return [entry.error for entry in entries]

    def _save(self, pending: list[_Entry]) -> None:
        while pending:
            try:
                pending = self._save_some(self._forward(pending))
            except MetadataUnavailable as error:
                # If it was saved after all, the version remembered is wrong, which the next save finds out.
                for entry in pending:
                    entry.error = entry.error or error
                return

    def _forward(self, pending: list[_Entry]) -> list[_Entry]:
        """Those that move their checkpoint forward. Only a fresh look can tell that one does not."""
        doubtful = [entry for entry in pending if not entry.is_ahead(self._known.get(entry.path))]
        if doubtful:
            self._look_at(doubtful)
        return [entry for entry in pending if entry.error is None and entry.is_ahead(self._known[entry.path])]

    def _look_at(self, entries: list[_Entry]) -> None:
        foreign = []
        for entry, found in zip(entries, self._zk.get_many([entry.path for entry in entries]), strict=True):
            try:
                self._known[entry.path] = known = _NOTHING if found is None else _found(entry.path, *found)
            except CorruptRecord as error:
                entry.error = error
                continue
            if known.created_ms not in (None, entry.created_ms):
                foreign.append(entry)
        if foreign:
            self._settle_foreign(foreign)

    def _settle_foreign(self, entries: list[_Entry]) -> None:
        """Of what stands in their place, of another subscription of that name, and them: which came too late?"""
        for entry, found in zip(entries, self._zk.get_many([entry.folder for entry in entries]), strict=True):
            try:
                record = None if found is None else records.decode(found[0], SubscriptionRecord, entry.folder)
            except CorruptRecord as error:
                entry.error = error
                continue
            if record is None or record.created_ms != entry.created_ms:
                entry.error = _unknown_subscription(entry.key.queue, entry.key.subscription)
            else:
                self._known[entry.path] = self._known[entry.path]._replace(created_ms=entry.created_ms, id=-1)

    def _save_some(self, pending: list[_Entry]) -> list[_Entry]:
        """One transaction; gives those that are left to do. Of several for one checkpoint, the later ones wait."""
        first: dict[str, _Entry] = {}
        for entry in pending:
            first.setdefault(entry.path, entry)
        batch = list(first.values())[:SAVED_AT_ONCE]
        checks = list(dict.fromkeys(entry.check for entry in batch))
        refused = self._zk.multi([*checks, *(self._write_op(entry) for entry in batch)])
        if refused is None:
            for entry in batch:
                self._known[entry.path] = _Known(self._known[entry.path].version + 1, entry.created_ms, entry.id)
            saved = set(batch)
            return [entry for entry in pending if entry not in saved]
        if refused.index < len(checks):
            for entry in pending:
                if entry.check == checks[refused.index]:
                    entry.error = _fenced(entry)
        else:
            self._blame(batch[refused.index - len(checks)], refused)
            for entry in batch:  # what was known wrongly of one may be of others: look at all again, at once
                del self._known[entry.path]
        return [entry for entry in pending if entry.error is None]

    def _write_op(self, entry: _Entry) -> Op:
        version = self._known[entry.path].version
        return Create(entry.path, entry.value) if version == _ABSENT else Set(entry.path, entry.value, version)

    def _blame(self, entry: _Entry, refused: Refused) -> None:
        entry.tries += 1
        if isinstance(refused.error, NoNode) and self._known[entry.path].version == _ABSENT:
            entry.error = _unknown_subscription(entry.key.queue, entry.key.subscription)
        elif not isinstance(refused.error, BadVersion):
            entry.error = refused.error
        elif entry.tries >= ATTEMPTS:
            entry.error = MetadataUnavailable(f"{entry.path} is being changed by others at this moment")


def _fenced(entry: _Entry) -> Fenced:
    return Fenced(f"partition {entry.key.partition} of queue {entry.key.queue!r} has another owner now")


def _unknown_subscription(queue: str, name: str) -> UnknownSubscription:
    return UnknownSubscription(f"queue {queue!r} has no subscription {name!r}")


def _found(path: str, value: bytes, version: int) -> _Known:
    checkpoint = _decode(path, value)
    return _Known(version, checkpoint.created_ms, checkpoint.id)


def _decode(path: str, value: bytes) -> Checkpoint:
    checkpoint = records.decode(value, Checkpoint, path)
    if not 0 <= checkpoint.id <= ID_MAX or checkpoint.epoch < 0:
        raise CorruptRecord(f"the value of {path} cannot be: {checkpoint}")
    return checkpoint
