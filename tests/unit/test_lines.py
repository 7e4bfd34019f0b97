"""The connection that a host shares among the subscriptions of a subscriber: nothing of one stalls another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from delivery.config import HostConfig
from delivery.dispatch.background import Background
from delivery.dispatch.lines import Lines
from delivery.dispatch.link import Link
from delivery.dispatch.target import STATUS_OK, Stream, Target
from delivery.errors import SubscriberUnreachable
from delivery.metastore.records import ListenerRecord
from delivery.rpc.connection import Connection
from delivery.rpc.promise import Promise
from delivery.rpc.protocol import Call, load_idl
from delivery.rpc.server import ThriftServer, open_listeners
from delivery.rpc.sharing import PUSH_BYTES_MAX, PUSHES_MAX
from subscriber.settings import Settings
from tests.unit.rpc_peers import until

CONFIG = HostConfig(reconnect_delay_seconds=0.01, reconnect_delay_max_seconds=0.02)
NAMES = ("stuck", "quick", "other")


class Subscriber:
    """The Listener service of a subscriber with three subscriptions, of which one answers no push."""

    def __init__(self) -> None:
        self.pushed = dict.fromkeys(NAMES, 0)
        self._reply = load_idl("subscriber").PushReply

    def begin(self, call: Call) -> Promise[Any]:
        answer: Promise[Any] = Promise()
        if call.method == "hello":
            answer.give(f"token of {call.args.queue}")
            return answer
        push = call.args.push
        self.pushed[push.queue] += 1
        if push.queue != "stuck":
            answer.give(self._reply(status=STATUS_OK, position=push.after + 1))
        return answer


class Host:
    """Links to that subscriber, over the lines of one host."""

    def __init__(self, port: int, lines: Lines, subscriber: Subscriber) -> None:
        self.subscriber, self._port, self._lines = subscriber, port, lines
        self.links: dict[str, Link] = {}

    def link(self, queue: str, token: str | None = None) -> Link:
        record = ListenerRecord(address="127.0.0.1", port=self._port, token=token or f"token of {queue}")
        self.links[queue] = link = Link(queue, "mail", record, CONFIG, self._lines)
        link.begin()
        return link


@asynccontextmanager
async def hosting(opened: list[Connection]) -> AsyncIterator[Host]:
    """Everything, ended with the block; `opened` gets the connections that the host opens."""

    async def connect(address: str, port: int) -> Connection:
        opened.append(await Connection.open(address, port))
        return opened[-1]

    subscriber, background = Subscriber(), Background()
    listeners = await open_listeners("127.0.0.1", 0)
    limits = Settings(name="mail").limits
    server = ThriftServer(listeners, "Listener", subscriber, limits, lambda: len(NAMES))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            await nursery.start(background.run)
            yield Host(listeners[0].socket.getsockname()[1], Lines(connect, background), subscriber)
            nursery.cancel_scope.cancel()


def play(story: Callable[[Host, list[Connection]], Awaitable[None]]) -> None:
    opened: list[Connection] = []

    async def run() -> None:
        async with hosting(opened) as host:
            await story(host, opened)

    trio.run(run)


async def ask(target: Target, queue: str, size: int = 100) -> Any:
    """Push, and wait for the answer."""
    answers: list[Any] = []
    answered = trio.Event()

    def on_answer(answer: Any) -> None:
        answers.append(answer)
        answered.set()

    target.push(Stream(queue, "mail", 0, 1), 1, 0, b"x" * size, on_answer)
    await answered.wait()
    return answers[0]


def test_subscriptions_at_one_address_share_a_connection_that_the_last_to_leave_closes() -> None:
    async def story(host: Host, opened: list[Connection]) -> None:
        targets = {name: await host.link(name).target() for name in NAMES}
        assert len(opened) == 1
        host.links["other"].end()
        assert (await ask(targets["quick"], "quick")).status == STATUS_OK
        with pytest.raises(SubscriberUnreachable):
            await ask(targets["other"], "other")
        for name in ("quick", "stuck"):
            host.links[name].end()
        await until(lambda: opened[0]._socket.fileno() < 0)
        await (again := host.link("quick")).target()
        assert (len(opened), again.down_since) == (2, None)

    play(story)


def test_each_subscription_proves_its_own_token_and_a_wrong_one_breaks_no_other() -> None:
    async def story(host: Host, opened: list[Connection]) -> None:
        target = await host.link("quick").target()
        wrong = host.link("other", "another program's")
        await until(lambda: bool(wrong.trouble))
        assert "is not the listener of 'mail'" in wrong.trouble
        assert (await ask(target, "quick")).status == STATUS_OK
        assert wrong.down_since is not None
        assert len(opened) == 1

    play(story)


def test_all_who_use_a_connection_notice_that_it_broke_and_share_the_next_one() -> None:
    async def story(host: Host, opened: list[Connection]) -> None:
        stuck, quick = await host.link("stuck").target(), await host.link("quick").target()
        lost: list[Any] = []
        stuck.push(Stream("stuck", "mail", 0, 1), 1, 0, b"x", lost.append)
        await until(lambda: host.subscriber.pushed["stuck"] == 1)
        opened[0]._socket.shutdown(trio.socket.SHUT_RDWR)
        await until(lambda: len(opened) == 2 and all(link.down_since is None for link in host.links.values()))
        assert [type(error) for error in lost] == [SubscriberUnreachable]
        for name, former in (("stuck", stuck), ("quick", quick)):
            assert await host.links[name].target() is not former
        assert (await ask(await host.links["quick"].target(), "quick")).status == STATUS_OK

    play(story)


@pytest.mark.parametrize(
    ("size", "most"), [(10, PUSHES_MAX), (4 << 20, PUSH_BYTES_MAX // (4 << 20))], ids=["many small", "few large"]
)
def test_what_one_subscription_does_not_answer_is_bounded_and_keeps_nothing_of_the_others_waiting(
    size: int, most: int
) -> None:
    async def story(host: Host, _: list[Connection]) -> None:
        stuck, quick = await host.link("stuck").target(), await host.link("quick").target()
        waiting: list[None] = []
        sent = 0
        while sent < most + 10:
            if stuck.ready:
                stuck.push(Stream("stuck", "mail", 0, 1), 1, sent, b"x" * size, lambda _: None)
                sent += 1
            elif sent == most:
                break
            else:
                ready = trio.Event()
                stuck.when_ready(ready.set)
                await ready.wait()
        stuck.when_ready(lambda: waiting.append(None))
        await until(lambda: host.subscriber.pushed["stuck"] == most)
        for _again in range(50):
            assert (await ask(quick, "quick", 100)).status == STATUS_OK
        assert (await ask(quick, "quick", 1 << 20)).status == STATUS_OK
        assert sent == most
        assert not stuck.ready
        assert waiting == []
        host.links["stuck"].end()
        assert waiting == [None]  # whoever waits for a listener that is gone hears of it

    play(story)


def test_who_fills_the_socket_again_waits_behind_all_others() -> None:
    async def story() -> None:
        first, second = trio.socket.socketpair()
        first.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, 4096)
        connection, order = Connection(first, "here"), list[str]()

        def pump(name: str) -> None:
            """As a sender does it that has more and more to push."""
            if connection.ready and len(order) < 7:
                order.append(name)
                connection.call_soon("Listener", "hello", (name * 100_000, "mail"), lambda _: None)
            if len(order) < 7:
                connection.when_ready(lambda: pump(name))

        async def drain() -> None:
            with suppress(OSError):  # the other end goes with bytes in its buffer
                while await second.recv(1 << 20):
                    pass

        with second, trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                await nursery.start(connection.run)
                for name in "abc":
                    pump(name)
                nursery.start_soon(drain)
                await until(lambda: len(order) == 7)
                await connection.aclose()
                nursery.cancel_scope.cancel()
        assert order == list("aabcabc")

    trio.run(story)


def test_a_listener_that_cannot_be_reached_is_tried_again_and_again_until_nobody_wants_it() -> None:
    async def story() -> None:
        attempts: list[str] = []

        async def refuse(address: str, _port: int) -> Connection:
            attempts.append(address)
            await trio.lowlevel.checkpoint()
            raise SubscriberUnreachable("nobody listens")

        background = Background()
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                await nursery.start(background.run)
                lines = Lines(refuse, background)
                record = ListenerRecord(address="a", port=1, token="t")
                links = [Link("q", name, record, msgspec.structs.replace(CONFIG), lines) for name in NAMES]
                for link in links:
                    link.begin()
                await until(lambda: len(attempts) > 3 and all(link.trouble == "nobody listens" for link in links))
                for link in links:
                    link.end()
                await trio.testing.wait_all_tasks_blocked()
                before = len(attempts)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert len(attempts) == before
                nursery.cancel_scope.cancel()

    trio.run(story)
