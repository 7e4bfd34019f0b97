"""Transactions against a model: who sees what, who conflicts with whom, and what is left when the manager changes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from hypothesis import given, settings, strategies as st

from delivery.errors import InvalidRequest, Throttled
from delivery.messaging.names import TRANSACTION_LIFE_MS
from delivery.messaging.transactions import Verdict
from delivery.metastore.tables.values import VALUE_BYTES_MAX
from delivery.transactions.asks import Begun
from delivery.transactions.book import Book, Draft
from delivery.transactions.errors import (
    TransactionConflict,
    TransactionFinished,
    TransactionInvalid,
    UnknownTransaction,
)
from delivery.transactions.limits import (
    CHANGED_MAX,
    CHANGES_MAX,
    FINISHED_MAX,
    IN_PROGRESS_MAX,
    LEASE_MAX,
    LEASE_MIN,
    LEASE_MS,
    TIMEOUT_MS_MAX,
    UNFINISHED_MAX,
)
from delivery.transactions.pointers import OWN_MS, began_ms, is_own
from delivery.transactions.state import State
from tests.metastore_tables import refused

AS_SEEN = {"committed": Verdict.TAKE, "aborted": Verdict.TAKE, "invalid": Verdict.SKIP, "in_progress": Verdict.STOP}


class Op(NamedTuple):
    what: str
    back: int
    """Of the transaction: how many have begun since."""
    keys: frozenset[int]


class Round(NamedTuple):
    """A round of the manager, and what happens around it."""

    before: list[int]
    """Timeouts of transactions that begin."""
    ops: list[Op]
    during: list[int]
    """Of those that begin while the round is being kept."""
    kept: bool
    """Otherwise the manager dies, and another takes over."""
    wait_ms: int


TIMEOUTS = st.lists(st.sampled_from([1000, TIMEOUT_MS_MAX]), max_size=2)
OPS = st.builds(
    Op, st.sampled_from(["commit", "commit", "commit", "abort", "invalidate", "expire"]), st.integers(0, 3),
    st.sampled_from([frozenset({1}), frozenset({1, 2}), frozenset()]),
)  # fmt: skip
ROUNDS = st.builds(
    Round, TIMEOUTS, st.lists(OPS, max_size=3), TIMEOUTS, st.sampled_from([True, True, True, False]),
    st.sampled_from([1, 1, 1, 900, LEASE_MS + 1, TIMEOUT_MS_MAX]),
)  # fmt: skip


class Known:
    """What the model knows of one transaction."""

    def __init__(self, begun: Begun) -> None:
        self.pointer, self.deadline = begun.pointer, begun.deadline_ms
        self.state = "in_progress"
        self.rivals: set[int] = set()
        """Keys that others have committed since it began."""


class Model:
    """A book and its successors, and what is to be expected of them."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        self.book = Book(State())
        self.kept = self.book.state()
        self.known: list[Known] = []
        self.becoming: dict[int, str] = {}
        """What the round that is on its way makes of transactions."""
        self.committed: list[tuple[Known, frozenset[int]]] = []

    def play(self, one: Round) -> None:
        self.begin(one.before)
        self.becoming, self.committed = {}, []
        draft = self.book.draft(self.now, begins=2)
        for op in one.ops if self.known else []:
            known = self.known[-1 - op.back % len(self.known)]
            getattr(self, op.what)(draft, known, op.keys)
        draft.trim()
        image = draft.state()
        self.begin(one.during)
        if one.kept:
            self.book.adopt(draft)
            self.kept = image
            self.settle()
        else:
            self.take_over()
        for each in self.known:
            assert self.book.standing(each.pointer) == each.state
            is_over = each.state == "in_progress" and each.deadline <= self.now
            assert self.book.may_write(each.pointer, self.now) == ("invalid" if is_over else each.state)
        assert self.book.may_write(self.book.leased + 1, self.now) is None
        self.now += one.wait_ms

    def begin(self, timeouts: list[int]) -> None:
        for timeout in timeouts:
            if (begun := self.book.begin(timeout, self.now)) is None:
                assert self.book.needs_lease(self.now)
                continue
            assert all(begun.pointer > one.pointer for one in self.known)
            assert is_own(begun.pointer)
            assert begun.snapshot.judge(begun.pointer, rolled_back=False) is Verdict.TAKE
            for one in self.known:
                assert begun.snapshot.judge(one.pointer, rolled_back=False) is AS_SEEN[one.state]
            self.known.append(Known(begun))

    def commit(self, draft: Draft, one: Known, keys: frozenset[int]) -> None:
        outcome, state = refused(draft.commit, one.pointer, keys, self.now), self.state_of(one)
        rivals = one.rivals.union(*(changed for other, changed in self.committed if other is not one))
        if state != "in_progress":
            assert outcome is {"committed": None, "aborted": TransactionFinished, "invalid": TransactionInvalid}[state]
        elif one.deadline <= self.now:
            assert outcome is TransactionInvalid
            self.becoming[one.pointer] = "invalid"
        elif keys & rivals:
            assert outcome is TransactionConflict
        else:
            assert outcome is None
            self.becoming[one.pointer] = "committed"
            self.committed.append((one, keys))

    def abort(self, draft: Draft, one: Known, _: frozenset[int]) -> None:
        outcome = refused(draft.abort, one.pointer)
        assert outcome is (TransactionFinished if self.state_of(one) == "committed" else None)
        if outcome is None:
            self.becoming[one.pointer] = "aborted"

    def invalidate(self, draft: Draft, one: Known, _: frozenset[int]) -> None:
        outcome = refused(draft.invalidate, one.pointer)
        assert outcome is (TransactionFinished if self.state_of(one) in ("committed", "aborted") else None)
        if outcome is None:
            self.becoming[one.pointer] = "invalid"

    def expire(self, draft: Draft, _: Known, __: frozenset[int]) -> None:
        draft.expire(self.now)
        for one in self.known:
            if self.state_of(one) == "in_progress" and one.deadline <= self.now:
                self.becoming[one.pointer] = "invalid"

    def state_of(self, one: Known) -> str:
        return self.becoming.get(one.pointer, one.state)

    def settle(self) -> None:
        for one in self.known:
            one.state = self.state_of(one)
            one.rivals |= {key for other, keys in self.committed if other is not one for key in keys}

    def take_over(self) -> None:
        """What was not kept did not happen; whoever had begun goes on, for as long as any may."""
        self.book = Book(self.kept.taken_over(self.now))
        for one in self.known:
            if one.state == "in_progress":
                one.deadline = self.kept.in_progress.get(one.pointer, self.now + TIMEOUT_MS_MAX)
                suspected = {key for key, at in self.kept.changed.items() if at > one.pointer}
                assert one.rivals <= suspected
                one.rivals = suspected  # some of these it had seen, but nobody knows that any more
        self.kept = self.book.state()


