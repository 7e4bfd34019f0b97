"""Claiming a partition: a compare-and-set on its record in ZooKeeper, then opening the store. Blocking.

A record counts while its host is registered under the session it names. What names this host under the session that it
has now is its own, whoever wrote it: it was claimed here before, or another host gave it to this one. It is never sent
elsewhere, so no redirect can come back. A record of this host's earlier session counts as nobody's.
"""

from __future__ import annotations

import contextlib
from typing import Protocol

import msgspec

from delivery.errors import BadVersion, HootError, NotOwner
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.records import HostRecord
from delivery.model import QueueSettings
from delivery.storage.base import MessageStore, PartitionKey, PartitionState


class Directory(Protocol):
    """Who owns what (metastore.catalog.Catalog), as used here; blocking."""

    def partition(self, queue: str, partition: int) -> tuple[OwnerInfo | None, int]:
        """The owner's record and its version."""

    def claim(self, queue: str, partition: int, host: str, session: int, expected_version: int) -> OwnerInfo:
        """Make a host the owner under the next epoch. Raises BadVersion when somebody else was faster."""

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


class Claimed(msgspec.Struct, frozen=True):
    """This host's now: the record in ZooKeeper has this epoch and version, and the store was opened under it."""

    epoch: int
    version: int
    state: PartitionState


class Claims:
    """Claims partitions for one host, from threads."""

    def __init__(self, directory: Directory, store: MessageStore, member: Member) -> None:
        self._directory, self._store, self._member = directory, store, member

    def claim(
        self, key: PartitionKey, settings: QueueSettings, session: int, *, free: bool
    ) -> Claimed | HostRecord | None:
        """Take the partition, or say who has it.

        `free` says whether to take one that nobody owns; if not, it gives None. At most three reads, a probe of the
        owner, and one write. Raises NotOwner when another host takes it at this moment, and the errors of the store.
        """
        record, version = self._directory.partition(key.queue, key.partition)
        if record is None or (record.host, record.session) != (self._member.host, session):
            if (owner := self._owner(record)) is not None:
                return owner
            if not free:
                return None
        try:
            record = self._directory.claim(key.queue, key.partition, self._member.host, session, version)
        except BadVersion:
            raise NotOwner(f"another host is taking partition {key} at this moment") from None
        try:
            return Claimed(record.epoch, version + 1, self._store.open(key, record.epoch, settings))
        except HootError:
            # So that a host with a better disk may have it; else our session's end gives it back.
            with contextlib.suppress(HootError):
                self._directory.release(key.queue, key.partition, record.epoch, version + 1)
            raise

    def _owner(self, record: OwnerInfo | None) -> HostRecord | None:
        """The other host that owns the partition, and lives under the session that it claimed it with."""
        if record is None or not record.host or record.host == self._member.host:
            return None
        owner = self._directory.host(record.host)
        if owner is None or owner.session != record.session or self._member.is_gone(owner):
            return None
        return owner
