"""The HTTP server's door: so many connections, and none that keeps the host waiting."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
import trio.testing
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from delivery.api import connections, http11 as door
from delivery.api.connections import Connections

LARGE = 64 * 2**20
ASK = b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n"


async def _small(_: Request) -> Response:
    return PlainTextResponse("yes")


async def _large(_: Request) -> Response:
    return Response(bytes(LARGE))


def play(story: Callable[[Connections, int], Awaitable[None]], connections_max: int = 10) -> None:
    async def run() -> None:
        served = Connections(Starlette(routes=[Route("/small", _small), Route("/large", _large)]), connections_max)
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(served.serve, listeners))
                await story(served, listeners[0].socket.getsockname()[1])
                nursery.cancel_scope.cancel()

    trio.run(run)


async def _ask(port: int, path: bytes) -> trio.SocketStream:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    await stream.send_all(ASK % path)
    return stream


def test_more_connections_than_allowed_are_closed_at_once_and_there_is_room_again_afterwards() -> None:
    async def story(served: Connections, port: int) -> None:
        kept = [await _ask(port, b"small") for _ in range(2)]
        for stream in kept:
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
        assert len(served) == 2
        async with await trio.open_tcp_stream("127.0.0.1", port) as refused:
            assert await refused.receive_some() == b""
        for stream in kept:
            await stream.aclose()
        while len(served):  # noqa: ASYNC110 (nothing tells when the server has seen the end)
            await trio.sleep(0.005)
        async with await _ask(port, b"small") as stream:
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")

    play(story, connections_max=2)


def test_a_client_that_takes_nothing_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "WRITE_SECONDS", 0.1)

    async def story(served: Connections, port: int) -> None:
        async with await _ask(port, b"large") as stream:
            assert (await stream.receive_some(10)).startswith(b"HTTP/1.1 2")
            while len(served):  # noqa: ASYNC110 (the same)
                await trio.sleep(0.005)

    play(story)


@pytest.mark.parametrize("said", [b"", b"GET /small HTTP/1.1\r\nHo"], ids=["nothing", "half a head"])
def test_a_client_that_does_not_ask_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(door, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(connections, "_LOOK_SECONDS", 0.02)

    async def story(_: Connections, port: int) -> None:
        async with await _ask(port, b"small") as stream:
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
            await stream.send_all(said)
            assert await stream.receive_some() == b""

    play(story)


def test_the_server_ends_at_once_also_when_a_client_takes_nothing() -> None:
    taking_nothing = socket.socket()

    async def story(served: Connections, port: int) -> None:
        taking_nothing.connect(("127.0.0.1", port))
        taking_nothing.sendall(ASK % b"large")
        while not len(served):  # noqa: ASYNC110 (the same)
            await trio.sleep(0.005)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(served) == 1

    play(story)
    taking_nothing.close()