@settings(max_examples=200, deadline=None)
@given(st.lists(ROUNDS, min_size=4, max_size=10))
def test_everybody_sees_what_was_committed_before_and_no_two_that_conflict_commit(rounds: list[Round]) -> None:
    model = Model()
    for one in rounds:
        model.play(one)


def begun(book: Book, now: int) -> Begun:
    """One that begins after a round."""
    book.adopt(book.draft(now, begins=1))
    found = book.begin(60_000, now)
    assert found is not None
    return found


def test_keys_that_had_to_make_room_conflict_with_all_that_had_begun_before() -> None:
    book, now = Book(State()), 1_700_000_000_000
    old = begun(book, now)
    for first in range(0, 3 * CHANGES_MAX, CHANGES_MAX):
        one = begun(book, now)
        draft = book.draft(now)
        draft.commit(one.pointer, range(first, first + CHANGES_MAX), now)
        draft.trim()
        book.adopt(draft)
    young = begun(book, now)
    draft = book.draft(now)
    assert len(draft.state().changed) == CHANGED_MAX
    assert refused(draft.commit, old.pointer, [99_999], now) is TransactionConflict
    draft.commit(old.pointer, (), now)
    draft.commit(young.pointer, [1, 99_999], now)


def test_what_is_pruned_counts_as_committed_and_only_what_is_old_can_be() -> None:
    book, now = Book(State()), 1_700_000_000_000
    one = begun(book, now)
    later = now + TRANSACTION_LIFE_MS + 2
    draft = book.draft(later)
    draft.expire(later)
    assert refused(draft.prune, now + 3, later) is InvalidRequest
    assert (draft.prune(now, later), draft.prune(now + 1, later), draft.prune(now + 1, later)) == (0, 1, 0)
    assert draft.look().judge(one.pointer, rolled_back=False) is Verdict.TAKE
    assert refused(draft.standing, one.pointer) is UnknownTransaction


