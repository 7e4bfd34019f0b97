"""The Thrift server over loopback sockets: calls in order, replies in order, back pressure, start and stop."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from delivery.errors import (
    Fenced,
    HootError,
    NotOwner,
    PortInUse,
    ProtocolError,
    SubscriberUnreachable,
)
from delivery.rpc.blocking import BlockingConnection
from delivery.rpc.connection import Connection
from delivery.rpc.promise import Promise
from delivery.rpc.protocol import Call, decode_reply
from delivery.rpc.server import ServerLimits, ThriftServer, open_listeners
from delivery.rpc.together import together
from tests.unit.rpc_peers import (
    HELLO,
    SECONDS,
    Echo,
    connected,
    ends,
    lost,
    serving,
    until,
)

# -- calls and replies ----------------------------------------------------------------------------------------------


def test_a_call_is_answered() -> None:
    async def story() -> None:
        async with serving("Listener") as (server, port), connected(port) as connection:
            assert await connection.call("Listener", "hello", "q", "s") == "q!"
            assert (server.counters.calls, server.counters.connections) == (1, 1)
        assert server.counters.connections == 0
        assert server.counters.buffer_bytes == 0

    trio.run(story)


def test_pipelined_pushes_are_answered_in_order_and_batches_of_all_sizes_arrive_whole() -> None:
    sizes = [0, 1, 16_383, 16_384, 65_536, 300_000, 1 << 20, 5 << 20, 10] * 3

    async def story() -> None:
        answers: list[int] = []
        async with serving("Listener") as (_, port), connected(port) as connection:
            for n, size in enumerate(sizes):
                connection.push("q", "s", 1, 2, 3, n, bytes(size), lambda reply: answers.append(reply.position))
            await until(lambda: len(answers) == len(sizes))
        assert answers == [n + size for n, size in enumerate(sizes)]

    trio.run(story)


def test_calls_begin_in_order_while_earlier_ones_wait_and_replies_keep_the_order() -> None:
    async def story() -> None:
        handler = Echo()
        answers: list[str] = []
        async with serving("Listener", handler=handler) as (_, port), connected(port) as connection:
            for queue in ("held", "b", "c"):
                connection.call_soon("Listener", "hello", (queue, "s"), answers.append)
            await until(lambda: [args.queue for args in handler.begun] == ["held", "b", "c"])
            assert (answers, connection.unanswered) == ([], 3)
            handler.released.set()
            await until(lambda: answers == ["held!", "b!", "c!"])

    trio.run(story)


class Promising:
    """Promises every answer, for the test to give."""

    def __init__(self) -> None:
        self.promises: dict[str, Promise[Any]] = {}

    def begin(self, call: Call) -> Promise[Any]:
        return self.promises.setdefault(call.args.queue, Promise())


def test_promises_are_kept_in_any_order_and_replies_keep_the_order_of_the_calls() -> None:
    async def story() -> None:
        handler = Promising()
        answers: list[Any] = []
        async with serving("Listener", handler=handler) as (_, port), connected(port) as connection:
            for queue in "abcd":
                connection.call_soon("Listener", "hello", (queue, "s"), answers.append)
            await until(lambda: len(handler.promises) == 4)
            handler.promises["c"].give("third")
            handler.promises["b"].give(Fenced("second"))
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert answers == []
            handler.promises["a"].give("first")
            await until(lambda: len(answers) == 3)
            handler.promises["d"].give("fourth")
            await until(lambda: len(answers) == 4)
            assert [str(answer) for answer in answers[:2]] == ["first", str(answers[1])]
            assert isinstance(answers[1], HootError)
            assert answers[2:] == ["third", "fourth"]

    trio.run(story)


def test_replies_go_out_as_they_come_where_the_order_of_the_calls_does_not_count() -> None:
    async def story() -> None:
        handler = Promising()
        answers: list[str] = []
        limits = ServerLimits(in_order=False)
        async with serving("Listener", handler=handler, limits=limits) as (_, port), connected(port) as connection:
            for queue in "abcd":
                connection.call_soon("Listener", "hello", (queue, "s"), answers.append)
            await until(lambda: len(handler.promises) == 4)
            for number, queue in enumerate("cadb", 1):
                handler.promises[queue].give(queue)
                await until(partial(lambda number: len(answers) == number, number))
            assert answers == list("cadb")
            assert connection.unanswered == 0

    trio.run(story)


def test_promises_that_are_kept_together_are_answered_with_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = os.writev

    def writev(fd: int, parts: Sequence[bytes]) -> int:
        written.append(len(parts))
        return write(fd, parts)

    async def story() -> None:
        handler = Promising()
        answers: list[str] = []
        async with serving("Listener", handler=handler) as (_, port), connected(port) as connection:
            for queue in "abcd":
                connection.call_soon("Listener", "hello", (queue, "s"), answers.append)
            await until(lambda: len(handler.promises) == 4)
            monkeypatch.setattr(os, "writev", writev)
            with together():
                for queue in "bcad":
                    handler.promises[queue].give(queue)
                assert written == []
            await until(lambda: len(answers) == 4)
            assert answers == list("abcd")
            assert written == [4]

    trio.run(story)


def test_a_result_that_cannot_be_coded_closes_its_connection_alone_and_the_giver_does_not_hear_of_it() -> None:
    async def story() -> None:
        handler = Promising()
        async with serving("Listener", handler=handler) as (server, port), connected(port) as other:
            broken = await Connection.open("127.0.0.1", port)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lost, broken)
                broken.call_soon("Listener", "hello", ("a", "s"), lambda _: None)
                await until(lambda: "a" in handler.promises)
                handler.promises["a"].give(object())
            assert server.counters.errors == 1
            answers: list[Any] = []
            other.call_soon("Listener", "hello", ("b", "s"), answers.append)
            await until(lambda: "b" in handler.promises)
            handler.promises["b"].give("well")
            await until(lambda: answers == ["well"])

    trio.run(story)


def test_a_promise_kept_after_its_connection_is_gone_harms_nobody() -> None:
    async def story() -> None:
        handler = Promising()
        async with serving("Listener", handler=handler) as (server, port):
            async with connected(port) as connection:
                connection.call_soon("Listener", "hello", ("a", "s"), lambda _: None)
                await until(lambda: "a" in handler.promises)
            handler.promises["a"].give("too late")
            await until(lambda: server.counters.connections == 0)
            assert server.counters.errors == 0

    trio.run(story)


@pytest.mark.parametrize(
    ("limits", "taken"),
    [(ServerLimits(pipeline_max=3), 3), (ServerLimits(pipeline_bytes_max=2 * len(HELLO)), 2)],
    ids=["by calls", "by bytes"],
)
def test_a_server_reads_no_more_while_too_much_waits_for_replies(limits: ServerLimits, taken: int) -> None:
    async def story() -> None:
        handler = Echo()
        answers: list[str] = []
        async with serving("Listener", limits, handler) as (_, port), connected(port) as connection:
            for number in range(10):
                queue = "held" if number == 0 else "free"
                connection.call_soon("Listener", "hello", (queue, "s"), answers.append)
            await until(lambda: len(handler.begun) == taken)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert len(handler.begun) == taken
            handler.released.set()
            await until(lambda: len(answers) == 10)

    trio.run(story)


def test_an_error_is_an_answer_and_the_connection_goes_on() -> None:
    async def story() -> None:
        async with serving("RegionHost") as (server, port):
            await trio.to_thread.run_sync(calls, port)
            assert server.counters.errors == 0

    def calls(port: int) -> None:
        with BlockingConnection("127.0.0.1", port) as connection:
            with pytest.raises(NotOwner) as caught:
                connection.call("publish", "elsewhere", 1, b"", None)
            assert caught.value.address == "h:1"
            with pytest.raises(Fenced):
                connection.call("publish", "refused", 1, b"", None)
            assert connection.call("publish", "q", 7, b"12345", None).count == 5

    trio.run(story)


def test_an_unknown_method_is_refused_and_the_connection_goes_on() -> None:
    async def story() -> None:
        async with serving("Listener") as (_, port), connected(port) as connection:
            with pytest.raises(ProtocolError, match="no such method"):
                await connection.call("RegionHost", "getQueueLocations", "q")
            assert await connection.call("Listener", "hello", "q", "s") == "q!"

    trio.run(story)


def test_a_failing_handler_closes_its_connection_alone_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with serving("Listener") as (server, port), connected(port) as other:
            broken = await Connection.open("127.0.0.1", port)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lost, broken)
                with pytest.raises(SubscriberUnreachable):
                    await broken.call("Listener", "hello", "broken", "s")
            assert await other.call("Listener", "hello", "q", "s") == "q!"
            assert server.counters.errors == 1

    trio.run(story)
    assert "ZeroDivisionError" in caplog.text


def test_one_byte_at_a_time_is_a_call_all_the_same() -> None:
    async def story() -> None:
        async with serving("Listener") as (_, port), await trio.open_tcp_stream("127.0.0.1", port) as stream:
            for byte in HELLO:
                await stream.send_all(bytes([byte]))
            reply = await stream.receive_some()
            assert decode_reply("Listener", "hello", 1, memoryview(reply)[4:]) == "q!"

    trio.run(story)


def test_calls_before_the_end_of_the_stream_are_answered() -> None:
    async def story() -> None:
        async with serving("Listener") as (_, port), await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(HELLO * 3)
            await stream.send_eof()
            assert (await ends(stream)).count(b"q!") == 3

    trio.run(story)


# -- start and stop -------------------------------------------------------------------------------------------------


def test_a_stopping_server_answers_what_it_took_and_takes_nothing_more() -> None:
    async def story() -> None:
        handler = Echo()
        answers: list[Any] = []
        with trio.fail_after(SECONDS):
            listeners = await open_listeners("127.0.0.1", 0)
            server = ThriftServer(listeners, "Listener", handler)
            port = listeners[0].socket.getsockname()[1]
            async with trio.open_nursery() as nursery:
                await nursery.start(server.run)
                connection = await Connection.open("127.0.0.1", port)
                nursery.start_soon(lost, connection)
                connection.call_soon("Listener", "hello", ("held", "s"), answers.append)
                await until(lambda: len(handler.begun) == 1)
                server.stop_accepting()
                await trio.testing.wait_all_tasks_blocked(0.05)
                with pytest.raises(SubscriberUnreachable):
                    await Connection.open("127.0.0.1", port)
                connection.call_soon("Listener", "hello", ("late", "s"), answers.append)
                handler.released.set()
            assert answers[0] == "held!"
            assert isinstance(answers[1], SubscriberUnreachable)
            assert len(handler.begun) == 1

    trio.run(story)


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    async def story() -> None:
        async with serving("Listener") as (_, port):
            with pytest.raises(PortInUse, match=str(port)):
                await open_listeners("127.0.0.1", port)

    trio.run(story)
