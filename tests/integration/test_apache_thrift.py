"""Stock Apache Thrift against the coding of `delivery.rpc`: as a client of the server, and as a listener.

Apache's compiler is not needed: apache.py writes and reads the calls by hand with its own protocol and transports.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import trio
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport.TSocket import TServerSocket
from thrift.transport.TTransport import TFramedTransport, TTransportException

from delivery.errors import NotOwner, ProtocolError
from delivery.rpc.connection import Connection
from delivery.rpc.idl import load_idl
from delivery.rpc.protocol import Call
from delivery.rpc.server import ThriftServer, open_listeners
from tests.integration.apache import SECONDS, Client, Fields, message_to, read_struct

HOST, LISTENER = load_idl("delivery"), load_idl("subscriber")
T = TypeVar("T")


# -- as a client ----------------------------------------------------------------------------------------------------


class RecordingHost:
    """Keeps the arguments of each call and gives the answers that were prepared."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.seen: list[Any] = []

    def begin(self, call: Call) -> Callable[[], Awaitable[Any]]:
        self.seen.append(call.args)

        async def answer() -> Any:
            found = self.answers[call.method]
            if isinstance(found, Exception):
                raise found
            return found

        return answer


def served(handler: RecordingHost, use: Callable[[Client], T]) -> T:
    """Run `use` with an Apache client of a server."""

    def used(port: int) -> T:
        client = Client(port)
        try:
            return use(client)
        finally:
            client.transport.close()

    async def story() -> T:
        with trio.fail_after(SECONDS):
            listeners = await open_listeners("127.0.0.1", 0)
            port = listeners[0].socket.getsockname()[1]
            async with trio.open_nursery() as nursery:
                await nursery.start(ThriftServer(listeners, "RegionHost", handler).run)
                result = await trio.to_thread.run_sync(used, port)
                nursery.cancel_scope.cancel()
        return result

    return trio.run(story)


def test_a_client_publishes_a_batch() -> None:
    host = RecordingHost(publish=HOST.PublishReply(baseId=2**61, count=3, durability="fsync", duplicate=False))
    batch = bytes(range(256)) * 1024
    fields = {1: (TType.STRING, "flights"), 2: (TType.I32, 3), 3: (TType.STRING, batch)}
    assert served(host, lambda client: client.call("publish", fields)) == {0: {1: 2**61, 2: 3, 3: b"fsync", 4: False}}
    assert host.seen == [HOST.RegionHost.publish_args(queue="flights", partition=3, batch=batch)]


def test_a_client_puts_messages_with_keys_and_headers() -> None:
    host = RecordingHost(putMessages=[5, 6])
    with_all: Fields = {
        3: (TType.STRING, "JFK"), 4: (TType.STRING, b"UA"), 5: (TType.MAP, (TType.STRING, TType.STRING, {"at": b"1"})),
        6: (TType.STRING, b"body"),
    }  # fmt: skip
    bare: Fields = {6: (TType.STRING, b"\xff")}
    fields = {1: (TType.STRING, "vols-été"), 2: (TType.LIST, (TType.STRUCT, [with_all, bare]))}
    assert served(host, lambda client: client.call("putMessages", fields)) == {0: [5, 6]}
    messages = [HOST.Message(topic="JFK", key=b"UA", headers={"at": b"1"}, body=b"body"), HOST.Message(body=b"\xff")]
    assert host.seen == [HOST.RegionHost.putMessages_args(queue="vols-été", messages=messages)]


def test_a_client_gets_messages_and_batches() -> None:
    message = HOST.Message(id=9, partition=1, topic="", key=None, headers={"a": b"b"}, body=b"body")
    reply = HOST.ReadReply(batches=bytes(1 << 20), position=4, watermark=5)
    host = RecordingHost(messageScannerGetList=[message], read=reply)

    def use(client: Client) -> list[dict[int, Any]]:
        got = client.call("messageScannerGetList", {1: (TType.I32, 1), 2: (TType.I32, 100)})
        request: Fields = {1: (TType.STRING, "q"), 2: (TType.I32, 0), 3: (TType.I64, 7)}
        return [got, client.call("read", {1: (TType.STRUCT, request)})]

    got, read = served(host, use)
    assert got == {0: [{1: 9, 2: 1, 3: b"", 5: {b"a": b"b"}, 6: b"body"}]}
    assert read == {0: {1: bytes(1 << 20), 2: 4, 3: 5}}
    assert host.seen[1].request == HOST.ReadRequest(queue="q", partition=0, after=7)