def test_an_invalid_one_that_is_undone_later_is_aborted() -> None:
    book, now = Book(State()), 1_700_000_000_000
    one = begun(book, now)
    draft = book.draft(now)
    draft.invalidate(one.pointer)
    assert refused(draft.commit, one.pointer, (), now) is TransactionInvalid
    draft.abort(one.pointer)
    assert draft.look().invalid == ()
    assert draft.standing(one.pointer) == "aborted"


def test_pointers_tell_the_time_and_a_lease_is_as_large_as_it_was_used() -> None:
    book, now = Book(State()), 1_700_000_000_000
    assert book.begin(1000, now) is None
    first = begun(book, now)
    assert 0 <= now - began_ms(first.pointer) < OWN_MS
    assert book.state().leased - book.next_pointer < LEASE_MIN
    assert book.begin(1000, now + LEASE_MS + 1) is None
    later = begun(book, now + LEASE_MS + 1)
    assert 0 <= now + LEASE_MS + 1 - began_ms(later.pointer) < OWN_MS
    book.adopt(book.draft(now + LEASE_MS + 1, begins=400))
    assert all(book.begin(1000, now + LEASE_MS + 1) for _ in range(400))


def test_a_run_of_pointers_that_is_used_up_is_followed_by_one_that_nobody_else_gives_out() -> None:
    book, now = Book(State()), 1_700_000_000_000
    given: list[int] = []
    while len(given) < 3 * LEASE_MAX:
        book.adopt(book.draft(now, begins=100))
        while (one := book.begin(1000, now)) is not None:
            given.append(one.pointer)
    assert given == sorted(set(given))
    assert all(map(is_own, given))
    assert began_ms(given[-1]) - began_ms(given[0]) <= 2 * OWN_MS
    assert not any(is_own(now * 1_000_000 + number) for number in range(0, 100_000, 7))


def test_every_pointer_of_a_lease_may_have_been_given_out() -> None:
    book, now = Book(State()), 1_700_000_000_000
    draft = book.draft(now)
    kept = draft.state()
    book.adopt(draft)
    given = []
    while (one := book.begin(1000, now)) is not None:
        given.append(one.pointer)
    after = kept.taken_over(now)
    assert sorted(after.in_progress) == given
    assert after.next_pointer > given[-1]


def test_nothing_begins_out_of_a_lease_that_is_being_replaced_whatever_the_clock_does() -> None:
    book, now = Book(State()), 1_700_000_000_000
    one = begun(book, now)
    draft = book.draft(now + LEASE_MS + 1)
    assert book.begin(1000, now) is None
    book.adopt(draft)
    assert book.look().in_progress == (one.pointer,)


def test_whatever_is_known_fits_an_entry_of_the_metastore_and_more_does_not_begin() -> None:
    now, high = 1_700_000_000_000, 1_700_000_000_000_000_000
    many = State(
        high, high + 600, high, {high + number: now for number in range(IN_PROGRESS_MAX + LEASE_MAX)},
        [high - number for number in range(UNFINISHED_MAX - IN_PROGRESS_MAX, 0, -1)],
        {2**56 - number: high for number in range(1, CHANGED_MAX + 1)}, high,
        {high - 10**6 - number: False for number in range(FINISHED_MAX)},
    )  # fmt: skip
    assert len(msgspec.json.encode(many)) < VALUE_BYTES_MAX - 1000
    assert refused(Book(many).begin, 1000, now) is Throttled
    few = State(high, high + 600, high, {}, list(range(high - UNFINISHED_MAX, high)))
    assert refused(Book(few).begin, 1000, now) is Throttled
