"""Managing transactions: one host does, elected by a compare-and-set on the entry that holds all that is kept of them.

The entry's version is the fence: each round of decisions is kept under the version of the one before, and whoever takes
over moves it. So of two hosts that both believe to manage only one can end a transaction. The other may still begin
some out of its lease, which the first knows of, and these see nothing newer (see `limits.LEASE_MS`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from delivery import wall
from delivery.cluster.claims import Member
from delivery.errors import BadVersion, HootError, NotOwner, Throttled, UnknownOutcome
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.managers.transactions import Managed
from delivery.metastore.ops import InDoubt
from delivery.metastore.partitions import next_owner
from delivery.metastore.records import HostRecord
from delivery.metastore.tables.versions import Version, Versioned
from delivery.transactions.asks import (
    Abort,
    Answer,
    Ask,
    Asked,
    Begin,
    Commit,
    Expire,
    Invalidate,
    Look,
    MayWrite,
    Prune,
    Survey,
)
from delivery.transactions.book import Book, Draft
from delivery.transactions.state import State

log = logging.getLogger(__name__)


class Directory(Protocol):
    """Where transactions are kept (metastore.catalog.Catalog); blocking."""

    def transactions(self) -> Versioned[Managed] | None:
        """What is kept and its version."""

    def keep_transactions(self, managed: Managed, version: Version) -> Version:
        """Keep it under a version; gives the next. Raises BadVersion, InDoubt."""

    def host(self, host: str) -> HostRecord | None:
        """A live host."""


class _Held:
    """The seat, while this host has it."""

    def __init__(self, manager: OwnerInfo, book: Book, version: Version) -> None:
        self.manager, self.book, self.version = manager, book, version


class Seat:
    """The manager's seat, as one host sees it. Thread-safe; `work` and `release` block."""

    def __init__(self, directory: Directory, member: Member, now_ms: Callable[[], int] = wall.ms) -> None:
        self._directory, self._member, self._now_ms = directory, member, now_ms
        self._lock = threading.Lock()
        """Of the book."""
        self._turn = threading.Lock()
        """Held by a round, or by giving up."""
        self._held: _Held | None = None
        self.successor: HostRecord | None = None
        """The host that is to manage transactions instead of this one, which is draining."""

    @property
    def is_held(self) -> bool:
        """Whether this host believes to manage transactions."""
        return self._held is not None

    def counts(self) -> tuple[int, int]:
        """How many transactions that this host manages are in progress, and how many invalid."""
        held = self._held
        return (0, 0) if held is None else held.book.counts()

    def oldest_invalid(self) -> int | None:
        """The first of the invalid ones that this host manages."""
        held = self._held
        return None if held is None else held.book.oldest_invalid()

    def is_due(self) -> bool:
        """Whether it does, and the time of a transaction is over."""
        held = self._held
        with self._lock:
            return held is not None and held.book.is_due(self._now_ms())

    def at_once(self, ask: Asked) -> Answer:
        """The answer from memory, None where that takes a round. Raises MetadataUnavailable while cut off."""
        session, held = self._member.session, self._held
        if not isinstance(ask, Begin | Look | MayWrite | Survey) or held is None or held.manager.session != session:
            return None
        now = self._now_ms()
        with self._lock:
            if isinstance(ask, Begin):
                return held.book.begin(ask.timeout_ms, now)
            return None if held.book.needs_lease(now) else _told(held.book, ask, now)

    def work(self, asks: Sequence[Asked]) -> list[Answer | HootError]:
        """A round: what of this is decided is kept when it returns, and nothing was visible before.

        Takes the seat when no living host has it. Raises NotOwner with the manager's address; NotOwner or
        UnknownOutcome when the seat was lost, and nothing of the round counts, or that is not known: asking again is
        fine.
        """
        with self._turn:
            return self._work(asks)

    def _work(self, asks: Sequence[Asked]) -> list[Answer | HootError]:
        session, held = self._member.session, self._held
        if held is None or held.manager.session != session:
            held = self._take(session)
        now = self._now_ms()
        with self._lock:
            draft = held.book.draft(now, sum(isinstance(ask, Begin) for ask in asks))
        decided = [_decided(draft, ask, now) for ask in asks]
        draft.trim()
        self._keep(held, held.manager, draft.state())
        with self._lock:
            held.book.adopt(draft)
            return [_found(held.book, one, now) if isinstance(one, _Found) else one for one in decided]

    def release(self, to: HostRecord | None = None) -> None:
        """Give the seat up, so that the next manager need not suppose that anything unknown has begun.

        Whoever asks is sent to the host `to`; without one, the next that is asked takes it.
        """
        following = ("", 0) if to is None else (to.host, to.session)
        with self._turn:
            held = self._held
            if held is not None:
                self._held = None
                with self._lock:
                    held.book.end_lease()
                self._keep(held, OwnerInfo(*following, held.manager.epoch), held.book.state())

    def _take(self, session: int) -> _Held:
        self._held = None
        found = self._directory.transactions()
        before = None if found is None else found.value.manager
        if before is not None and before.host not in ("", self._member.host):
            host = self._directory.host(before.host)
            if host is not None and host.session == before.session and not self._member.is_gone(host):
                raise NotOwner("another host manages transactions", address=host.host_port)
        is_named = before is not None and (before.host, before.session) == (self._member.host, session)
        if self.successor is not None and not is_named:
            raise NotOwner("this host is draining: it manages no transactions", address=self.successor.host_port)
        state = State() if found is None else found.value.state.taken_over(self._now_ms())
        manager = next_owner(before, self._member.host, session)
        held = _Held(manager, Book(state), Version.NEW if found is None else found.version)
        self._keep(held, manager, state)
        log.info(
            "this host manages transactions, epoch %d; %d may be in progress", manager.epoch, len(state.in_progress)
        )
        self._held = held
        return held

    def _keep(self, held: _Held, manager: OwnerInfo, state: State) -> None:
        try:
            held.version = self._directory.keep_transactions(Managed(manager, state), held.version)
        except HootError as error:
            self._held = None
            if isinstance(error, BadVersion):
                raise NotOwner("another host manages transactions now") from error
            if isinstance(error, InDoubt):
                raise UnknownOutcome(f"it cannot be told whether this was done: {error.message}") from error
            raise


_Told = Look | MayWrite | Survey
_Found = Begin | Ask | _Told
"""What is found in the book; only the first changes it."""


def _decided(draft: Draft, ask: Asked, now: int) -> Answer | HootError | _Found:
    """What is decided on the draft; what is to be found in the book afterwards, as it is."""
    try:
        match ask:
            case Commit(pointer, changes):
                draft.commit(pointer, changes, now)
            case Abort(pointer):
                draft.abort(pointer)
            case Invalidate(pointer):
                draft.invalidate(pointer)
            case Prune(before_ms):
                return draft.prune(before_ms, now)
            case Expire():
                draft.expire(now)
            case _:
                return ask
    except HootError as error:
        return error
    return None


def _found(book: Book, ask: _Found, now: int) -> Answer | HootError:
    try:
        if isinstance(ask, Ask):
            return book.standing(ask.pointer)
        if isinstance(ask, Begin):
            return book.begin(ask.timeout_ms, now) or Throttled("too many transactions begin at this moment")
        return _told(book, ask, now)
    except HootError as error:
        return error


def _told(book: Book, ask: _Told, now: int) -> Answer:
    if isinstance(ask, Look):
        return book.look()
    if isinstance(ask, Survey):
        return book.survey()
    return [book.may_write(pointer, now) for pointer in ask.pointers]