def test_a_client_reads_a_declared_error_and_a_call_without_a_result() -> None:
    host = RecordingHost(countMessages=NotOwner("over there", address="10.1.1.1:9"), messageScannerClose=None)

    def use(client: Client) -> list[dict[int, Any]]:
        failed = client.call("countMessages", {1: (TType.STRING, "q"), 2: (TType.I32, 0)})
        return [failed, client.call("messageScannerClose", {1: (TType.I32, 1)})]

    failed, closed = served(host, use)
    assert failed == {1: {1: b"not_owner", 2: b"over there", 3: True, 4: b"10.1.1.1:9"}}
    assert closed == {}


def test_a_client_that_calls_an_unknown_method_is_told_and_may_go_on() -> None:
    def use(client: Client) -> dict[int, Any]:
        with pytest.raises(TApplicationException) as caught:
            client.call("dropEverything", {1: (TType.STRING, "q")})
        assert caught.value.type == TApplicationException.UNKNOWN_METHOD
        return client.call("messageScannerClose", {1: (TType.I32, 1)})

    assert served(RecordingHost(messageScannerClose=None), use) == {}


# -- as a listener --------------------------------------------------------------------------------------------------


@contextmanager
def apache_listener(answer: Callable[[str, dict[int, Any]], Fields | None]) -> Iterator[int]:
    """A listener that serves one connection; `answer` gives a method's outcome, None for an unknown method."""
    server = TServerSocket("127.0.0.1", 0)
    server.listen()

    def serve() -> None:
        socket = server.accept()
        socket.setTimeout(SECONDS * 1000)
        transport = TFramedTransport(socket)
        protocol = TBinaryProtocol(transport, strictRead=True)
        try:
            while True:
                name, _, seqid = protocol.readMessageBegin()
                outcome = answer(name, read_struct(protocol))
                if outcome is None:
                    refusal: Fields = {1: (TType.STRING, "unknown"), 2: (TType.I32, 1)}
                    message_to(protocol, name, TMessageType.EXCEPTION, seqid, refusal)
                else:
                    message_to(protocol, name, TMessageType.REPLY, seqid, outcome)
        except TTransportException:
            transport.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.handle.getsockname()[1]
    finally:
        thread.join(SECONDS)
        server.close()
    assert not thread.is_alive()


def test_a_packed_listener_takes_pipelined_pushes() -> None:
    seen: list[Any] = []

    def answer(name: str, fields: dict[int, Any]) -> Fields:
        if name == "hello":
            return {0: (TType.STRING, f"token of {fields[2].decode()}")}
        seen.append(fields[1])
        reply: Fields = {1: (TType.I32, 0), 2: (TType.I64, fields[1][6] + len(fields[1][7])), 3: (TType.STRING, "")}
        return {0: (TType.STRUCT, reply)}

    async def story(port: int) -> None:
        answers: list[Any] = []
        done = trio.Event()

        def on_reply(reply: Any) -> None:
            answers.append(reply)
            if len(answers) == 20:
                done.set()

        connection = await Connection.open("127.0.0.1", port)
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                await nursery.start(connection.run)
                assert await connection.call("Listener", "hello", "q", "mine") == "token of mine"
                for n in range(20):
                    connection.push("q", "mine", 1, 2**60, 3, n, bytes([n]) * n * 10_000, on_reply)
                await done.wait()
                await connection.aclose()
        expected = [LISTENER.PushReply(status=LISTENER.OK, position=n + n * 10_000) for n in range(20)]
        assert answers == expected

    with apache_listener(answer) as port:
        trio.run(story, port)
    assert seen[3] == {1: b"q", 2: b"mine", 3: 1, 4: 2**60, 5: 3, 6: 3, 7: b"\3" * 30_000}


def test_a_plain_listener_takes_structs() -> None:
    seen: list[Any] = []

    def answer(name: str, fields: dict[int, Any]) -> Fields:
        seen.append((name, fields[3]))
        return {0: (TType.I32, LISTENER.FAILED)}

    async def story(port: int) -> int:
        message = LISTENER.PlainMessage(id=1, partition=2, topic="t", key=None, headers={"a": b"b"}, body=b"body")
        connection = await Connection.open("127.0.0.1", port)
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                await nursery.start(connection.run)
                status: int = await connection.call("PlainListener", "onMessages", "q", "mine", [message])
                await connection.aclose()
        return status

    with apache_listener(answer) as port:
        assert trio.run(story, port) == LISTENER.FAILED
    assert seen == [("onMessages", [{1: 1, 2: 2, 3: b"t", 5: {b"a": b"b"}, 6: b"body"}])]


def test_a_listener_of_another_service_is_a_clear_error() -> None:
    async def story(port: int) -> None:
        connection = await Connection.open("127.0.0.1", port)
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                await nursery.start(connection.run)
                with pytest.raises(ProtocolError, match="refused hello: unknown"):
                    await connection.call("Listener", "hello", "q", "mine")
                await connection.aclose()

    with apache_listener(lambda *_: None) as port:
        trio.run(story, port)
