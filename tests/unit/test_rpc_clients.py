"""The clients of `delivery.rpc`, trio and blocking: what they tell when the other end misbehaves."""

from __future__ import annotations

import struct
import threading
from typing import Any

import pytest
import trio
import trio.testing

from delivery.errors import (
    DeadlineExceeded,
    HootError,
    HostUnreachable,
    SubscriberUnreachable,
)
from delivery.rpc.blocking import BlockingConnection
from delivery.rpc.connection import Connection
from delivery.rpc.server import open_listeners
from tests.unit.rpc_peers import (
    HELLO,
    SECONDS,
    connected,
    listening,
    lost,
    serving,
    silence,
    until,
)

# -- the trio client ------------------------------------------------------------------------------------------------


def test_when_a_connection_breaks_every_call_without_a_reply_is_told() -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.aclose()

    async def story() -> None:
        answers: list[Any] = []
        async with listening(hang_up) as port, trio.open_nursery() as nursery:
            connection = await Connection.open("127.0.0.1", port)
            for _ in range(3):
                connection.push("q", "s", 1, 2, 3, 4, b"", answers.append)
            nursery.start_soon(lost, connection)
            await until(lambda: len(answers) == 3)
            with pytest.raises(SubscriberUnreachable):
                await connection.call("Listener", "hello", "q", "s")
        assert {type(answer) for answer in answers} == {SubscriberUnreachable}

    trio.run(story)


@pytest.mark.parametrize("reply", [HELLO, b"\xff" * 8, struct.pack(">i", 50_000_000)], ids=["a call", "noise", "huge"])
def test_a_peer_that_answers_nonsense_breaks_the_connection(reply: bytes) -> None:
    async def story() -> None:
        async with listening(lambda stream: stream.send_all(reply)) as port, trio.open_nursery() as nursery:
            connection = await Connection.open("127.0.0.1", port)
            nursery.start_soon(lost, connection)
            with pytest.raises(SubscriberUnreachable):
                await connection.call("Listener", "hello", "q", "s")

    trio.run(story)


def test_a_push_that_the_peer_does_not_take_is_kept_and_sent_whole_when_it_does() -> None:
    async def story() -> None:
        taking, ready = trio.Event(), trio.Event()
        received = 0

        async def late(stream: trio.SocketStream) -> None:
            nonlocal received
            await taking.wait()
            while data := await stream.receive_some(1 << 20):
                received += len(data)

        async with listening(late) as port, connected(port) as connection:
            connection.push("q", "s", 1, 2, 3, 4, bytes(15 << 20), lambda _: None)
            assert not connection.ready
            connection.when_ready(ready.set)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert not ready.is_set()
            taking.set()
            await ready.wait()
            assert connection.unanswered == 1
            await until(lambda: received > 15 << 20)

    trio.run(story)


def test_who_waits_for_a_connection_to_get_ready_is_told_of_its_end() -> None:
    """A sender may have nothing else under way on it that would fail."""

    async def story() -> None:
        told: list[Any] = []
        async with listening(silence) as port, connected(port) as connection:
            connection.push("q", "s", 1, 2, 3, 4, bytes(15 << 20), lambda _: None)
            connection.when_ready(lambda: told.append(connection.ready))
            await connection.aclose()
        assert told == [True]

    trio.run(story)


def test_a_connection_that_broke_while_it_kept_bytes_is_ready_to_say_so() -> None:
    async def story() -> None:
        async def hang_up(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            await stream.aclose()

        answers: list[Any] = []
        async with listening(hang_up) as port, trio.open_nursery() as nursery:
            connection = await Connection.open("127.0.0.1", port)
            connection.push("q", "s", 1, 2, 3, 4, bytes(15 << 20), answers.append)
            kept = not connection.ready
            nursery.start_soon(lost, connection)
            await until(lambda: len(answers) == 1)
            assert kept
            assert connection.ready
            with pytest.raises(SubscriberUnreachable):
                connection.push("q", "s", 1, 2, 3, 4, b"", answers.append)

    trio.run(story)


def test_nobody_listening_is_unreachable() -> None:
    async def story() -> int:
        [listener] = await open_listeners("127.0.0.1", 0)
        port: int = listener.socket.getsockname()[1]
        await listener.aclose()
        with pytest.raises(SubscriberUnreachable):
            await Connection.open("127.0.0.1", port)
        return port

    port = trio.run(story)
    with pytest.raises(HostUnreachable):
        BlockingConnection("127.0.0.1", port)


# -- the blocking client --------------------------------------------------------------------------------------------


def test_one_thread_sends_while_another_receives() -> None:
    calls = 500

    def publish(port: int) -> list[tuple[int, int]]:
        sent = threading.Semaphore(0)
        received: list[tuple[int, int]] = []
        with BlockingConnection("127.0.0.1", port) as connection:

            def receive() -> None:
                for _ in range(calls):
                    sent.acquire()
                    seqid, reply = connection.receive()
                    received.append((seqid, reply.count))

            thread = threading.Thread(target=receive)
            thread.start()
            for number in range(calls):
                connection.send("publish", "q", 1, bytes(number * 300), None)
                sent.release()
            thread.join(SECONDS)
        return received

    async def story() -> list[tuple[int, int]]:
        async with serving("RegionHost") as (_, port):
            return await trio.to_thread.run_sync(publish, port)

    assert trio.run(story) == [(number + 1, number * 300) for number in range(calls)]


def test_a_host_that_does_not_answer_is_a_missed_deadline_and_the_connection_is_not_used_again() -> None:
    def call(port: int) -> None:
        with BlockingConnection("127.0.0.1", port, call_deadline=0.1) as connection:
            with pytest.raises(DeadlineExceeded):
                connection.call("publish", "q", 1, b"", None)
            assert not connection.usable
            with pytest.raises(HostUnreachable):
                connection.call("publish", "q", 1, b"", None)

    async def story() -> None:
        async with listening(silence) as port:
            await trio.to_thread.run_sync(call, port)

    trio.run(story)


def test_a_host_that_takes_nothing_is_a_missed_deadline() -> None:
    def call(port: int) -> None:
        with BlockingConnection("127.0.0.1", port) as connection, pytest.raises(DeadlineExceeded):
            connection.call("publish", "q", 1, bytes(15 << 20), None, deadline=0.2)

    async def story() -> None:
        async with listening(silence) as port:
            await trio.to_thread.run_sync(call, port)

    trio.run(story)


def test_closing_wakes_a_thread_that_receives() -> None:
    def close_under_it(port: int) -> list[type]:
        errors: list[type] = []
        connection = BlockingConnection("127.0.0.1", port)
        connection.send("publish", "q", 1, b"", None)

        def receive() -> None:
            try:
                connection.receive()
            except HootError as error:
                errors.append(type(error))

        thread = threading.Thread(target=receive)
        thread.start()
        connection.close()
        thread.join(SECONDS)
        assert not thread.is_alive()
        return errors

    async def story() -> list[type]:
        async with listening(silence) as port:
            return await trio.to_thread.run_sync(close_under_it, port)

    assert trio.run(story) == [HostUnreachable]


def test_a_call_interrupted_in_the_middle_breaks_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(port: int) -> None:
        with BlockingConnection("127.0.0.1", port) as connection:
            monkeypatch.setattr(connection, "_fill", interrupt)
            with pytest.raises(KeyboardInterrupt):
                connection.call("publish", "q", 1, b"", None)
            assert not connection.usable

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    async def story() -> None:
        async with serving("RegionHost") as (_, port):
            await trio.to_thread.run_sync(interrupted, port)

    trio.run(story)
