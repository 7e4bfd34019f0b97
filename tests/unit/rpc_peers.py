"""Peers for the tests of `delivery.rpc`: a service that echoes, connections, and bytes that no correct peer sends."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing
from thriftpy2.thrift import TType

from delivery.errors import (
    Fenced,
    NotOwner,
    SubscriberUnreachable,
)
from delivery.rpc.connection import Connection
from delivery.rpc.decoder import VALUES_MAX
from delivery.rpc.idl import load_idl
from delivery.rpc.protocol import Call, encode_call
from delivery.rpc.server import ServerLimits, ThriftServer, open_listeners

HOST, LISTENER = load_idl("delivery"), load_idl("subscriber")
SECONDS = 20.0


class Echo:
    """Answers with what was asked; the queue's name chooses what else happens."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.released = trio.Event()

    def begin(self, call: Call) -> Callable[[], Awaitable[Any]]:
        self.begun.append(call.args)
        if call.method == "push":
            return lambda: self._push(call.args.push)
        if call.args.queue == "refused":
            raise Fenced("a newer epoch")

        async def answer() -> Any:
            match call.args.queue:
                case "elsewhere":
                    raise NotOwner("go there", address="h:1")
                case "held":
                    await self.released.wait()
                case "broken":
                    raise ZeroDivisionError
            return self._result(call)

        return answer

    async def _push(self, push: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return LISTENER.PushReply(status=0, position=push.after + len(push.batches))

    def _result(self, call: Call) -> Any:
        if call.method == "publish":
            size = len(call.args.batch)
            return HOST.PublishReply(baseId=call.args.partition, count=size, durability="os", duplicate=False)
        return call.args.queue + "!"


@asynccontextmanager
async def serving(
    service: str, limits: ServerLimits | None = None, handler: Any = None
) -> AsyncIterator[tuple[ThriftServer, int]]:
    """A server on a free port, ended with the block."""
    with trio.fail_after(SECONDS):
        listeners = await open_listeners("127.0.0.1", 0)
        server = ThriftServer(listeners, service, handler or Echo(), limits)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            yield server, listeners[0].socket.getsockname()[1]
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A trio connection that receives, closed with the block."""
    connection = await Connection.open("127.0.0.1", port)
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run)
        yield connection
        await connection.aclose()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that other tasks bring about."""
    with trio.fail_after(SECONDS):
        while not condition():  # noqa: ASYNC110 (no event tells of counters)
            await trio.sleep(0.005)


async def ends(stream: trio.SocketStream) -> bytes:
    """What the server sends before it closes the connection."""
    received = b""
    with trio.fail_after(SECONDS):
        with suppress(trio.BrokenResourceError):
            while data := await stream.receive_some():
                received += data
    return received


def frame_of(service: str, method: str, seqid: int, *args: Any) -> bytes:
    return b"".join(encode_call(service, method, seqid, args)[0])


HELLO = frame_of("Listener", "hello", 1, "q", "s")


async def lost(connection: Connection) -> None:
    """Run a connection that is going to break."""
    with pytest.raises(SubscriberUnreachable):
        await connection.run()


@asynccontextmanager
async def listening(answer: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    """A peer that does `answer` with each connection."""
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1", 0)
            await nursery.start(trio.serve_listeners, answer, listeners)
            yield listeners[0].socket.getsockname()[1]
            nursery.cancel_scope.cancel()


async def silence(stream: trio.SocketStream) -> None:
    """Take nothing, answer nothing."""
    await trio.sleep_forever()


def put_messages(arguments: bytes) -> memoryview:
    """A call of putMessages with these bytes as arguments."""
    return memoryview(struct.pack(">HHi11si", 0x8001, 1, 11, b"putMessages", 1) + arguments)


def listed(field: int, element: int, count: int, rest_of_list: bytes = b"") -> bytes:
    return struct.pack(">bhbi", TType.LIST, field, element, count) + rest_of_list


MEGABYTES = 16 * 1000 * 1000
HOSTILE = {
    "a negative length": struct.pack(">bhi", TType.STRING, 1, -1),
    "a length of two gigabytes": struct.pack(">bhi", TType.STRING, 1, 2**31 - 1) + b"queue",
    "a list of two billion": listed(2, TType.STRUCT, 2**31 - 1),
    "a list of a negative count": listed(2, TType.STRUCT, -1),
    "a list of numbers where structs must be": listed(2, TType.I32, 1, bytes(4)) + b"\0",
    "16 MB of empty structs": listed(2, TType.STRUCT, MEGABYTES, bytes(MEGABYTES)) + b"\0",
    "empty structs just below the count of values": listed(2, TType.STRUCT, VALUES_MAX, bytes(VALUES_MAX)) + b"\0",
    "16 MB of unknown empty structs": listed(9, TType.STRUCT, MEGABYTES, bytes(MEGABYTES)) + b"\0",
    "16 MB of unknown fields": struct.pack(">bhb", TType.BOOL, 9, 1) * (MEGABYTES // 4) + b"\0",
    "one field 4 million times": struct.pack(">bhi", TType.STRING, 1, 0) * (MEGABYTES // 7) + b"\0",
    "lists of lists": struct.pack(">bh", TType.LIST, 9) + struct.pack(">bi", TType.LIST, 1) * 1_000_000,
    "structs in structs": struct.pack(">bh", TType.STRUCT, 9) * 1_000_000,
    "maps of maps": struct.pack(">bh", TType.MAP, 9) + struct.pack(">bbi", TType.BYTE, TType.MAP, 1) * 100_000,
    "an unknown type": struct.pack(">bh", 77, 9) + bytes(100),
    "an unknown type in a list": listed(9, 99, 1, bytes(100)) + b"\0",
    "text that is not UTF-8": struct.pack(">bhi", TType.STRING, 1, 2) + b"\xff\xfe\0",
}
