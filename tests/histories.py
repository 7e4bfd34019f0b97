"""What clients of a topic do at random, in transactions and outside, and what each reader is to see of it.

The model knows only what was called and answered. The service's book, the calls of the topic's owner and the store
below them are the engine's own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from delivery.api.reading import Reading
from delivery.api.rest.administration import Topic
from delivery.api.rest.exchange import Exchange
from delivery.api.rest.requests import ConsumeRequest, Published, PublishRequest
from delivery.errors import NotOwner, UnknownQueue
from delivery.messaging.ids import TopicId, id_of, number_of, read_id
from delivery.messaging.names import queue_settings
from delivery.messaging.transactions import Snapshot, write_snapshot
from delivery.metastore.records import QueueRecord, TopicRecord
from delivery.transactions.asks import Begun
from delivery.transactions.book import Book, Draft
from delivery.transactions.errors import TransactionFinished, TransactionInvalid
from delivery.transactions.state import State
from tests.hosting import Scene
from tests.readers import pushed, scanned
from tests.writers import refusal, writers

TOPIC = Topic("ns", "t")
TTL_SECONDS = 1000
TIMEOUT_MS = 600_000
ENDS: dict[str, Callable[[Draft, int, int], None]] = {
    "commit": lambda draft, pointer, now: draft.commit(pointer, (), now),
    "abort": lambda draft, pointer, _: draft.abort(pointer),
    "invalidate": lambda draft, pointer, _: draft.invalidate(pointer),
}
_ENDING = [*ENDS, *ENDS, "undo", "late"]
_USUAL = [*["begin"] * 3, *["publish"] * 4, *["plain"] * 3, *_ENDING, "die", "move", "wait"]
STEPS, STEPS_STORING = (
    st.lists(st.tuples(st.sampled_from(what), st.integers(0, 2)), min_size=20, max_size=30)
    for what in (_USUAL, [*_USUAL, "store", "store", "show", "show", "recreate"])
)
"""Without stored bodies, and with them."""


class Look(NamedTuple):
    """A poll, relative to what there is."""

    start: str
    """`none`, `id`, `beside` an id (which need not be one), `time`."""
    at: int
    inclusive: bool
    limit: int | None


LOOKS = st.lists(
    st.builds(
        Look, st.sampled_from(["none", "id", "id", "beside", "time"]), st.integers(0, 60), st.booleans(),
        st.sampled_from([None, None, 1, 3]),
    ),
    min_size=10, max_size=14,
)  # fmt: skip
EVERYTHING = Look("none", 0, True, None)


class Sent(NamedTuple):
    """A message in the topic, in order."""

    body: bytes | None
    """None: nothing, at a place where readers may have to stop."""
    by: int
    """Its write pointer, 0 for none."""
    record: Published | None
    place: TopicId
    marker: int = 0
    """The number of what made it visible, for a body that was stored before."""


class View(NamedTuple):
    """What a transaction was told, and how all stood when it began."""

    snapshot: Snapshot
    states: dict[int, str]


class History:
    """What happens, and what each reader is to see of it."""

    def __init__(self, stage: Scene) -> None:
        self.stage = stage
        self.exchange = self._exchange()
        self.book = Book(State())
        self.kept = self.book.state()
        self.states: dict[int, str] = {}
        """`open`, or how each ended."""
        self.views: list[View] = []
        self.sent: list[Sent] = []
        self.hidden: dict[int, list[bytes]] = {}
        self.undone: set[Published] = set()
        self.former: set[Published] = set()
        """Of topics that are gone: taking these back touches nothing."""
        self._bodies = 0

    def _exchange(self) -> Exchange:
        queues: Any = self.stage.cluster
        known = writers(lambda pointer: self.book.may_write(pointer, self.stage.now_ms))
        return Exchange(self.stage.publisher, self.stage.ownership, queues, known, lambda: self.stage.now_ms)

    def _body(self) -> bytes:
        self._bodies += 1
        return b"%d" % self._bodies

    async def step(self, what: str, back: int) -> None:
        if what == "begin":
            self.keep(lambda _: None)
            begun = self.book.begin(TIMEOUT_MS, self.stage.now_ms)
            assert isinstance(begun, Begun)
            self.views.append(View(begun.snapshot, dict(self.states)))
            self.states[begun.pointer] = "open"
        elif what == "plain":
            await self.publish([self._body()], None)
        elif what == "die":
            self.book = Book(self.kept.taken_over(self.stage.now_ms))
        elif what == "move":
            self.stage.ownership.lose_all(NotOwner("another host has it"))
            self.exchange = self._exchange()
        elif what == "wait":
            self._wait()
        elif what == "recreate":
            await self._recreate()
        else:
            ended = what == "late"
            fit = [pointer for pointer, state in self.states.items() if (state != "open") is ended]
            if fit:
                await (self.late(fit[back % len(fit)]) if ended else self.within(what, fit[back % len(fit)]))

    async def within(self, what: str, pointer: int) -> None:
        """Something that a transaction does which is in progress."""
        if what == "publish":
            await self.publish([self._body(), self._body()], pointer)
        elif what == "store":
            body = self._body()
            await self.exchange.store(TOPIC, PublishRequest(pointer, [body]))
            self.hidden.setdefault(pointer, []).append(body)
        elif what == "show":
            await self.publish([], pointer)
        elif what in ("undo", "abort"):
            for record in self._records(pointer):
                await self.exchange.rollback(TOPIC, record)
                self.undone.add(record)
            for record in (one for one in self.former if one.transaction_write_pointer == pointer):
                await self.exchange.rollback(TOPIC, record)
        if what in ENDS:
            self.keep(lambda draft: ENDS[what](draft, pointer, self.stage.now_ms))
            self.states[pointer] = what

    async def late(self, pointer: int) -> None:
        """A transaction that has ended writes nothing more, and takes back only what is not committed."""
        state = self.states[pointer]
        expected = TransactionInvalid if state == "invalidate" else TransactionFinished
        for request in (PublishRequest(pointer, [b"late"]), PublishRequest(pointer, [])):
            assert await refusal(self.exchange.publish(TOPIC, request)) is expected
        assert await refusal(self.exchange.store(TOPIC, PublishRequest(pointer, [b"late"]))) is expected
        for record in self._records(pointer):
            undone = await refusal(self.exchange.rollback(TOPIC, record))
            assert undone is (TransactionFinished if state == "commit" else None)
            if undone is None:
                self.undone.add(record)

    def _records(self, pointer: int) -> set[Published]:
        return {one.record for one in self.sent if one.by == pointer and one.record is not None}

    def _wait(self) -> None:
        """Messages grow old, and the time of transactions may be over."""
        self.stage.now_ms += TTL_SECONDS * 300
        self.keep(lambda draft: draft.expire(self.stage.now_ms))
        for pointer, state in self.states.items():
            if state == "open" and self.book.standing(pointer) == "invalid":
                self.states[pointer] = "invalidate"

    async def _recreate(self) -> None:
        """The topic is deleted, and all calls are refused; made again: nothing in it is left, whatever goes on."""
        cluster = self.stage.cluster
        before = cluster.records.pop(TOPIC.queue)
        self.stage.ownership.queue_changed(before, None)
        cluster.owners.clear()
        for call in (self.exchange.publish(TOPIC, PublishRequest(None, [b"gone"])), self.poll(None)):
            assert await refusal(call) is UnknownQueue
        assert before.topic is not None
        cluster.records[TOPIC.queue] = record_of(before.topic.generation + 1)
        self.former |= {one.record for one in self.sent if one.record is not None}
        self.sent, self.hidden, self.undone = [], {}, set()

    def keep(self, decide: Callable[[Draft], None]) -> None:
        """A round of the manager."""
        draft = self.book.draft(self.stage.now_ms, begins=1)
        decide(draft)
        self.kept = draft.state()
        self.book.adopt(draft)

    async def publish(self, bodies: list[bytes], pointer: int | None) -> None:
        record = await self.exchange.publish(TOPIC, PublishRequest(pointer, bodies))
        if record is None:
            owned = await self.stage.ownership.acquire(TOPIC.queue, 0)
            first = id_of(owned.watermark - len(bodies) + 1)
        else:
            first = TopicId(record.start_timestamp, record.start_sequence_id)
        found = await self.poll(None, first.pack())
        assert [payload for _, payload in found] == (bodies or self.hidden.get(pointer or 0, []))
        marker = 0 if bodies else number_of(first.publish_ms, first.sequence)
        self.sent += [Sent(body, pointer or 0, record, place, marker) for place, body in found]
        if not found:
            self.sent.append(Sent(None, pointer or 0, record, first, marker))

    def expected(
        self, view: View | None, start: bytes | int | None, look: Look, ttl_ms: int, *, polled: bool = True
    ) -> list[bytes]:
        """What a poll is to give, by the words of the seed; others pass what a transaction shows nothing with."""
        oldest = self.stage.now_ms - ttl_ms
        place, inclusive = TopicId(max(oldest, start if isinstance(start, int) else 0), 0), True
        if isinstance(start, bytes) and read_id(start).publish_ms >= oldest:
            place, inclusive = read_id(start), look.inclusive
        found: list[bytes] = []
        for one in self.sent:
            begins = one.place > place or (inclusive and one.place == place)
            met = one.marker >= number_of(place.publish_ms, place.sequence) if one.marker else begins
            if not met:
                continue
            state = "commit" if view is None else self._state(one, view)
            if state == "open" and (polled or one.body is not None):
                break
            if begins and one.body is not None and state != "invalidate":
                found.append(one.body)
        return found[: look.limit]

    def _state(self, one: Sent, view: View) -> str:
        if one.record in self.undone:
            return "invalidate"
        return "commit" if one.by in (0, view.snapshot.transaction) else view.states.get(one.by, "open")

    async def check(self, looks: Sequence[Look] = ()) -> None:
        """Every reader sees what the model says, from wherever it begins."""
        views = [*self.views[-6:], View(self.book.look(), dict(self.states))]
        for look in (EVERYTHING, *looks):
            start = self._start(look)
            for view in (None, *views):
                expected = self.expected(view, start, look, TTL_SECONDS * 1000)
                assert [body for _, body in await self.poll(view, start, look)] == expected, (look, view)
        owned = await self.stage.ownership.acquire(TOPIC.queue, 0)
        for view in (None, *views):
            everything = self.expected(view, None, EVERYTHING, self.stage.now_ms, polled=False)
            snapshot = None if view is None else view.snapshot
            for bytes_max in (1, 100_000):
                assert await scanned(Reading(self.stage.ownership), TOPIC.queue, snapshot, bytes_max) == everything
                messages = await pushed(owned, snapshot, bytes_max)
                assert [one.body for one in messages] == everything
                for look in looks[: len(messages)]:  # and from the midst of a group as well
                    place = look.at % len(messages)
                    behind = await pushed(owned, snapshot, bytes_max, messages[place].number)
                    assert behind == messages[place + 1 :]

    def _start(self, look: Look) -> bytes | int | None:
        if look.start == "none" or not self.sent:
            return None
        place = self.sent[look.at % len(self.sent)].place
        if look.start == "time":
            return place.publish_ms + look.at % 3 - 1
        return (place if look.start == "id" else place._replace(stored_sequence=look.at)).pack()

    async def poll(
        self, view: View | None, start: bytes | int | None = None, look: Look = EVERYTHING
    ) -> list[tuple[TopicId, bytes]]:
        tx = None if view is None else write_snapshot(view.snapshot)
        reading = await self.exchange.poll(TOPIC, ConsumeRequest(start, look.inclusive, look.limit, tx))
        stretches = [stretch async for stretch in reading.stretches()]
        return [(read_id(one), body) for each in stretches for one, body in zip(each.ids, each.payloads, strict=True)]


def record_of(generation: int) -> QueueRecord:
    """The topic, with a place in the store that nothing else has."""
    topic = TopicRecord(generation, TTL_SECONDS, {})
    return QueueRecord("ns.t", f"g{secrets.token_hex(6)}", 0, queue_settings(TTL_SECONDS), topic)


async def tell(stage: Scene, steps: Sequence[tuple[str, int]], looks: Sequence[Look]) -> None:
    """A history, then every reader; and once more when all have committed."""
    history = History(stage)
    for what, back in steps:
        stage.now_ms += 1
        await history.step(what, back)
    await history.check(looks)
    for pointer, state in list(history.states.items()):
        if state == "open":
            await history.within("commit", pointer)
    await history.check(looks)
