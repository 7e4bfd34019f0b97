"""Polls over a log of messages, markers and rollbacks, against a model that only knows what clients did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from hypothesis import given, strategies as st

from delivery.batch import Row, encode, open_batch, peek, stamp
from delivery.ids import SEQUENCES_PER_MS
from delivery.messaging import marks
from delivery.messaging.ids import Start, TopicId, id_of, read_id
from delivery.messaging.ledger import Ledger
from delivery.messaging.polling import Given, Group, Poll
from delivery.messaging.transactions import Snapshot, Verdict
from delivery.model import Message

BEGINNING = Start(TopicId(0, 0), inclusive=True)
POINTERS = st.integers(1, 4)


class Seen(NamedTuple):
    """What a client may be given, as the model has it."""

    pointer: int | None
    rolled_back: bool
    given: Given


def is_over(poll: Poll) -> bool:
    return poll.finished


class World:
    """A log and the model of what is in it, written by the same calls."""

    def __init__(self) -> None:
        self.log: list[Message] = []
        self.seen: list[Seen] = []
        self.stored: dict[int, list[Message]] = {}
        self._bodies = count()
        self._number = 32760  # so that the sequence spills into the next millisecond on the way

    def bodies(self, number: int) -> list[bytes]:
        return [b"%d" % next(self._bodies) for _ in range(number)]

    def append(self, rows: Sequence[Row]) -> list[Message]:
        added = []
        for body, key, topic, block in rows:
            self._number += 1
            added.append(Message(self._number, body, topic, key, 0, "q", block))
        self.log += added
        return added

    def publish(self, pointer: int | None, number: int) -> marks.Rollback | None:
        added = self.append(marks.published(self.bodies(number), pointer))
        self.seen += [Seen(pointer, False, Given(id_of(one.number).pack(), one.body)) for one in added]
        return None if pointer is None else marks.Rollback(pointer, added[0].number, added[-1].number)

    def store(self, pointer: int, number: int) -> None:
        self.stored.setdefault(pointer, []).extend(self.append(marks.stored(self.bodies(number), pointer)))

    def mark(self, pointer: int, ledger: Ledger) -> marks.Rollback:
        (added,) = self.append([marks.marker(pointer, ledger.group(pointer))])
        group = self.stored.get(pointer, [])
        self.seen += [Seen(pointer, False, Given(id_of(added.number, one.number).pack(), one.body)) for one in group]
        return marks.Rollback(pointer, added.number, added.number)

    def roll_back(self, what: marks.Rollback) -> None:
        self.append([marks.rolled_back(what)])
        first, last = id_of(what.first), id_of(what.last, 2**60)
        for place, one in enumerate(self.seen):
            if one.pointer == what.pointer and first <= read_id(one.given.id) <= last:
                self.seen[place] = one._replace(rolled_back=True)

    def ledger(self) -> Ledger:
        found = Ledger()
        for message in self.log:
            found.note(message)
        return found

    def _within(self, group: Group) -> list[Message]:
        return [body for body in self.log for one in group.ranges if one.first <= body.number <= one.last]

    def poll(self, start: Start, limit: int | None = None, snapshot: Snapshot | None = None) -> list[Given]:
        poll = Poll(start, limit, snapshot, self.ledger())
        given: list[Given | None] = []
        for message in self.log:
            if message.number <= start.after or is_over(poll):
                continue
            found = poll.step(message)
            if isinstance(found, Group):
                given += [poll.body(found, body) for body in self._within(found) if not is_over(poll)]
            else:
                given.append(found)
        return [one for one in given if one is not None]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World()
    records: list[marks.Rollback] = []
    for _ in range(draw(st.integers(0, 12))):
        kind, pointer = draw(st.sampled_from(["publish", "tx", "store", "store", "mark", "roll back"])), draw(POINTERS)
        if kind == "publish":
            world.publish(None, draw(st.integers(1, 3)))
        elif kind == "tx":
            record = world.publish(pointer, draw(st.integers(1, 3)))
            assert record is not None
            records.append(record)
        elif kind == "store":
            world.store(pointer, draw(st.integers(1, 3)))
        elif kind == "mark":
            records.append(world.mark(pointer, world.ledger()))
        elif records:
            world.roll_back(draw(st.sampled_from(records)))
    return world


@given(worlds())
def test_outside_transactions_everything_is_given_that_was_made_visible_rolled_back_or_not(world: World) -> None:
    assert world.poll(BEGINNING) == [one.given for one in world.seen]
    ids = [one.given.id for one in world.seen]
    assert ids == sorted(set(ids))


@given(worlds(), st.integers(1, 4))
def test_pages_that_go_on_behind_the_last_id_give_everything_once(world: World, limit: int) -> None:
    found: list[Given] = []
    start = BEGINNING
    while page := world.poll(start, limit):
        assert len(page) <= limit
        found += page
        start = Start(read_id(page[-1].id), inclusive=False)
    assert found == [one.given for one in world.seen]


@given(worlds(), st.data())
def test_a_start_at_any_id_gives_what_is_there_and_behind(world: World, data: st.DataObject) -> None:
    if not world.seen:
        return
    place = data.draw(st.integers(0, len(world.seen) - 1))
    at = read_id(world.seen[place].given.id)
    given_ones = [one.given for one in world.seen]
    assert world.poll(Start(at, inclusive=True)) == given_ones[place:]
    assert world.poll(Start(at, inclusive=False)) == given_ones[place + 1 :]


@given(worlds(), st.sets(POINTERS), st.sets(POINTERS), st.integers(0, 4))
def test_a_transaction_takes_skips_and_stops(world: World, invalid: set[int], in_progress: set[int], read: int) -> None:
    snapshot = Snapshot(
        transaction=99, read_pointer=read, write_pointer=99, invalid=sorted(invalid), in_progress=sorted(in_progress)
    )
    expected = []
    for one in world.seen:
        if one.pointer is None:
            expected.append(one.given)
            continue
        verdict = snapshot.judge(one.pointer, rolled_back=one.rolled_back)
        if verdict is Verdict.STOP:
            break
        if verdict is Verdict.TAKE:
            expected.append(one.given)
    found = world.poll(BEGINNING, snapshot=snapshot)
    # A marker of a transaction in progress stops the reader also where nothing was stored under it.
    assert found == expected[: len(found)]
    if not any(message.topic == marks.MARKER and not message.body for message in world.log):
        assert found == expected


@given(worlds())
def test_the_ledger_forgets_what_is_below_a_number_and_nothing_else(world: World) -> None:
    numbers = [one.number for one in world.log]
    for before in numbers[:: max(1, len(numbers) // 4)]:
        ledger, fresh = world.ledger(), Ledger()
        ledger.forget(before)
        for message in world.log:
            if message.number >= before:
                fresh.note(message)
        for pointer in range(1, 5):
            assert [one.last for one in ledger.group(pointer)] == [one.last for one in fresh.group(pointer)]
            for number in numbers:
                assert ledger.is_rolled_back(pointer, number) == fresh.is_rolled_back(pointer, number)
    ledger = world.ledger()
    ledger.forget(2**60)
    assert len(ledger) == 0


def test_headers_of_other_programs_mean_no_transaction() -> None:
    from delivery.model import encode_headers

    assert marks.pointer_in(encode_headers({"hoot.tx": b"abc"})) is None
    assert marks.pointer_in(encode_headers({"other": b"12345678"})) is None
    assert marks.pointer_in(b"nonsense") is None
    assert marks.pointer_in(marks.published([b"x"], -(2**63))[0][3]) == -(2**63)


HALVES = st.tuples(st.integers(-2, 4), st.sampled_from([0, 1, 5, 32760, 32767, 32768, 65535]))
PLACES = st.builds(lambda first, second: TopicId(*first, *second), HALVES, HALVES)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([None, 5])), min_size=1, max_size=4),
    st.builds(Start, PLACES, st.booleans()),
    st.none() | st.integers(1, 9),
)
def test_a_batch_that_need_not_be_judged_gives_what_its_messages_would(
    batches: list[tuple[int, int | None]], start: Start, limit: int | None
) -> None:
    at_once, one_by_one = Poll(start, limit, None, None), Poll(start, limit, None, None)
    taken: list[Given] = []
    judged: list[Given] = []
    number = SEQUENCES_PER_MS - 3
    for size, pointer in batches:
        data = encode(marks.published([b"%d" % place for place in range(size)], pointer), 0)
        header = peek(data)
        assert header is not None
        stamped = open_batch(stamp(header, data, number, 1)[1])
        number += size + 1
        if not at_once.finished:
            taken += map(Given, *at_once.take(stamped))
        found = (one_by_one.step(one) for one in stamped.messages("q", start.after) if not is_over(one_by_one))
        judged += [one for one in found if isinstance(one, Given)]
    assert taken == judged
    assert at_once.finished == one_by_one.finished
