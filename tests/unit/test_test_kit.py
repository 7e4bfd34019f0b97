"""The engine of the test kit: time, threads, what its claims say, and what an application may do in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import trio

from delivery import wall
from delivery.client import aio
from delivery.errors import Closed, InvalidRequest, UnknownQueue, UnknownSubscription
from delivery.testing import Engine, Restless
from delivery.testing.loop import StillLoop
from subscriber import Event, Message, Retry, RetryPolicy, Subscriber

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def hoot() -> Iterator[Engine]:
    with Engine(START) as engine:
        yield engine


def started(hoot: Engine, listener: object, **options: object) -> Subscriber:
    subscriber = hoot.subscriber("mail")
    subscriber.subscribe("orders", listener=listener, **{"start": "earliest", **options})  # type: ignore[arg-type]
    subscriber.start()
    return subscriber


def ignore(message: Message) -> None: ...


def failing(message: Message) -> None:
    raise ValueError("no")


def test_nothing_is_left_of_an_engine() -> None:
    before, clock = threading.active_count(), wall.use(wall.seconds)
    wall.use(clock)
    with Engine() as engine:
        queue = engine.connect().create_queue("orders")
        subscriber = started(engine, ignore)
        with queue.publisher() as publisher:
            publisher.put(b"x")
        engine.settle()
    engine.close()
    assert threading.active_count() <= before  # threads of earlier tests may have ended meanwhile
    assert wall.use(clock) is clock
    assert subscriber.subscriptions["orders"].state == "stopped"
    with pytest.raises(Closed):
        queue.put(b"x")
    with pytest.raises(InvalidRequest, match="closed"):
        engine.settle()


def test_time_stands_still_until_it_is_moved(hoot: Engine) -> None:
    queue = hoot.connect().create_queue("orders")
    assert hoot.now == START
    assert queue.put(b"x").id.time == START
    hoot.advance(3600)
    assert hoot.now == START + timedelta(hours=1)
    assert queue.put(b"y").id.time == hoot.now
    with pytest.raises(InvalidRequest, match="forward"):
        hoot.advance(-1)


def test_pauses_are_as_long_as_the_policy_says_to_the_moment(hoot: Engine) -> None:
    hoot.connect().create_queue("orders").put(b"x")
    started(hoot, failing, retry=RetryPolicy(first_seconds=10, factor=2, jitter=0.5))
    hoot.advance(10 + 20 + 40 - 0.001)
    assert [one.at for one in hoot.retried("orders", "mail")] == [0, 10, 30]
    hoot.advance(0.001)
    assert [one.attempt for one in hoot.retried("orders", "mail")] == [1, 2, 3, 4]


def test_the_same_happens_in_the_same_order_each_time() -> None:
    def play() -> list[tuple[bytes, str, float]]:
        with Engine(START) as engine:
            queue = engine.connect().create_queue("orders", partitions=8)
            failed: set[bytes] = set()

            def now_and_then(message: Message) -> None:
                if message.number % 3 == 0 and message.body not in failed:
                    failed.add(message.body)
                    raise ValueError

            started(engine, now_and_then, retry=RetryPolicy(order="key"))
            for number in range(40):
                queue.put(b"%d" % number, key=None if number % 2 else b"%d" % (number % 7))
            engine.advance(60)
            return [(one.message.body, one.what, one.at) for one in engine.happened("orders", "mail")]

    first = play()
    assert len(first) > 40
    assert play() == first


def test_messages_of_several_partitions_come_in_the_order_of_their_ids(hoot: Engine) -> None:
    queue = hoot.connect().create_queue("orders", partitions=8)
    for partition in (5, 2, 7, 0, 6, 1, 4, 3):
        hoot.advance(0.001)
        queue.put(b"%d" % partition, partition=partition)
    started(hoot, ignore)
    hoot.settle()
    hoot.assert_delivered("orders", "mail", [b"5", b"2", b"7", b"0", b"6", b"1", b"4", b"3"])


def test_a_turn_of_the_loop_ends_when_nothing_is_left_to_do() -> None:
    loop, seen = StillLoop(), list[int]()

    async def tell_oneself(times: int) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(times)
        if times:
            loop.post(lambda: loop.start(lambda: tell_oneself(times - 1)))

    loop.start(lambda: tell_oneself(5))
    loop.turn()
    loop.close()
    assert seen == [5, 4, 3, 2, 1, 0]


def test_an_async_listener_that_blocks_the_loop_is_told(hoot: Engine) -> None:
    client = hoot.connect()
    client.create_queue("orders").put(b"x")
    client.create_queue("more").put(b"y")
    subscriber = hoot.subscriber("mail")

    async def further(message: Message) -> None:
        if message.queue == "orders":
            client.queue("more").put(b"z")
            subscriber.subscribe("more", start="earliest", listener=ignore)

    async def in_a_thread(message: Message) -> None:
        await trio.to_thread.run_sync(client.queue("more").put, b"w")

    orders = subscriber.subscribe("orders", start="earliest", listener=further)
    orders.listener(in_a_thread)
    subscriber.start()
    hoot.settle()
    [failed] = hoot.retried("orders", "mail")
    assert "this call blocks" in failed.error
    orders.listeners = orders.listeners[1:]
    hoot.advance(10)
    assert [message.body for message in client.queue("more").scanner()] == [b"y", b"z", b"w"]


def test_listeners_are_called_on_the_thread_of_the_test(hoot: Engine) -> None:
    queue = hoot.connect().create_queue("orders")
    threads: list[threading.Thread] = []
    subscriber = started(hoot, lambda _: threads.append(threading.current_thread()))
    queue.put(b"x")
    assert threads == [], "nothing is delivered but by settle and advance"
    hoot.settle()
    assert threads == [threading.current_thread()]
    subscriber.stop()
    queue.put(b"y")
    hoot.settle()
    assert len(threads) == 1


def test_an_async_listener_that_sleeps_takes_virtual_time(hoot: Engine) -> None:
    hoot.connect().create_queue("orders").put_many([b"x", b"y"])

    async def slow(message: Message) -> None:
        await trio.sleep(30)
        await trio.to_thread.run_sync(int)

    started(hoot, slow)
    hoot.settle()
    assert hoot.now == START + timedelta(minutes=1)
    hoot.assert_delivered("orders", "mail", [b"x", b"y"])


def test_an_async_listener_that_waits_for_nothing_fails_at_once(hoot: Engine) -> None:
    hoot.connect().create_queue("orders").put(b"x")

    async def lost(message: Message) -> None:
        await trio.Event().wait()

    subscriber = started(hoot, lost)
    events: list[Event] = []
    subscriber.on_event(events.append)
    hoot.settle()
    assert hoot.waiting("orders", "mail") == 1
    assert "nothing brings" in str(events[-1].error)


def test_what_has_no_end_is_said_to_have_none(hoot: Engine) -> None:
    hoot.connect().create_queue("orders").put(b"x")
    started(hoot, lambda _: Retry(after=0))
    with pytest.raises(Restless, match="nothing ever settles"):
        hoot.settle()


def test_a_claim_that_fails_says_what_happened(hoot: Engine) -> None:
    hoot.connect().create_queue("orders").put(b"x", key=b"k")
    for queue, expected in (("orders", [b"x"]), ("orders", []), ("ordres", [])):
        with pytest.raises((UnknownSubscription, UnknownQueue), match=r"was it started|no queue 'ordres'"):
            hoot.assert_delivered(queue, "mail", expected)
    started(hoot, failing)
    with pytest.raises(AssertionError, match="nothing was delivered"):
        hoot.assert_delivered("orders", "mail", [b"x"])
    hoot.settle()
    claims: list[Callable[[], None]] = [
        lambda: hoot.assert_delivered("orders", "mail", [b"x"]),
        lambda: hoot.assert_dead_lettered("orders", "mail", [b"x"]),
        lambda: hoot.assert_retried("orders", "mail", b"x", times=2),
        lambda: hoot.assert_retried("orders", "mail", b"y"),
        lambda: hoot.assert_idle("orders", "mail"),
    ]
    for claim in claims:
        with pytest.raises(AssertionError, match=r"key b'k' b'x'  attempt 1 raised: ValueError: no"):
            claim()
    hoot.assert_retried("orders", "mail", b"x")


def test_the_reason_of_a_dead_letter_can_be_claimed(hoot: Engine) -> None:
    hoot.connect().create_queue("orders").put(b"x")
    started(hoot, failing, retry=RetryPolicy(deliveries_max=1))
    hoot.settle()
    hoot.assert_dead_lettered("orders", "mail", [b"x"], reason="ValueError: no")
    with pytest.raises(AssertionError, match="not 'rejected'"):
        hoot.assert_dead_lettered("orders", "mail", [b"x"], reason="rejected")
    hoot.assert_idle("orders", "mail")


def test_threads_of_the_application_may_publish(hoot: Engine) -> None:
    queue = hoot.connect().create_queue("orders")
    done: list[bytes] = []
    with ThreadPoolExecutor(4) as pool:

        def fan_out(message: Message) -> None:
            done.append(message.body)
            if message.body == b"begin":
                for receipt in [pool.submit(queue.put, b"%d" % number) for number in range(8)]:
                    receipt.result(20)

        started(hoot, fan_out)
        pool.submit(queue.put, b"begin").result(20)
        hoot.settle()
    assert sorted(done) == [*(b"%d" % number for number in range(8)), b"begin"]


def test_a_program_with_a_loop_of_its_own_can_use_the_client(hoot: Engine) -> None:
    async def program() -> None:
        async with aio.AsyncClient(hoot.connect()) as client:
            queue = await client.create_queue("orders")
            await queue.put(b"x")

    trio.run(program)
    started(hoot, ignore)
    hoot.settle()
    hoot.assert_delivered("orders", "mail", [b"x"])


def test_a_subscriber_that_a_module_made_runs_here_and_is_given_back() -> None:
    made = Subscriber("mail", zookeeper="nowhere:1")
    got: list[bytes] = []
    made.subscribe("orders", start="earliest", listener=lambda message: got.append(message.body))
    for _ in range(2):
        with Engine() as engine:
            engine.connect().create_queue("orders").put(b"x")
            engine.adopt(made).run()
            engine.assert_delivered("orders", "mail", [b"x"])
        assert type(made) is Subscriber
        assert made.subscriptions["orders"].state == "new"
    assert got == [b"x", b"x"]


def test_a_listener_may_stop_its_subscriber_but_not_move_time(hoot: Engine) -> None:
    queue = hoot.connect().create_queue("orders")
    queue.put_many([b"x", b"y"])
    subscriber = hoot.subscriber("mail")
    refused: list[InvalidRequest] = []

    def stop(message: Message) -> None:
        with pytest.raises(InvalidRequest) as caught:
            hoot.advance(1)
        refused.append(caught.value)
        subscriber.stop()

    subscriber.subscribe("orders", start="earliest", listener=stop)
    subscriber.run()
    assert len(refused) == 2, "the push under way is ended"
    assert subscriber.subscriptions["orders"].state == "stopped"
    hoot.assert_idle("orders", "mail")


def test_what_is_no_exception_ends_the_subscriber(hoot: Engine) -> None:
    hoot.connect().create_queue("orders").put(b"x")
    subscriber = hoot.subscriber("mail")

    def leave(message: Message) -> None:
        raise SystemExit(3)

    subscriber.subscribe("orders", start="earliest", listener=leave)
    with pytest.raises(SystemExit):
        subscriber.run()


def test_a_scanner_does_not_wait_for_what_nobody_brings(hoot: Engine) -> None:
    queue = hoot.connect().create_queue("orders")
    for scan in (queue.scanner, lambda **options: queue.partition_scanner(0, **options)):
        with pytest.raises(InvalidRequest, match="follow"):
            scan(follow=True)


def test_transactions_are_refused_rather_than_pretended(hoot: Engine) -> None:
    client = hoot.connect()
    queue = client.create_queue("orders")
    for refused in (client.transaction, lambda: client.transactions, lambda: queue.scanner(isolation="committed")):
        with pytest.raises(InvalidRequest, match="transactions"):
            refused()
