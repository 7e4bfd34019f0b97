"""The Thrift server against peers that are too many, too slow, too large or hostile: closed; the service goes on."""

from __future__ import annotations

import resource
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from delivery.rpc.protocol import Call
from delivery.rpc.server import ServerLimits, ThriftServer
from tests.unit.rpc_peers import (
    HELLO,
    HOSTILE,
    SECONDS,
    Echo,
    connected,
    ends,
    put_messages,
    serving,
    until,
)

# -- limits ---------------------------------------------------------------------------------------------------------


def test_a_connection_over_the_cap_is_closed_at_once() -> None:
    async def story() -> None:
        async with serving("Listener", ServerLimits(connections_max=1)) as (server, port), connected(port) as first:
            assert await first.call("Listener", "hello", "q", "s") == "q!"
            async with await trio.open_tcp_stream("127.0.0.1", port) as excess:
                assert await ends(excess) == b""
            assert server.counters.connections_refused == 1
            assert await first.call("Listener", "hello", "q", "s") == "q!"

    trio.run(story)


@pytest.mark.parametrize(
    ("limits", "sent", "errors"),
    [
        (ServerLimits(frame_seconds=0.1), HELLO[:-1], 1),
        (ServerLimits(frame_seconds=0.1), b"\0", 1),
        (ServerLimits(idle_seconds=0.1), b"", 0),
        (ServerLimits(idle_seconds=0.1), HELLO, 0),
    ],
    ids=["inside a frame", "inside a length", "nothing sent", "idle after a call"],
)
def test_a_silent_peer_is_closed(limits: ServerLimits, sent: bytes, errors: int) -> None:
    async def story() -> None:
        async with serving("Listener", limits) as (server, port):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(sent)
                await ends(stream)
            await until(lambda: server.counters.connections == 0)
            assert server.counters.errors == errors

    trio.run(story)


def test_a_peer_that_trickles_bytes_does_not_extend_its_deadline() -> None:
    async def story() -> None:
        async with serving("Listener", ServerLimits(frame_seconds=0.3)) as (server, port):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                began = trio.current_time()
                await stream.send_all(struct.pack(">i", 1000))
                with suppress(trio.BrokenResourceError):
                    while True:
                        await stream.send_all(b"\0")
                        await trio.sleep(0.02)
                assert trio.current_time() - began < 5
            assert server.counters.errors == 1

    trio.run(story)


def test_a_connection_that_waits_for_its_reply_is_not_idle() -> None:
    async def story() -> None:
        handler = Echo()
        limits = ServerLimits(idle_seconds=0.5)
        async with (
            serving("Listener", limits, handler) as (_, port), connected(port) as connection,
            trio.open_nursery() as nursery,
        ):  # fmt: skip
            nursery.start_soon(release_later, handler)
            assert await connection.call("Listener", "hello", "held", "s") == "held!"

    async def release_later(handler: Echo) -> None:
        await trio.sleep(1.5)
        handler.released.set()

    trio.run(story)


def test_a_peer_that_takes_no_replies_is_closed() -> None:
    class Big:
        def begin(self, call: Call) -> Callable[[], Awaitable[Any]]:
            async def answer() -> str:
                return "x" * (8 << 20)

            return answer

    async def story() -> None:
        async with (
            serving("Listener", ServerLimits(write_seconds=0.2), Big()) as (server, port),
            await trio.open_tcp_stream("127.0.0.1", port) as stream,
        ):
            await stream.send_all(HELLO * 3)
            await until(lambda: server.counters.connections == 0 and server.counters.errors == 1)

    trio.run(story)


def test_connections_that_need_more_buffer_than_there_is_are_closed() -> None:
    async def story() -> None:
        async with serving("Listener", ServerLimits(buffer_bytes_max=1 << 20)) as (server, port):
            async with connected(port) as small, await trio.open_tcp_stream("127.0.0.1", port) as large:
                with pytest.raises(trio.BrokenResourceError):
                    await large.send_all(struct.pack(">i", 8 << 20) + bytes(8 << 20))
                assert await small.call("Listener", "hello", "q", "s") == "q!"
            assert server.counters.errors == 1

    trio.run(story)


# -- hostile peers --------------------------------------------------------------------------------------------------

FRAMES = {
    "a negative length": struct.pack(">i", -1),
    "a length of two gigabytes": struct.pack(">i", 2**31 - 1) + b"more",
    "an empty frame": struct.pack(">i", 0),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": bytes.fromhex("16030100f8010000f4"),
    "the old protocol without a version": struct.pack(">ii4s", 16, 4, b"read") + bytes(12),
    "a reply": struct.pack(">iHHi", 13, 0x8001, 2, 0) + bytes(5),
    "random bytes": struct.pack(">i", 64) + bytes(range(100, 164)),
} | {name: struct.pack(">i", len(put_messages(made))) + put_messages(made) for name, made in HOSTILE.items()}


def closed_for_cause(server: ThriftServer, times: int) -> bool:
    return server.counters.errors == times


def test_hostile_frames_close_their_connection_and_the_service_goes_on() -> None:
    """Memory stays bounded, too: the peak of the process grows by a few frames, not by what the frames promise."""

    async def story() -> None:
        async with serving("RegionHost") as (server, port), connected(port) as other:
            for number, (name, frame) in enumerate(FRAMES.items(), 1):
                async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                    with trio.move_on_after(SECONDS):
                        with suppress(trio.BrokenResourceError):
                            await stream.send_all(frame)
                    assert await ends(stream) == b"", name
                await until(partial(closed_for_cause, server, number))
                reply = await other.call("RegionHost", "publish", "q", 1, b"still here", None)
                assert reply.count == 10

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trio.run(story)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 * 1024  # in KiB
