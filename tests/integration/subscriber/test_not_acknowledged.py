"""What nobody acknowledges in time, what is given back, and callbacks that outstay their limit, with a real host."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from random import Random

import pytest

from delivery import Client, MessageId, NewMessage, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.metastore.catalog import open_catalog
from delivery.metastore.policy import Order
from delivery.metastore.zookeeper import ZooKeeperClient
from subscriber import Event, ManualMessage, Message, RetryPolicy, Subscriber
from tests.integration.by_hand import Orders
from tests.integration.embedded import NEVER, eventually
from tests.integration.engine import Engine, SubscriberProcess, hosted
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration

SECONDS = 30.0
LIMIT = 0.4


@pytest.fixture
def address(running: Engine) -> str:
    return running.address


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^a-z0-9_]", "", request.node.name)[-60:]


def policy(order: Order, **more: float) -> RetryPolicy:
    return RetryPolicy(order=order, first_seconds=0.1, jitter=0, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("more", [{}, {"concurrency": 2}])
@pytest.mark.parametrize("order", ["partition", "key"])
def test_what_is_not_acknowledged_in_time_comes_again_and_becomes_a_dead_letter_in_the_end(
    address: str, client: Client, queue_name: str, order: Order, more: dict[str, int]
) -> None:
    queue, got, events = client.create_queue(queue_name), list[ManualMessage](), list[Event]()

    def listen(message: ManualMessage) -> None:
        got.append(message)
        if message.body != b"forgotten":
            assert message.ack()

    subscriber = Subscriber("mail", zookeeper=address)
    subscriber.on_event(events.append)
    retry = policy(order, ack_timeout_seconds=LIMIT, deliveries_max=2)
    subscriber.subscribe(queue_name, manual=True, retry=retry, listener=listen, start="earliest", **more)  # type: ignore[arg-type]
    with subscriber:
        queue.put_many([NewMessage(body, key=b"k") for body in (b"0", b"forgotten", b"2")])
        eventually(lambda: client.dead_letters(queue_name, "mail").letters() != [], "given up", SECONDS)
        eventually(lambda: client.subscription_info(queue_name, "mail").lag == 0, "all else is done", SECONDS)
        [letter] = client.dead_letters(queue_name, "mail").letters()
        assert (letter.stored.body, letter.told("reason")) == (b"forgotten", "failed 2 times")
        assert letter.told("first-error") == f"TimeoutError: it was not acknowledged within {LIMIT:g} s"
        [found] = client.explain(queue_name, "mail", MessageId.parse(letter.told("id")))
        assert [one.id for one in found.dead_letters] == [letter.id]
        forgotten = [one for one in got if one.body == b"forgotten"]
        assert len(forgotten) == 2
        assert [one.ack() for one in forgotten] == [False, False], "too late"
        assert [one.body for one in got if one.body == b"2"] == [b"2"], "what was acknowledged does not come again"
        assert {type(one.error) for one in events if one.kind == "failed"} == {TimeoutError}


def test_a_callback_that_runs_and_an_extension_prolong_the_limit(address: str, client: Client, queue_name: str) -> None:
    queue, got, ends = client.create_queue(queue_name), list[ManualMessage](), threading.Event()

    def listen(message: ManualMessage) -> None:
        got.append(message)
        if message.body == b"slow":
            assert ends.wait(SECONDS)
        assert message.extend(SECONDS)

    subscriber = Subscriber("mail", zookeeper=address)
    retry = policy("partition", ack_timeout_seconds=LIMIT)
    subscriber.subscribe(queue_name, manual=True, retry=retry, listener=listen)
    with subscriber:
        queue.put_many([NewMessage(b"quick"), NewMessage(b"slow")])
        eventually(lambda: len(got) == 2, "both", SECONDS)
        NEVER.wait(3 * LIMIT)
        ends.set()
        NEVER.wait(3 * LIMIT)
        assert [one.ack() for one in got] == [True, True]
        eventually(lambda: client.subscription_info(queue_name, "mail").lag == 0, "acknowledged", SECONDS)
        assert len(got) == 2


def test_a_callback_that_outstays_its_limit_is_told_of_as_stuck_and_keeps_only_its_key_waiting(
    address: str, client: Client, queue_name: str
) -> None:
    queue, heard, ends = client.create_queue(queue_name), list[bytes](), threading.Event()
    stuck = 0

    def hangs(message: Message) -> None:
        nonlocal stuck
        if message.body == b"a0" and not stuck:
            stuck += 1
            assert ends.wait(SECONDS)
            return
        heard.append(message.body)

    subscriber = Subscriber("mail", zookeeper=address)
    retry = policy("key", timeout_seconds=LIMIT)
    subscriber.subscribe(queue_name, concurrency=3, retry=retry, listener=hangs)
    with subscriber:
        for number in range(5):
            queue.put_many([NewMessage(b"%s%d" % (key, number), key=key) for key in (b"a", b"b")])
        eventually(lambda: client.subscription_info(queue_name, "mail").lag == 0, "the position moves on", SECONDS)
        eventually(lambda: heard == [b"b%d" % number for number in range(5)], "the other key", SECONDS)
        eventually(lambda: len(client.parked(queue_name, "mail")) == 1, "it is parked, and that is saved", SECONDS)
        [(_, parked)] = client.parked(queue_name, "mail")
        assert (parked.key, parked.failures) == (b"a", 1)
        assert "takes longer than 0.4 s, and still runs" in parked.last_error
        seen = judged(client, queue_name, "mail", "handler_stuck")
        assert "hangs" in seen.verdict.text
        assert seen.observation is not None
        assert seen.observation.callback is not None
        assert "ends.wait" in seen.observation.callback.stack
        NEVER.wait(5 * LIMIT)
        assert client.parked(queue_name, "mail")[0][1].failures == 1, "one attempt, however long it lasts"
        ends.set()
        eventually(lambda: heard[5:] == [b"a%d" % number for number in range(5)], "in order, when it returned", SECONDS)
        eventually(lambda: client.parked(queue_name, "mail") == [], "and that is saved", SECONDS)


def test_as_many_that_hang_as_may_run_at_the_same_time_keep_nobody_else_from_going_on(
    address: str, client: Client, queue_name: str
) -> None:
    queue, ends, heard = client.create_queue(queue_name), threading.Event(), list[bytes]()

    def listen(message: Message) -> None:
        if message.key != b"k" and not ends.is_set():
            assert ends.wait(SECONDS)
        heard.append(message.body)

    subscriber = Subscriber("mail", zookeeper=address)
    subscriber.subscribe(queue_name, concurrency=2, retry=policy("key", timeout_seconds=LIMIT), listener=listen)
    with subscriber:
        for number in range(6):
            queue.put(b"hangs", key=b"h%d" % number)
            queue.put(b"%d" % number, key=b"k")
        eventually(lambda: heard == [b"%d" % number for number in range(6)], "what hangs is passed by", SECONDS)
        eventually(lambda: len(client.parked(queue_name, "mail")) == 6, "their keys are parked", SECONDS)
        assert "listen" in judged(client, queue_name, "mail", "handler_stuck").verdict.text
        ends.set()
        eventually(lambda: heard.count(b"hangs") >= 12, "they return, and come again", SECONDS)
        eventually(lambda: client.parked(queue_name, "mail") == [], "and that is saved", SECONDS)


def test_a_sync_callback_that_returns_too_late_has_failed_and_none_of_its_partition_ran_beside_it(
    address: str, client: Client, queue_name: str
) -> None:
    queue, ends, calls = client.create_queue(queue_name), threading.Event(), list[bytes]()
    inside = 0

    def listen(message: Message) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        calls.append(message.body)
        if message.body == b"0" and calls.count(b"0") == 1:
            assert ends.wait(SECONDS)
        inside -= 1

    subscriber = Subscriber("mail", zookeeper=address)
    subscriber.subscribe(queue_name, concurrency=2, retry=policy("partition", timeout_seconds=LIMIT), listener=listen)
    with subscriber:
        queue.put_many([NewMessage(b"0"), NewMessage(b"1")])
        assert "listen" in judged(client, queue_name, "mail", "handler_stuck").verdict.text
        assert calls == [b"0"]
        ends.set()
        eventually(lambda: calls == [b"0", b"0", b"1"], "again", SECONDS)
        eventually(lambda: client.subscription_info(queue_name, "mail").lag == 0, "acknowledged", SECONDS)


@pytest.mark.parametrize("order", ["partition", "key"])
def test_subscribers_that_are_killed_with_messages_that_nobody_acknowledged_lose_none(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, order: Order
) -> None:
    random, file = Random(7), tmp_path / "log"

    def noted(what: str) -> set[int]:
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return {int(number) for kind, number in lines if kind == what}

    with (
        hosted(zookeeper, tmp_path, "--set", "window_messages=60") as running,
        connect(running.address) as client,
        ZooKeeperClient(running.address) as session,
    ):
        queue, catalog = client.create_queue("orders"), open_catalog(session)
        client.create_subscription("orders", "hand", start="earliest")
        stored = {int(one.id) for one in queue.put_many([NewMessage(b"x", key=b"%d" % (n % 9)) for n in range(600)])}
        retry = policy(order, ack_timeout_seconds=LIMIT, longest_seconds=0.5)
        orders = Orders(running.address, "orders", str(file), retry, forgets=0.03, refuses=0.03, later_seconds=0.02)
        subscriber = SubscriberProcess("tests.integration.by_hand", orders)
        try:
            for seed in range(4):
                subscriber.start(seed=seed)
                before = len(noted("acknowledged"))
                eventually(lambda before=before: len(noted("acknowledged")) > before + 20, "it works", 60)  # type: ignore[misc]
                NEVER.wait(random.uniform(0.2, 2 * LIMIT))
                subscriber.kill()
                state = catalog.states("orders", "hand")[0]
                parked = {number for one in state.parked for number in one.ids}
                covered = {number for number in stored if number <= state.position} - parked
                assert covered <= noted("acknowledges"), "the position passed what nobody acknowledged"
            subscriber.start(forgets=0, refuses=0, later_seconds=0)
            eventually(lambda: noted("acknowledges") == stored, "all", 60)
            eventually(lambda: catalog.states("orders", "hand")[0].position == max(stored), "and it is saved", 60)
            eventually(lambda: not catalog.states("orders", "hand")[0].parked, "nothing is parked", 60)
        finally:
            subscriber.kill()
