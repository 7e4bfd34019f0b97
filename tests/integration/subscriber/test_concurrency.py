"""`subscribe(concurrency=…)`: several callbacks of a subscription at the same time, with a real host."""

from __future__ import annotations

import re
import threading

import pytest
import trio
import trio.testing

from delivery import Client, NewMessage
from delivery.errors import InvalidRequest
from subscriber import AsyncSubscriber, Message, RetryPolicy, Subscriber
from tests.integration.embedded import eventually
from tests.integration.engine import Engine
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration

SECONDS = 30.0
BEHIND = 100
"""Each a push of its own."""
KEYS = RetryPolicy(order="key", first_seconds=0.05, jitter=0)


@pytest.fixture
def address(running: Engine) -> str:
    return running.address


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^a-z0-9_]", "", request.node.name)[:100]


def test_partitions_run_side_by_side_and_one_that_hangs_keeps_none_from_its_checkpoint(
    address: str, client: Client, queue_name: str
) -> None:
    queue = client.create_queue(queue_name, partitions=3)
    go, heard = threading.Event(), list[bytes]()

    def listen(message: Message) -> None:
        if message.body == b"slow":
            go.wait(SECONDS)
        heard.append(message.body)

    def lags() -> list[int | None]:
        return [one.lag for one in client.subscription_info(queue_name, "mail").partitions]

    subscriber = Subscriber("mail", zookeeper=address)
    subscriber.subscribe(queue_name, concurrency=2, listener=listen)
    with subscriber:
        queue.put(b"slow", partition=0)
        for _ in range(BEHIND):
            queue.put(b"behind", partition=0)
        for number in range(100):
            queue.put(b"%d" % number, partition=1 + number % 2)
        eventually(lambda: len(heard) == 100, "all of the other partitions", SECONDS)
        assert b"slow" not in heard
        eventually(lambda: lags() == [BEHIND + 1, 0, 0], "their checkpoints", SECONDS)
        assert judged(client, queue_name, "mail", "handler_stuck").partition == 0
        go.set()
        eventually(lambda: heard[100:] == [b"slow"] + [b"behind"] * BEHIND, "the slow partition, in its order", SECONDS)
        odd = [one for one in heard[:100] if int(one) % 2]
        assert odd == [b"%d" % number for number in range(1, 100, 2)]


def test_keys_of_one_partition_run_side_by_side_failures_park_theirs_and_all_is_acknowledged(
    address: str, client: Client, queue_name: str
) -> None:
    queue = client.create_queue(queue_name)
    together, heard, failed = threading.Barrier(4), dict[bytes, list[bytes]](), set[bytes]()

    def listen(message: Message) -> None:
        assert message.key is not None
        if message.body == b"0":
            together.wait(SECONDS)
        if message.body == b"5" and message.key not in failed:
            failed.add(message.key)
            raise ValueError("not yet")
        heard.setdefault(message.key, []).append(message.body)

    subscriber = Subscriber("mail", zookeeper=address)
    subscriber.subscribe(queue_name, concurrency=4, retry=KEYS, listener=listen)
    with subscriber:
        for number in range(10):
            queue.put_many([NewMessage(b"%d" % number, key=key) for key in (b"a", b"b", b"c", b"d")])
        eventually(lambda: sum(map(len, heard.values())) == 40, "all", SECONDS)
        assert set(map(tuple, heard.values())) == {tuple(b"%d" % number for number in range(10))}
        eventually(lambda: client.subscription_info(queue_name, "mail").lag == 0, "acknowledged", SECONDS)
        eventually(lambda: client.parked(queue_name, "mail") == [], "and that is saved", SECONDS)


def test_async_listeners_run_as_tasks_and_stopping_waits_for_them(
    address: str, client: Client, queue_name: str
) -> None:
    queue = client.create_queue(queue_name)
    queue.put_many([NewMessage(b"x", key=b"%d" % number) for number in range(8)])
    running, most, ended = 0, 0, 0

    async def main() -> None:
        go, all_there = trio.Event(), trio.Event()

        async def listen(message: Message) -> None:
            nonlocal running, most, ended
            running += 1
            most = max(most, running)
            if running == 8:
                all_there.set()
            await go.wait()
            running -= 1
            ended += 1

        subscriber = AsyncSubscriber("mail", zookeeper=address)
        await subscriber.subscribe(queue_name, concurrency=8, start="earliest", retry=KEYS, listener=listen)
        async with trio.open_nursery() as nursery:
            await subscriber.start(nursery)
            with trio.fail_after(SECONDS):
                await all_there.wait()
            nursery.start_soon(subscriber.stop)
            await trio.testing.wait_all_tasks_blocked(0.05)
            go.set()

    trio.run(main)
    assert (most, ended) == (8, 8)
    eventually(lambda: client.subscription_info(queue_name, "mail").lag == 0, "acknowledged", SECONDS)


def test_callbacks_that_wait_become_more_by_themselves(address: str, client: Client, queue_name: str) -> None:
    queue = client.create_queue(queue_name)
    never, counting, running, most, ended = threading.Event(), threading.Lock(), 0, 0, 0

    def listen(message: Message) -> None:
        nonlocal running, most, ended
        with counting:
            running += 1
            most = max(most, running)
        never.wait(0.5 if most < 3 else 0.01)  # so long that a window of a second's work would hold two of them
        with counting:
            running -= 1
            ended += 1

    queue.put_many([NewMessage(b"x", key=b"%d" % number) for number in range(100)])
    subscriber = Subscriber("mail", zookeeper=address)
    subscriber.subscribe(queue_name, concurrency="auto", start="earliest", retry=KEYS, listener=listen)
    with subscriber:
        eventually(lambda: ended == 100, "all", SECONDS)
    assert most >= 3


@pytest.mark.parametrize("wrong", [0, -1, 257, 1.5, True, "8", None, "many"])
def test_a_concurrency_that_cannot_be_is_refused(wrong: int) -> None:
    with pytest.raises(InvalidRequest, match="concurrency"):
        Subscriber("mail").subscribe("orders", concurrency=wrong)
