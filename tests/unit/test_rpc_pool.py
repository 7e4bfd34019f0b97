"""Connections that several threads share: what is lent, what is kept, and how many there are."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
import trio

from delivery.errors import Closed, NotOwner, Throttled
from delivery.rpc.blocking import BlockingConnection
from delivery.rpc.pool import Pool
from delivery.rpc.server import ServerLimits
from tests.unit.rpc_peers import serving, until


def test_a_pool_uses_a_connection_again_and_drops_one_that_its_host_closed() -> None:
    async def story() -> None:
        pool = Pool()
        call = lambda port: pool.call("127.0.0.1", port, "publish", "q", 3, b"x", None).baseId  # noqa: E731
        async with serving("RegionHost", ServerLimits(idle_seconds=2)) as (server, port):
            for _ in range(5):
                assert await trio.to_thread.run_sync(call, port) == 3
            assert (server.counters.connections, server.counters.calls) == (1, 5)
            await until(lambda: server.counters.connections == 0)
            assert await trio.to_thread.run_sync(call, port) == 3
            pool.close()
            await until(lambda: server.counters.connections == 0)

    trio.run(story)


def test_who_waits_for_a_host_gets_its_connection_although_others_wait_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("delivery.rpc.pool.BlockingConnection", mock.Mock())
    pool, got = Pool(connections_max=1, call_deadline=20.0), threading.Event()

    def wait_for(host: str) -> None:
        with contextlib.suppress(Throttled, Closed), pool.connection(host, 1):
            if host == "B":
                got.set()

    with contextlib.ExitStack() as lent:
        lent.enter_context(pool.connection("A", 1))
        with pool.connection("B", 1):
            waiting = [threading.Thread(target=wait_for, args=(host,)) for host in "AAAB"]
            for number, thread in enumerate(waiting, 1):
                thread.start()
                while len(pool._changed._waiters) < number:  # type: ignore[attr-defined]  # in this order
                    threading.Event().wait(0.001)
        assert got.wait(10), "it is free, and its waiter is not told"
        pool.close()
    for thread in waiting:
        thread.join(20)


def test_a_pool_keeps_a_connection_after_an_error_that_was_an_answer() -> None:
    def calls(port: int) -> None:
        pool = Pool()
        for _ in range(3):
            with pytest.raises(NotOwner):
                pool.call("127.0.0.1", port, "publish", "elsewhere", 1, b"", None)
        pool.close()

    async def story() -> None:
        async with serving("RegionHost") as (server, port):
            await trio.to_thread.run_sync(calls, port)
            assert server.counters.calls == 3
            assert server.counters.connections <= 1

    trio.run(story)


def test_a_pool_lends_no_more_than_its_limit() -> None:
    def exhaust(port: int) -> None:
        pool = Pool(connections_max=2, call_deadline=0.1)
        with (
            pool.connection("127.0.0.1", port),
            pool.connection("127.0.0.1", port),
            pytest.raises(Throttled),
            pool.connection("127.0.0.1", port),
        ):
            pass
        with pool.connection("127.0.0.1", port) as connection:
            assert connection.usable
        pool.close()

    async def story() -> None:
        async with serving("RegionHost") as (_, port):
            await trio.to_thread.run_sync(exhaust, port)

    trio.run(story)


def test_threads_that_take_turns_have_no_more_connections_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = threading.Barrier(2)
    usable = BlockingConnection.usable

    def meet(connection: BlockingConnection) -> bool:
        """Whether it is good takes a moment to see, in which the other thread looks for a connection as well."""
        with contextlib.suppress(threading.BrokenBarrierError):
            chosen.wait(0.02)
        return usable.__get__(connection)  # type: ignore[no-any-return]

    def take_turns(port: int) -> None:
        with contextlib.closing(Pool(connections_max=2)) as pool:
            monkeypatch.setattr(BlockingConnection, "usable", property(meet))
            with ThreadPoolExecutor(2) as threads:
                for _ in range(20):
                    list(threads.map(lambda _: pool.call("127.0.0.1", port, "publish", "q", 3, b"x", None), range(2)))
            assert sum(len(kept) for kept in pool._idle.values()) <= 2

    async def story() -> None:
        async with serving("RegionHost") as (server, port):
            await trio.to_thread.run_sync(take_turns, port)
            assert server.counters.calls == 40

    trio.run(story)
