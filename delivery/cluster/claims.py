"""Claiming partitions: a compare-and-set on their records in ZooKeeper, then opening them in the store. Blocking.

A record counts while its host is registered under the session it names. What names this host under the session that it
has now is its own, whoever wrote it: it was claimed here before, or another host gave it to this one. It is never sent
elsewhere, so no redirect can come back. A record of this host's earlier session counts as nobody's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

import msgspec

from delivery.errors import BadVersion, CorruptRecord, HootError, NotOwner
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.partitions import Claim, Seen, next_owner
from delivery.metastore.records import HostRecord
from delivery.model import QueueSettings
from delivery.storage.base import MessageStore, PartitionKey, PartitionState


class Directory(Protocol):
    """Who owns what (metastore.catalog.Catalog), as used here; blocking."""

    def partition(self, queue: str, partition: int) -> Seen:
        """The owner's record and its version."""

    def partitions(self, places: Sequence[tuple[str, int]]) -> list[Seen | CorruptRecord]:
        """The same of many."""

    def claim(self, queue: str, partition: int, host: str, session: int, expected_version: int) -> OwnerInfo:
        """Make a host the owner under the next epoch. Raises BadVersion when somebody else was faster."""

    def claim_many(self, claims: Sequence[Claim]) -> list[HootError | None]:
        """Make hosts the owners of many, each by itself: None, or BadVersion and the like."""

    def release(self, queue: str, partition: int, epoch: int, version: int) -> None:
        """Give a partition up. Raises BadVersion."""

    def host(self, host: str) -> HostRecord | None:
        """A live host."""


class Member(Protocol):
    """This host in the cluster (hosts.membership.Membership)."""

    @property
    def host(self) -> str:
        """Its id."""

    @property
    def session(self) -> int:
        """The session to claim with. Raises MetadataUnavailable when there is none to rely on."""

    def is_gone(self, other: HostRecord) -> bool:
        """Whether another host is dead although it is registered still; blocking."""


class Wanted(msgspec.Struct, frozen=True):
    """A partition that this host wants."""

    key: PartitionKey
    session: int
    """To claim it with."""
    free: bool
    """Whether to take it when nobody owns it."""


class Granted(msgspec.Struct, frozen=True):
    """This host's now: the record in ZooKeeper has this epoch and version, and the store has to be opened under it."""

    epoch: int
    version: int


Answer = Granted | HostRecord | None
"""It is this host's; it is that host's; or it is nobody's, and not to be taken."""
Living = Callable[[str, int], HostRecord | HootError | None]
"""The host of that name, if it lives under that session."""


class Claims:
    """Claims partitions for one host, from threads."""

    def __init__(self, directory: Directory, store: MessageStore, member: Member) -> None:
        self._directory, self._store, self._member = directory, store, member

    def claim(self, wanted: Sequence[Wanted]) -> list[Answer | HootError]:
        """Take partitions or say who has them, each by itself. NotOwner: another host takes it at this moment.

        All together read their records, each other owner's once and probe it, and write once.
        """
        seen = self._directory.partitions([(one.key.queue, one.key.partition) for one in wanted])
        living: Living = cache(self._living)
        answers: list[Answer | HootError] = [None] * len(wanted)
        taking: dict[int, Claim] = {}
        for at, (one, found) in enumerate(zip(wanted, seen, strict=True)):
            decided = found if isinstance(found, CorruptRecord) else decide(one, *found, self._member.host, living)
            if isinstance(decided, Claim):
                taking[at] = decided
            else:
                answers[at] = decided
        refused = self._directory.claim_many(list(taking.values()))
        for (at, claim), error in zip(taking.items(), refused, strict=True):
            answers[at] = _outcome(wanted[at].key, claim, error)
        return answers

    def open(self, key: PartitionKey, settings: QueueSettings, granted: Granted) -> PartitionState:
        """Open what was granted in the store. Raises the errors of the store; then the partition is given up."""
        try:
            return self._store.open(key, granted.epoch, settings)
        except HootError:
            # So that a host with a better disk may have it; else our session's end gives it back.
            with contextlib.suppress(HootError):
                self._directory.release(key.queue, key.partition, granted.epoch, granted.version)
            raise

    def _living(self, host: str, session: int) -> HostRecord | HootError | None:
        try:
            found = self._directory.host(host)
            return None if found is None or found.session != session or self._member.is_gone(found) else found
        except HootError as error:
            return error


def decide(
    wanted: Wanted, record: OwnerInfo | None, version: int, me: str, living: Living
) -> Claim | HostRecord | HootError | None:  # fmt: skip
    """What to do about a partition with this record: claim it; it is that host's; or nobody's, and not to be taken."""
    if record is None or (record.host, record.session) != (me, wanted.session):
        if record is not None and record.host not in ("", me):
            owner = living(record.host, record.session)
            if owner is not None:
                return owner
        if not wanted.free:
            return None
    return Claim(wanted.key.queue, wanted.key.partition, next_owner(record, me, wanted.session), version)


def _outcome(key: PartitionKey, claim: Claim, error: HootError | None) -> Granted | HootError:
    if isinstance(error, BadVersion):
        return NotOwner(f"another host is taking partition {key} at this moment")
    return error or Granted(claim.owner.epoch, claim.version + 1)
