"""All transactions in the memory of the host that manages them: who begins, commits or ends, and who sees what.

Two transactions conflict when both changed the same key and neither saw the other: the second that commits is refused.
Visibility is that of seed 003: a transaction sees what was committed before it began, and itself.

What ends a transaction counts when it is kept, and nobody may see it before. So it is decided on a copy, a Draft, while
others begin on the book; what they see is the book's. When the draft is kept, the book takes it over.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection

from delivery.errors import InvalidRequest, Throttled
from delivery.messaging.names import TRANSACTION_LIFE_MS
from delivery.messaging.transactions import Snapshot, within
from delivery.transactions.asks import Begun, Listed, Standing
from delivery.transactions.errors import TransactionConflict, UnknownTransaction, refusal
from delivery.transactions.limits import (
    CHANGED_MAX,
    FINISHED_MAX,
    IN_PROGRESS_MAX,
    LEASE_MAX,
    LEASE_MIN,
    LEASE_MS,
    UNFINISHED_MAX,
)
from delivery.transactions.pointers import POINTERS_PER_MS, began_ms, first_run, is_run
from delivery.transactions.state import State


class Book:
    """The transactions as they are kept, and those that have begun since. Not thread-safe."""

    def __init__(self, state: State) -> None:
        self._load(state)

    def _load(self, state: State) -> None:
        self.next_pointer, self.leased = state.next_pointer, state.leased
        self._read_pointer = state.read_pointer
        self._in_progress = dict(state.in_progress)
        self._invalid = list(state.invalid)
        self._changed = dict(state.changed)
        self._forgotten = state.forgotten
        self._finished = dict(state.finished)
        self._kept_pointer = state.next_pointer
        """The next pointer at the time of the last draft: those given out since show how many a lease should have."""

    def begin(self, timeout_ms: int, now: int) -> Begun | None:
        """A new transaction; None when a lease is needed first. Raises Throttled when there are too many."""
        if self.needs_lease(now):
            return None
        if len(self._in_progress) >= IN_PROGRESS_MAX:
            raise Throttled(f"{IN_PROGRESS_MAX} transactions are in progress")
        if len(self._in_progress) + len(self._invalid) >= UNFINISHED_MAX:
            raise Throttled(f"{len(self._invalid)} transactions are invalid: prune those whose messages are gone")
        pointer = self.next_pointer
        snapshot = self.look(pointer)
        self.next_pointer += 1
        self._in_progress[pointer] = now + timeout_ms
        return Begun(pointer, now + timeout_ms, snapshot)

    def look(self, pointer: int = 0) -> Snapshot:
        """What the transaction of that pointer would see if it began now; with 0, what one sees who begins none."""
        return Snapshot(
            transaction=pointer, write_pointer=pointer, read_pointer=self._read_pointer,
            invalid=tuple(self._invalid), in_progress=tuple(sorted(self._in_progress)),
        )  # fmt: skip

    def standing(self, pointer: int) -> Standing:
        """How a transaction stands. Raises UnknownTransaction, also for one that ended long ago."""
        if pointer in self._in_progress:
            return "in_progress"
        if within(self._invalid, pointer):
            return "invalid"
        if pointer not in self._finished:
            raise UnknownTransaction(f"no transaction {pointer} is in progress; it may have ended long ago")
        return "committed" if self._finished[pointer] else "aborted"

    def may_write(self, pointer: int, now: int) -> Standing | None:
        """`standing` with the time that is left looked at; None for one of which nothing is known."""
        if self._in_progress.get(pointer, now + 1) <= now:
            return "invalid"
        try:
            return self.standing(pointer)
        except UnknownTransaction:
            return None

    def survey(self) -> list[Listed]:
        """All that are in progress or invalid, oldest first."""
        found = [Listed(pointer, "in_progress", until) for pointer, until in self._in_progress.items()]
        return sorted(found + [Listed(pointer, "invalid", 0) for pointer in self._invalid], key=lambda one: one.pointer)

    def counts(self) -> tuple[int, int]:
        """How many are in progress, and how many invalid."""
        return len(self._in_progress), len(self._invalid)

    def oldest_invalid(self) -> int | None:
        """The pointer of the first of them, None without any."""
        return next(iter(self._invalid), None)

    def is_due(self, now: int) -> bool:
        """Whether the time of any transaction is over."""
        return any(deadline <= now for deadline in self._in_progress.values())

    def draft(self, now: int, begins: int = 0) -> Draft:
        """A copy to decide on, with a lease for the next transactions, `begins` of which wait already."""
        found = Draft(self.state())
        given = self.next_pointer - self._kept_pointer + begins
        size = max(LEASE_MIN, begins, min(2 * given, LEASE_MAX))
        if _is_stale(self.next_pointer, now) or not is_run(self.next_pointer, size):
            found.next_pointer = first_run(self.leased + 1, now)
            self.end_lease()
        found.leased = max(found.leased, found.next_pointer + size - 1)
        return found

    def end_lease(self) -> None:
        """Nothing begins before the next draft is kept."""
        self.leased = self.next_pointer - 1

    def adopt(self, draft: Draft) -> None:
        """The draft was kept: it is how things are, but for the transactions that have begun in the meantime."""
        since = {one: until for one, until in self._in_progress.items() if one >= draft.next_pointer}
        begun = max(self.next_pointer, draft.next_pointer)
        draft.settle(begun)
        self._load(draft.state())
        self._in_progress |= since
        self.next_pointer = begun

    def state(self) -> State:
        """What is to be kept."""
        return State(
            self.next_pointer, self.leased, self._read_pointer, dict(self._in_progress), list(self._invalid),
            dict(self._changed), self._forgotten, dict(self._finished),
        )  # fmt: skip

    def needs_lease(self, now: int) -> bool:
        """Whether nothing can begin before the next draft is kept."""
        return self.next_pointer > self.leased or _is_stale(self.next_pointer, now)


class Draft(Book):
    """What is to be kept next."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._fresh: set[int] = set()

    def commit(self, pointer: int, changes: Collection[int], now: int) -> None:
        """Make visible what a transaction did; again is fine.

        Raises TransactionConflict, TransactionInvalid when its time is over, TransactionFinished, UnknownTransaction.
        """
        if self._finished.get(pointer) is True:
            return
        self._check_in_progress(pointer, now)
        if changes and self._conflicts(pointer, changes):
            raise TransactionConflict(f"what transaction {pointer} changed, another has changed since it began")
        self._end(pointer)
        self._finished[pointer] = True
        self._fresh.update(changes)
        self._changed.update(dict.fromkeys(changes, self.leased + 1))

    def abort(self, pointer: int) -> None:
        """End a transaction that has undone what it did, even an invalid one; again is fine.

        Raises TransactionFinished, UnknownTransaction.
        """
        if self._finished.get(pointer) is False:
            return
        if within(self._invalid, pointer):
            self._invalid.remove(pointer)
        elif pointer in self._in_progress:
            self._end(pointer)
        else:
            self._refuse(pointer)
        self._finished[pointer] = False

    def invalidate(self, pointer: int) -> None:
        """End a transaction that nobody may ever see; again is fine. Raises TransactionFinished, UnknownTransaction."""
        if pointer in self._in_progress:
            self._end(pointer)
            insort(self._invalid, pointer)
        elif not within(self._invalid, pointer):
            self._refuse(pointer)

    def expire(self, now: int) -> None:
        """Invalidate those whose time is over."""
        for pointer in [one for one, deadline in self._in_progress.items() if deadline <= now]:
            self.invalidate(pointer)

    def prune(self, before_ms: int, now: int) -> int:
        """Forget the invalid ones that began before a time, and say how many.

        Whatever is left of their messages is then seen as committed. Raises InvalidRequest for a time in which one may
        still be publishing.
        """
        if before_ms > now - TRANSACTION_LIFE_MS:
            raise InvalidRequest(f"transactions of the last {TRANSACTION_LIFE_MS // 3_600_000} hours cannot be pruned")
        count = bisect_left(self._invalid, before_ms * POINTERS_PER_MS)
        del self._invalid[:count]
        return count

    def trim(self) -> None:
        """Forget what nobody can ask for any more, and what there is no room for."""
        oldest = min(self._in_progress, default=self.next_pointer)
        self._changed = {key: at for key, at in self._changed.items() if at > oldest}
        if len(self._changed) > CHANGED_MAX:
            rising = sorted(self._changed.items(), key=lambda one: one[1])
            self._forgotten = rising[-CHANGED_MAX - 1][1]
            self._changed = dict(rising[-CHANGED_MAX:])
        for pointer in list(self._finished)[:-FINISHED_MAX]:
            del self._finished[pointer]

    def settle(self, begun: int) -> None:
        """Whoever begins from the pointer `begun` on sees all of this."""
        self._changed |= {key: begun for key in self._fresh if key in self._changed}
        if self._forgotten > self.leased:
            self._forgotten = begun

    def _check_in_progress(self, pointer: int, now: int) -> None:
        if pointer not in self._in_progress:
            self._refuse(pointer)
        if self._in_progress[pointer] <= now:
            self.invalidate(pointer)
            self._refuse(pointer)

    def _refuse(self, pointer: int) -> None:
        """Raise what a transaction that is not in progress is refused with."""
        raise refusal(pointer, self.standing(pointer))

    def _conflicts(self, pointer: int, changes: Collection[int]) -> bool:
        return pointer < self._forgotten or any(self._changed.get(key, 0) > pointer for key in changes)

    def _end(self, pointer: int) -> None:
        del self._in_progress[pointer]
        self._read_pointer = max(self._read_pointer, pointer)


def _is_stale(pointer: int, now: int) -> bool:
    return now - began_ms(pointer) > LEASE_MS
