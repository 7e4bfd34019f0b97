"""One change on its way to ZooKeeper: what it needs to know, how it ends, and its operation. Decides, does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from delivery.errors import BadVersion, HootError, MetadataUnavailable
from delivery.metastore.errors import KeyExists, NoKey
from delivery.metastore.ops import ANY_VERSION, Create, Delete, Op, Set
from delivery.metastore.tables.base import Change, Put
from delivery.metastore.tables.entries import decode_value, encode_value
from delivery.metastore.tables.values import EMPTY
from delivery.metastore.tables.versions import Version

ATTEMPTS: Final = 100
"""Of several who change the same, one is done each time: so many can be at it at once."""

WORKS_AT_ONCE: Final = 1000

Seen = tuple[bytes, int] | None
"""A znode's value and version, or that there is none."""


class Work:
    """A change, and how far it is. The first attempt looks only where it has to; one after a refusal always does."""

    def __init__(self, change: Change, table: str, path: str) -> None:
        self.change = change
        self.table = table
        self.path = path
        self.outcome: Version | HootError | None = None
        """None until it is done or has failed for good."""
        self.sent = False
        self.looks = not (self.creates or self._is_blind)
        self._version = change.version.number
        self._value = EMPTY.merge(change.value) if isinstance(change, Put) else EMPTY
        self._tries = 0

    @property
    def creates(self) -> bool:
        """Whether a key comes new into the table."""
        return isinstance(self.change, Put) and self.change.version == Version.NEW

    @property
    def _is_blind(self) -> bool:
        """Whether the znode's version alone decides: nothing is merged, and the version is an exact one, or any."""
        exact = self.change.version not in (Version.NEW, Version.ANY)
        if isinstance(self.change, Put):
            return exact and self.change.whole
        return exact or self.change.version == Version.ANY

    def see(self, seen: Seen) -> None:
        """Take in what is there now; may end the change."""
        self.looks = False
        version = self.change.version
        if self.creates:
            if seen is not None:
                self.outcome = KeyExists(f"table {self.table} has {self.change.key!r} already")
        elif seen is None:
            self.outcome = NoKey(f"table {self.table} has no {self.change.key!r}")
        elif version not in (Version.ANY, Version(seen[1])):
            self.outcome = BadVersion(
                f"{self.change.key!r} of table {self.table} has version {seen[1]}, not {version.number}"
            )
        else:
            self._version = seen[1]
            self._merge(seen[0])

    def _merge(self, data: bytes) -> None:
        if isinstance(self.change, Put) and not self.change.whole:
            try:
                self._value = decode_value(data, self.table, self.change.key).merge(self.change.value)
            except HootError as error:
                self.outcome = error

    def op(self) -> Op:
        """What to ask of ZooKeeper."""
        if self.creates:
            return Create(self.path, encode_value(self._value))
        if isinstance(self.change, Put):
            return Set(self.path, encode_value(self._value), self._version)
        return Delete(self.path, ANY_VERSION if self.change.version == Version.ANY else self._version)

    def done(self) -> None:
        """It was applied."""
        if not isinstance(self.change, Put):
            self.outcome = Version.NEW
        else:
            self.outcome = Version(0 if self.creates else self._version + 1)

    def refused(self) -> None:
        """The transaction that it was in was refused: nothing was applied, and perhaps not because of this one."""
        self.looks, self.sent = True, False
        self._tries += 1
        if self._tries >= ATTEMPTS:
            self.outcome = BadVersion(
                f"{self.change.key!r} of table {self.table} is being changed by others; try again"
            )

    def cut_off(self, error: MetadataUnavailable) -> None:
        """ZooKeeper cannot be asked any more; only what was sent may have been done."""
        waiting = f"{self.change.key!r} of table {self.table} was not changed: {error.message}"
        self.outcome = error if self.sent else MetadataUnavailable(waiting)


W = TypeVar("W", bound=Work)


def work_off(works: Sequence[W], attempt: Callable[[Sequence[W]], None]) -> None:
    """Call `attempt` with what is not done yet, some at a time, until each has its outcome.

    When it raises MetadataUnavailable nothing more is tried.
    """
    failure: MetadataUnavailable | None = None
    for at in range(0, len(works), WORKS_AT_ONCE):
        pending = works[at : at + WORKS_AT_ONCE]
        while pending:
            try:
                if failure is None:
                    attempt(pending)
            except MetadataUnavailable as error:
                failure = error
            pending = [work for work in pending if work.outcome is None]
            if failure is not None:
                for work in pending:
                    work.cut_off(failure)
                pending = []


def first_of_each(works: Iterable[W], at_most: int) -> list[W]:
    """Of several changes to one key the first: the later ones wait."""
    first: dict[str, W] = {}
    for work in works:
        first.setdefault(work.path, work)
    return list(first.values())[:at_most]
