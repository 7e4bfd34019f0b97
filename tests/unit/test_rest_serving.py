"""Topics over real connections on a host in memory: slow clients, clients that leave, and what is no request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from delivery.api.connections import Connections
from delivery.api.http import make_app
from delivery.api.rest import routes
from delivery.api.rest.bodies import Bodies
from delivery.api.rest.routes import TopicRoutes
from delivery.api.rest.waits import Waits
from tests.hosting import Scene, eventually, play
from tests.topics import AVRO, poll_bytes, publish_bytes
from tests.unit.test_exchange import exchange, scene

NOBODY: Any = None


class Served:
    """The host, which can be talked to."""

    def __init__(self, stage: Scene, port: int, waits: Waits) -> None:
        self.stage, self.waits = stage, waits
        self._port = port

    async def say(self, data: bytes) -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", self._port)
        await stream.send_all(data)
        return stream

    async def told(self, data: bytes, until: bytes = b"") -> bytes:
        """What is answered up to some bytes, or to the end of the connection."""
        async with await self.say(data) as stream:
            return await read(stream, until)


async def read(stream: trio.SocketStream, until: bytes = b"") -> bytes:
    found = b""
    while (not until or until not in found) and (more := await stream.receive_some()):
        found += more
    return found


def post(call: str, body: bytes, *, length: int | None = None) -> bytes:
    head = f"POST /v1/namespaces/ns/topics/t/{call} HTTP/1.1\r\nHost: h\r\nContent-Type: {AVRO}\r\n"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


def tell(story: Callable[[Served], Awaitable[None]]) -> None:
    async def told(stage: Scene) -> None:
        async def refresh() -> None: ...

        topics = TopicRoutes(NOBODY, exchange(stage), NOBODY, Bodies(1 << 20), 10)
        served = Connections(topics.app(partial(make_app, stage.metrics, list, refresh), lambda _: []), 10)
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(served.serve, listeners))
            await story(Served(stage, listeners[0].socket.getsockname()[1], topics.waits))
            await eventually(lambda: len(served) == 0)
            assert len(topics.waits) == 0
            nursery.cancel_scope.cancel()

    play(told, scene())


def test_a_body_that_does_not_come_is_waited_for_so_long_and_nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BODY_SECONDS", 0.05)

    async def story(served: Served) -> None:
        answer = await served.told(post("publish", publish_bytes(b"a"), length=99))
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"the body did not come" in answer
        assert served.stage.store.groups == []

    tell(story)


def test_a_client_that_is_refused_while_it_sends_gets_the_answer_all_the_same() -> None:
    async def story(served: Served) -> None:
        async with await served.say(post("publish", bytes(1000), length=11 * 2**20)) as stream:
            assert (await read(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 413 ")
            for _ in range(100):
                await stream.send_all(bytes(1000))

    tell(story)


def test_a_poll_waits_on_its_connection_until_there_is_a_message() -> None:
    async def story(served: Served) -> None:
        async with await served.say(post("poll?wait=100", poll_bytes())) as stream:
            await eventually(lambda: len(served.waits) == 1)
            await served.told(post("publish", publish_bytes(b"news")), b"\r\n\r\n")
            assert b"\x08news\x00" in await read(stream, b"0\r\n\r\n")

    tell(story)


def test_a_client_that_leaves_ends_its_wait() -> None:
    async def story(served: Served) -> None:
        async with await served.say(post("poll?wait=100", poll_bytes())):
            await eventually(lambda: len(served.waits) == 1)
        await eventually(lambda: len(served.waits) == 0)

    tell(story)


def test_a_request_behind_a_poll_that_waits_has_its_turn_after_it() -> None:
    async def story(served: Served) -> None:
        behind = post("publish", publish_bytes(b"second"))
        async with await served.say(post("poll?wait=100", poll_bytes()) + behind) as stream:
            await eventually(lambda: len(served.waits) == 1)
            await trio.testing.wait_all_tasks_blocked()
            assert served.stage.store.groups == []
            await served.told(post("publish", publish_bytes(b"first")), b"\r\n\r\n")
            answers = await read(stream, b"content-length: 0")
            assert [answers.count(text) for text in (b"HTTP/1.1 200 ", b"first", b"second")] == [2, 1, 0]

    tell(story)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nHost: h\r\n" + b"a: b\r\n" * 20_000 + b"\r\n", b"431"),
        (b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", b"200"),
        (b"HEAD /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", b"200"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
        (
            b"POST /v1/namespaces/ns/topics/t/poll HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"400",
        ),
        (b"DELETE /v1/namespaces/ns/topics/t/poll HTTP/1.1\r\nHost: h\r\n\r\n", b"405"),
        (b"POST /v1/namespaces/ns/topics/t/poll/more HTTP/1.1\r\nHost: h\r\n\r\n", b"404"),
    ],
)
def test_requests_are_answered_and_their_connections_ended(asked: bytes, status: bytes) -> None:
    async def story(served: Served) -> None:
        answer = await served.told(asked)
        assert answer[:12] == b"HTTP/1.1 " + status
        if asked.startswith(b"HEAD"):
            assert answer.endswith(b"\r\n\r\n")

    tell(story)


def test_what_nobody_foresaw_is_answered_500_and_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(served: Served) -> None:
        monkeypatch.setattr(served.stage.ownership, "acquire", lambda *_: 1 / 0)
        assert (await served.told(post("poll", poll_bytes()))).startswith(b"HTTP/1.1 500 ")

    tell(story)


def test_a_client_that_asks_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delivery.api.http11.HEAD_SECONDS", 0.01)
    monkeypatch.setattr("delivery.api.connections._LOOK_SECONDS", 0.01)

    async def story(served: Served) -> None:
        assert await served.told(b"GET /healthz") == b""

    tell(story)
