"""Polls and reads of transactions against a model, over random histories on a partition in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import given, settings, strategies as st

from delivery.api.reading import Reading
from delivery.api.rest.administration import Topic
from delivery.api.rest.exchange import Exchange
from delivery.api.rest.requests import ConsumeRequest, Published, PublishRequest, rollback_of
from delivery.batch import headers_in, open_batch
from delivery.messaging.names import queue_settings
from delivery.messaging.transactions import Snapshot, write_snapshot
from delivery.metastore.records import QueueRecord, TopicRecord
from delivery.rpc.protocol import load_idl
from delivery.transactions.asks import Abort, Begun, Commit, Invalidate
from delivery.transactions.book import Book
from delivery.transactions.state import State
from tests.hosting import Scene, ScriptedCluster, play

TOPIC = Topic("ns", "t")
ENDS = ["commit", "abort", "invalidate"] * 2
WHAT = ["begin", "begin", "begin", *["publish"] * 5, "plain", *ENDS, "undo", "die", "move"]
STEPS, STEPS_STORING = (
    st.lists(st.tuples(st.sampled_from(what), st.integers(0, 2)), min_size=20, max_size=30)
    for what in (WHAT, [*WHAT, "store", "show", "show"])
)


class Sent(NamedTuple):
    body: bytes | None
    """None: nothing, at a place where readers may have to stop."""
    by: int
    """Its write pointer, 0 for none."""
    record: Published | None
    stored: bool = False


class History:
    """What happens, and what each reader is to see of it."""

    def __init__(self, stage: Scene) -> None:
        self.stage = stage
        self.exchange = self._exchange()
        self.book = Book(State())
        self.kept = self.book.state()
        self.states: dict[int, str] = {}
        self.views: list[tuple[Snapshot, dict[int, str]]] = []
        self.sent: list[Sent] = []
        self.hidden: dict[int, list[bytes]] = {}
        self.undone: set[Published] = set()

    def _exchange(self) -> Exchange:
        queues: Any = self.stage.cluster
        return Exchange(self.stage.publisher, self.stage.ownership, queues, lambda: self.stage.now_ms)

    async def step(self, what: str, back: int) -> None:
        going_on = [pointer for pointer, state in self.states.items() if state == "open"]
        body = str(len(self.sent) + sum(map(len, self.hidden.values()))).encode()
        if what == "begin":
            self.keep(None)
            begun = self.book.begin(60_000, self.stage.now_ms)
            assert isinstance(begun, Begun)
            self.views.append((begun.snapshot, dict(self.states)))
            self.states[begun.pointer] = "open"
        elif what == "plain":
            await self.publish([body], None)
        elif what == "die":
            self.book = Book(self.kept.taken_over(self.stage.now_ms))
        elif what == "move":
            self.exchange = self._exchange()
        elif going_on:
            await self.within(what, going_on[back % len(going_on)], body)

    async def within(self, what: str, pointer: int, body: bytes) -> None:
        if what == "publish":
            await self.publish([body, body + b"'"], pointer)
        elif what == "store":
            await self.exchange.store(TOPIC, PublishRequest(pointer, [body]))
            self.hidden.setdefault(pointer, []).append(body)
        elif what == "show":
            await self.publish([], pointer)
        elif what in ("undo", "abort"):
            for record in {one.record for one in self.sent if one.by == pointer and one.record is not None}:
                await self.exchange.rollback(TOPIC, record)
                self.undone.add(record)
        if what in ("commit", "abort", "invalidate"):
            kind = {"commit": Commit, "abort": Abort, "invalidate": Invalidate}[what]
            self.keep(kind(pointer))
            self.states[pointer] = what

    def keep(self, ask: Commit | Abort | Invalidate | None) -> None:
        draft = self.book.draft(self.stage.now_ms, begins=1)
        if isinstance(ask, Commit):
            draft.commit(ask.pointer, (), self.stage.now_ms)
        elif isinstance(ask, Abort):
            draft.abort(ask.pointer)
        elif ask is not None:
            draft.invalidate(ask.pointer)
        self.kept = draft.state()
        self.book.adopt(draft)

    async def publish(self, bodies: list[bytes], pointer: int | None) -> None:
        record = await self.exchange.publish(TOPIC, PublishRequest(pointer, bodies))
        shown: Sequence[bytes | None] = bodies or self.hidden.get(pointer or 0) or [None]
        self.sent += [Sent(body, pointer or 0, record, stored=not bodies) for body in shown]

    def seen(self, snapshot: Snapshot, states: dict[int, str], *, stored: bool) -> list[bytes]:
        found = []
        for one in self.sent:
            if one.record in self.undone or (one.stored and not stored):
                continue
            state = "commit" if one.by in (0, snapshot.transaction) else states.get(one.by, "open")
            if state == "open":
                break
            if state != "invalidate" and one.body is not None:
                found.append(one.body)
        return found

    def stop(self, snapshot: Snapshot, states: dict[int, str]) -> int | None:
        """The first number at which it stops."""
        for one in self.sent:
            own = one.by in (0, snapshot.transaction) or one.record in self.undone
            if not own and states.get(one.by, "open") == "open" and one.record is not None:
                return rollback_of(one.record).first
        return None

    async def decided(self, snapshot: Snapshot) -> int | None:
        reading, name = Reading(self.stage.ownership), TOPIC.queue
        last = await reading.decided(name, 0, 0, 0, write_snapshot(snapshot))
        return None if last == (await self.stage.ownership.acquire(name, 0)).watermark else last + 1

    async def check(self) -> None:
        views = [*self.views, (self.book.look(), dict(self.states))]
        assert await self.poll(None) == [one.body for one in self.sent if one.body is not None]
        for snapshot, states in views:
            assert await self.poll(snapshot) == self.seen(snapshot, states, stored=True)
        if not any(one.stored for one in self.sent):  # a group in progress stops polls alone
            for snapshot, states in views:
                for bytes_max in (1, 100_000):
                    found = await self.read(snapshot, bytes_max)
                    assert found == self.seen(snapshot, states, stored=False)
                assert await self.decided(snapshot) == self.stop(snapshot, states)

    async def poll(self, snapshot: Snapshot | None) -> list[bytes]:
        tx = None if snapshot is None else write_snapshot(snapshot)
        reading = await self.exchange.poll(TOPIC, ConsumeRequest(None, True, None, tx))
        return [payload async for stretch in reading.stretches() for payload in stretch.payloads]

    async def read(self, snapshot: Snapshot, bytes_max: int) -> list[bytes]:
        reading, found, after = Reading(self.stage.ownership), [], -1
        request = load_idl("delivery").ReadRequest(
            queue=TOPIC.queue, partition=0, after=0, bytesMax=bytes_max, transaction=write_snapshot(snapshot)
        )
        while request.after != after:
            after = request.after
            reply = await reading.read(request)
            for at, header in headers_in(reply.batches):
                batch = open_batch(reply.batches[at : at + header.length], header)
                found += [message.body for message in batch.messages("q", after)]
            request.after = reply.position
        return found


@settings(max_examples=50, deadline=None)
@given(st.one_of(STEPS, STEPS_STORING))
def test_everybody_reads_what_the_model_says(steps: list[tuple[str, int]]) -> None:
    async def story(stage: Scene) -> None:
        history = History(stage)
        for what, back in steps:
            stage.now_ms += 1
            await history.step(what, back)
        await history.check()
        for pointer, state in list(history.states.items()):
            if state == "open":
                await history.within("commit", pointer, b"")
        await history.check()

    record = QueueRecord("ns.t", "g1", 0, queue_settings(1000), TopicRecord(1, 1000, {}))
    play(story, Scene(ScriptedCluster(record)))
