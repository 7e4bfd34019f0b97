"""Polls that wait: what ends the wait, and that they are bounded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from starlette.requests import Request
from starlette.types import Message

from delivery.api.rest.codecs import JSON
from delivery.api.rest.polls import POLLS_MAX, Polls
from delivery.api.rest.requests import ConsumeRequest, PublishRequest
from delivery.api.rest.waits import Waits, wait_seconds
from delivery.errors import InvalidRequest, NotOwner, Throttled
from tests.hosting import Scene, eventually, play
from tests.topics import transaction
from tests.unit.test_exchange import TOPIC, TX, exchange, publish, scene

LONG = 100.0
OTHER = TX + 1


class Client:
    """Polls that wait, each by a client that can leave, and what they were answered, in the order of the answers."""

    def __init__(self, stage: Scene, waits_max: int = 10) -> None:
        self.stage, self.on = stage, exchange(stage)
        self.polls = Polls(Waits(waits_max))
        self.left = trio.Event()
        self.answers: list[bytes] = []

    async def poll(self, tx: bytes | None = None, seconds: float = LONG) -> None:
        slot = await self.polls.begin()
        try:
            reading = await self.on.poll(TOPIC, ConsumeRequest(None, True, None, tx))
            response = await self.polls.answer(slot, reading, JSON, seconds, self.receive)
        except BaseException:
            slot.give_back()
            raise
        sent = b""

        async def send(message: Message) -> None:
            nonlocal sent
            sent += message.get("body", b"")

        await response({}, self.receive, send)
        self.answers.append(sent)

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}


def tell(story: Callable[[Client, trio.Nursery], Awaitable[None]], waits_max: int = 10) -> None:
    async def told(stage: Scene) -> None:
        client = Client(stage, waits_max)
        async with trio.open_nursery() as nursery:
            await story(client, nursery)
        assert len(client.polls.waits) == 0

    play(told, scene())


async def waiting(client: Client, nursery: trio.Nursery, *, tx: bytes | None = None) -> None:
    """One more poll, which waits."""
    before = len(client.polls.waits)
    nursery.start_soon(client.poll, tx)
    await eventually(lambda: len(client.polls.waits) > before)
    await trio.testing.wait_all_tasks_blocked()


async def answered(client: Client, number: int) -> list[bytes]:
    await eventually(lambda: len(client.answers) == number)
    return client.answers


def test_all_that_wait_get_what_is_published() -> None:
    async def story(client: Client, nursery: trio.Nursery) -> None:
        for _ in range(3):
            await waiting(client, nursery)
        await publish(client.on, b"a")
        assert [b'"payload":"YQ=="' in one for one in await answered(client, 3)] == [True] * 3

    tell(story)


def test_a_poll_that_finds_something_at_once_does_not_wait() -> None:
    async def story(client: Client, nursery: trio.Nursery) -> None:
        await publish(client.on, b"a")
        await client.poll()
        assert b"YQ==" in client.answers[0]

    tell(story)


def test_what_a_poll_may_not_give_does_not_end_its_wait() -> None:
    async def story(client: Client, nursery: trio.Nursery) -> None:
        await waiting(client, nursery)
        await client.on.store(TOPIC, PublishRequest(TX, [b"stored"]))
        await trio.testing.wait_all_tasks_blocked()
        assert (client.answers, len(client.polls.waits)) == ([], 1)
        await publish(client.on, tx=TX)
        (found,) = await answered(client, 1)
        assert found.count(b"payload") == 1

    tell(story)


def test_a_transaction_in_progress_is_waited_for_until_it_is_rolled_back() -> None:
    async def story(client: Client, nursery: trio.Nursery) -> None:
        record = await publish(client.on, b"held", tx=OTHER)
        assert record is not None
        await waiting(client, nursery, tx=transaction(TX, TX - 1, in_progress=[OTHER]))
        await publish(client.on, b"behind")
        await trio.testing.wait_all_tasks_blocked()
        assert client.answers == []
        await client.on.rollback(TOPIC, record)
        (found,) = await answered(client, 1)
        assert found.count(b"payload") == 1
        assert b"YmVoaW5k" in found

    tell(story)


@pytest.mark.parametrize(
    "end",
    [
        lambda client: client.left.set(),
        lambda client: client.polls.waits.end(),
        lambda client: client.stage.ownership.lose_all(NotOwner("moved")),
    ],
    ids=["the client leaves", "the host stops", "the partition moves"],
)
def test_a_wait_ends_with_nothing_when(end: Callable[[Client], None]) -> None:
    async def story(client: Client, nursery: trio.Nursery) -> None:
        await waiting(client, nursery)
        end(client)
        assert await answered(client, 1) == [b"[]"]

    tell(story)


def test_a_wait_ends_when_its_time_is_over_and_none_begins_while_the_host_stops() -> None:
    async def story(client: Client, nursery: trio.Nursery) -> None:
        await client.poll(seconds=0.01)
        client.polls.waits.end()
        await client.poll()
        assert client.answers == [b"[]"] * 2

    tell(story)


def test_so_many_polls_wait_at_once_and_they_take_no_room_from_those_that_are_answered() -> None:
    async def story(client: Client, nursery: trio.Nursery) -> None:
        for _ in range(2):
            await waiting(client, nursery)
        with pytest.raises(Throttled):
            await client.poll()
        slots = [await client.polls.begin() for _ in range(POLLS_MAX)]
        with pytest.raises(Throttled):
            await client.polls.begin()
        await publish(client.on, b"a")
        await trio.testing.wait_all_tasks_blocked()
        assert client.answers == []
        for slot in slots:
            slot.give_back()
        assert len(await answered(client, 2)) == 2

    tell(story, waits_max=2)


@pytest.mark.parametrize(
    ("query", "seconds"), [(b"", 0), (b"other=1", 0), (b"wait=0", 0), (b"wait=300", 300), (b"wait=0.25", 0.25)]
)
def test_how_long_a_poll_waits(query: bytes, seconds: float) -> None:
    assert wait_seconds(Request({"type": "http", "query_string": query})) == seconds


@pytest.mark.parametrize("text", [b"", b"-1", b"301", b"1e2", b"nan", b"inf", b"soon", b"1.", b"%D9%A1", b"9" * 5000])
def test_waits_that_cannot_be_are_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest):
        wait_seconds(Request({"type": "http", "query_string": b"wait=" + text}))
