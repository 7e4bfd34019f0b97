"""A defect in one delivery of a host is told and tried again: it stalls neither this one nor any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from delivery.config import HostConfig
from delivery.dispatch.background import Background
from delivery.dispatch.gate import Gate
from delivery.dispatch.lines import Lines
from delivery.dispatch.link import Link
from delivery.dispatch.plain import PlainTarget
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.errors import CorruptRecord, SubscriberUnreachable
from delivery.metastore.records import ListenerRecord
from delivery.metastore.tables.base import WatchEvent
from delivery.metastore.tables.versions import Versioned
from delivery.metastore.tables.watching import OneShots
from delivery.model import Message
from tests.dispatch import (
    SMALL,
    STREAM,
    KeptLetters,
    NoCounters,
    NotedLedger,
    Reply,
    ScriptedListener,
    ScriptedPartition,
    batch_at,
    ok,
    simulated,
)
from tests.hosting import eventually
from tests.integration.embedded import eventually as before_long

CONFIG = HostConfig(reconnect_delay_seconds=0.01, reconnect_delay_max_seconds=0.02)
RECORD = ListenerRecord(address="127.0.0.1", port=1, token="t")


class Open:
    """A connection whose listener says hello, until it is broken."""

    ready = True

    def __init__(self) -> None:
        self._broken = trio.Event()
        self.closed = False

    async def call(self, *_: object) -> str:
        await trio.lowlevel.checkpoint()
        return "t"

    def break_(self) -> None:
        self._broken.set()

    async def run(self) -> None:
        await self._broken.wait()
        raise SubscriberUnreachable("it broke")

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


def linked(story: Callable[[Lines], Awaitable[None]], connect: Callable[[str, int], Awaitable[Any]]) -> None:
    async def run() -> None:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                lines = Lines(connect, Background())
                await nursery.start(lines.background.run)
                await story(lines)
                nursery.cancel_scope.cancel()

    trio.run(run)


def test_a_connection_that_fails_in_a_way_nobody_foresaw_is_tried_again() -> None:
    failures: list[Exception] = [ZeroDivisionError("planted"), KeyError("planted")]

    async def connect(*_: object) -> Any:
        await trio.lowlevel.checkpoint()
        if failures:
            raise failures.pop()
        return Open()

    async def story(lines: Lines) -> None:
        link = Link("q", "mail", RECORD, CONFIG, lines)
        link.begin()
        await link.target()
        assert (failures, link.trouble) == ([], "")
        link.end()

    linked(story, connect)


def test_a_hello_that_fails_in_a_way_nobody_foresaw_is_said_again_and_the_trouble_told() -> None:
    failures: list[Exception] = [KeyError("planted")]

    class Odd(Open):
        async def call(self, *_: object) -> str:
            await trio.lowlevel.checkpoint()
            if failures:
                raise failures.pop()
            assert "planted" in made[0].trouble
            return "t"

    async def connect(*_: object) -> Any:
        await trio.lowlevel.checkpoint()
        return Odd()

    async def story(lines: Lines) -> None:
        made.append(link := Link("q", "mail", RECORD, CONFIG, lines))
        link.begin()
        await link.target()
        link.end()

    made: list[Link] = []
    linked(story, connect)


def test_all_who_share_a_connection_hear_of_its_end_whatever_one_of_them_does_then() -> None:
    connection: list[Open] = []
    told: list[str] = []

    async def connect(*_: object) -> Any:
        await trio.lowlevel.checkpoint()
        connection.append(Open())
        return connection[-1]

    def bad() -> None:
        told.append("bad")
        raise ZeroDivisionError("planted")

    async def story(lines: Lines) -> None:
        for tell in (bad, lambda: told.append("good")):
            await lines.take("127.0.0.1", 1, tell)
        connection[0].break_()
        await eventually(lambda: told == ["bad", "good"])

    linked(story, connect)


def test_all_who_wait_at_a_gate_hear_that_it_opened() -> None:
    async def story() -> None:
        told: list[str] = []

        def bad() -> None:
            raise ZeroDivisionError("planted")

        gate = Gate()
        gate.pause(10)
        assert not gate.is_open(bad)
        assert not gate.is_open(lambda: told.append("good"))
        async with trio.open_nursery() as nursery:
            gate.serve(nursery.start_soon)
            await trio.sleep(11)
            nursery.cancel_scope.cancel()
        assert told == ["good"]

    simulated(story)


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_run_whose_answer_could_not_be_taken_begins_anew_and_nothing_is_lost(fails_at: int) -> None:
    async def story() -> None:
        positions: list[int] = []
        delivered: list[int] = []

        def moved(position: int) -> None:
            positions.append(position)
            if len(positions) == fails_at:
                raise ZeroDivisionError("planted")

        async def take(messages: list[Message]) -> Reply:
            await trio.lowlevel.checkpoint()
            delivered.extend(message.number for message in messages)
            return ok(messages)

        listener = ScriptedListener(take)
        worker = SubscriptionWorker(
            STREAM, ScriptedPartition([batch_at(100 * i, "a") for i in (1, 2, 3)]), begin=Begin(0, 1), wanted=None,
            config=SMALL, counters=NoCounters(), ledger=NotedLedger(moved), letters=KeptLetters(),
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)
            nursery.start_soon(worker.run, listener)
            await trio.sleep(100)
            nursery.cancel_scope.cancel()
        assert sorted(set(delivered)) == [100, 200, 300]
        assert (worker.position, worker.unacknowledged) == (300, 0)

    simulated(story)


def test_a_push_to_a_plain_listener_that_cannot_be_read_is_answered_and_the_next_ones_are_made() -> None:
    async def story() -> None:
        answers: list[Any] = []
        target = PlainTarget(Open())  # type: ignore[arg-type]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(target.run)
            broken = bytearray(batch_at(100, "a"))
            broken[-1] ^= 1
            for data in (bytes(broken), b""):
                target.push(STREAM, 1, 0, data, answers.append)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert isinstance(answers[0], CorruptRecord)
        assert answers[1].position == 0

    simulated(story)


class NoHints:
    """Where the test gives the hints."""

    def __init__(self) -> None:
        self.hints: list[Callable[[], None]] = []

    def watch_value(self, _path: str, hint: Callable[[], None]) -> None:
        self.hints.append(hint)

    def unwatch(self, _path: str, hint: Callable[[], None] | None = None) -> None: ...


def test_watches_live_on_when_a_look_at_them_fails_in_a_way_nobody_foresaw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delivery.metastore.tables.watching.RETRY_SECONDS", 0.01)
    failures: list[Exception] = [ZeroDivisionError("planted")]
    told: list[WatchEvent] = []
    hints = NoHints()

    def look(keys: Any) -> Any:
        if failures:
            raise failures.pop()
        return [None for _ in keys]

    shots = OneShots(hints)
    shots.add([("key", Versioned(b"value", 1), told.append)], lambda key: key, look)  # type: ignore[arg-type]
    hints.hints[0]()
    before_long(lambda: told == [WatchEvent.DELETED], "the watcher is told")
    shots.close()
