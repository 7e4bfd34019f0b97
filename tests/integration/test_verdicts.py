"""Real silences, each with its reason: what a client, `hoot check` and a scraper are told of them."""

from __future__ import annotations

import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from delivery import Client, connect
from delivery.client import NewMessage, Observation
from delivery.embedded import EmbeddedZooKeeper
from delivery.local import LocalEngine
from delivery.metastore.policy import RetryPolicy
from delivery.rpc.blocking import BlockingConnection
from subscriber import Flow, ManualMessage, Message, Subscriber
from tests.integration.cli.calling import call
from tests.integration.cli.running import environment
from tests.integration.embedded import eventually
from tests.integration.engine import Engine, RecordingSubscriber, engine, hosted
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration


@pytest.fixture
def running(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Engine]:
    with hosted(zookeeper, tmp_path, "--session-timeout", "10s") as started:
        yield started


def check(running: Engine, *arguments: str) -> tuple[int, str]:
    """Exit status and line of `hoot check`."""
    done = call(["check", *arguments], b"", environment(running.address))
    assert done.stdout.count("\n") == 1, done
    return done.status, done.stdout


def test_from_a_first_message_to_a_stuck_handler(running: Engine, client: Client) -> None:
    queue = client.create_queue("orders", partitions=1)
    client.create_subscription("orders", "billing", start="earliest")
    queue.put(b"one")
    judged(client, "orders", "billing", "no_listener")
    code, line = check(running, "billing", "--queue", "orders")
    assert code == 1
    assert line.startswith("HOOT WARNING - orders/billing partition 0: no listener: ")
    assert "| lag=1 age=" in line

    subscriber = Subscriber("billing", zookeeper=running.address)
    held, release = threading.Event(), threading.Event()

    def on_order(message: Message) -> None:
        if message.body == b"stuck":
            held.set()
            release.wait(60)

    subscriber.subscribe("orders").listener(on_order)
    with subscriber:
        seen = judged(client, "orders", "billing", "idle").observation
        assert seen.lag == seen.lag_bytes == seen.out == 0
        assert seen.redelivered == 0
        eventually(lambda: now(client).checkpointed_ms > 0, "it is saved")
        seen = now(client)
        assert seen.now_ms > seen.checkpointed_ms >= seen.acknowledged_ms - 100
        assert seen.acknowledged_ms >= seen.delivered_ms > 0
        assert check(running, "--queue", "orders") == (0, "HOOT OK - subscriptions: 1, 1 healthy | lag=0 age=0.0s\n")

        stuck = queue.put(b"stuck")
        queue.put_many([b"more"] * 5)
        held.wait(30)
        found = judged(client, "orders", "billing", "handler_stuck")
        callback = found.observation.callback
        assert callback is not None
        assert (callback.queue, callback.partition, callback.message) == ("orders", 0, int(stuck.id))
        assert "release.wait(60)" in callback.stack
        assert "on_order" in found.verdict.text
        assert str(stuck.id) in found.verdict.text
        assert found.observation.lag == 6
        code, line = check(running, "billing", "--stuck-after", "1s")
        assert code == 2
        assert line.startswith("HOOT CRITICAL - orders/billing partition 0: handler stuck: ")
        assert check(running, "billing", "--lag", "2:5")[0] == 2
        assert check(running, "billing", "--lag", "2:50")[0] == 1
        assert check(running, "nobody")[0] == 3
        assert check(running, "--queue", "nowhere")[0] == 3
        release.set()
        judged(client, "orders", "billing", "idle")
    judged(client, "orders", "billing", "no_listener")


def test_a_message_that_nobody_acknowledges_is_told_though_those_behind_it_are(running: Engine, client: Client) -> None:
    queue, kept = client.create_queue("kept", partitions=1), list[ManualMessage]()

    def take(message: ManualMessage) -> None:
        kept.append(message)
        if message.body != b"kept":
            message.ack()

    subscriber = Subscriber("billing", zookeeper=running.address)
    subscriber.subscribe("kept", start="earliest", manual=True, listener=take)
    with subscriber:
        stored = queue.put(b"kept")
        for number in range(1, 6):
            eventually(lambda: len(kept) == number, "each in a push of its own")  # noqa: B023 - it is called at once
            queue.put(b"more")
        eventually(lambda: len(kept) == 6 and now(client, "kept").out == 1, "all others are acknowledged")
        found = judged(client, "kept", "billing", "handler_stuck")
        assert f"message {stored.id} of kept/0" in found.verdict.text
        assert (found.observation.out, found.observation.lag) == (1, 6)
        kept[0].ack()
        judged(client, "kept", "billing", "idle")


def now(client: Client, queue: str = "orders") -> Observation:
    return client.subscription_info(queue, "billing").partitions[0].observation


def test_what_failed_and_what_is_parked_is_told_with_its_error(running: Engine, client: Client) -> None:
    queue = client.create_queue("orders", partitions=1)
    with ExitStack() as subscribers:
        policies = {"all": RetryPolicy(first_seconds=60), "keys": RetryPolicy(order="key", first_seconds=60)}
        for name, policy in policies.items():
            subscriber = Subscriber(name, zookeeper=running.address)
            subscriber.subscribe("orders", retry=policy, start="earliest").listener(no_sevens)
            subscribers.enter_context(subscriber)
        stored = queue.put_many([NewMessage(b"%d" % n, key=b"%d" % (n % 4)) for n in range(12)])
        waiting = judged(client, "orders", "all", "retrying")
        assert waiting.observation.failing == stored[7].id
        assert "ValueError: seven" in waiting.verdict.text
        parked = judged(client, "orders", "keys", "key_parked")
        assert (parked.observation.parked, parked.observation.parked_keys) == (2, 1)
        assert "ValueError: seven" in parked.verdict.text
        metrics = scraped(client)
        assert 'hoot_subscription_verdict{queue="orders",subscription="all",verdict="retrying"} 1.0' in metrics
        assert 'hoot_subscription_verdict{queue="orders",subscription="keys",verdict="key_parked"} 1.0' in metrics
        assert 'hoot_subscription_backlog_messages{queue="orders",subscription="all"} 5.0' in metrics
        assert 'hoot_subscription_parked_messages{queue="orders",subscription="keys"} 2.0' in metrics


def no_sevens(message: Message) -> None:
    if message.body == b"7":
        raise ValueError("seven")


def scraped(client: Client) -> list[str]:
    [host] = client.hosts()
    with urllib.request.urlopen(f"http://127.0.0.1:{host.http_port}/metrics", timeout=30) as answer:
        return str(answer.read().decode()).splitlines()


def test_a_filter_that_takes_nothing_is_not_taken_for_a_queue_in_which_nothing_comes(
    running: Engine, client: Client
) -> None:
    queue = client.create_queue("orders", partitions=1)
    subscriber = Subscriber("narrow", zookeeper=running.address)
    subscriber.subscribe("orders", topics=["refunds"]).listener(no_sevens)
    with subscriber:
        judged(client, "orders", "narrow", "idle")
        queue.put_many([NewMessage(b"x", topic="sales")] * 3)
        assert judged(client, "orders", "narrow", "filter_starving").lag == 0


def test_a_subscriber_that_holds_its_deliveries_back_is_paused_and_not_stuck(running: Engine, client: Client) -> None:
    queue = client.create_queue("orders", partitions=1)
    subscriber = Subscriber("careful", zookeeper=running.address)
    subscription = subscriber.subscribe("orders")
    subscription.listener(no_sevens)
    with subscriber:
        subscription.stop_delivery()
        queue.put(b"one")
        assert "by its subscriber" in judged(client, "orders", "careful", "paused").verdict.text
        subscription.start_delivery()
        judged(client, "orders", "careful", "idle")


def test_a_subscriber_that_is_slower_than_what_comes_has_a_full_window_or_its_limits(
    running: Engine, client: Client
) -> None:
    queue, quick = client.create_queue("orders", partitions=1), threading.Event()
    subscriber = Subscriber("slow", zookeeper=running.address)
    flow = Flow(window_messages=2)
    subscriber.subscribe("orders", start="earliest", flow=flow, listener=lambda _: quick.wait(0.3) and None)
    queue.put_many([b"x"] * 1000)
    with subscriber:
        full = judged(client, "orders", "slow", "window_full")
        assert full.observation.full
        assert full.observation.out == 2
        client.update_subscription("orders", "slow", flow={"messages_per_second": 1})
        judged(client, "orders", "slow", "limited")
        quick.set()
        client.update_subscription("orders", "slow", flow=Flow(messages_per_second=0))
        judged(client, "orders", "slow", "idle")


def test_a_subscriber_that_is_stopped_by_a_signal_and_one_that_was_killed_cannot_be_reached(
    running: Engine, client: Client, tmp_path: Path
) -> None:
    queue = client.create_queue("orders", partitions=1)
    frozen = RecordingSubscriber(running, "orders", tmp_path, name="frozen", session_seconds=60.0)
    frozen.start()
    assert frozen.process is not None
    queue.put(b"one")
    judged(client, "orders", "frozen", "idle")
    os.kill(frozen.process.pid, signal.SIGSTOP)
    try:
        queue.put(b"two")
        seen = judged(client, "orders", "frozen", "listener_unreachable").observation
        assert "says nothing" in seen.unreachable
    finally:
        frozen.kill()
    seen = judged(client, "orders", "frozen", "listener_unreachable").observation
    assert seen.callback is None


def test_an_owner_that_hangs_a_partition_that_nobody_owns_and_a_zookeeper_that_is_away(
    tmp_path: Path,
) -> None:
    with engine(tmp_path, "--session-timeout", "10s") as running, connect(running.address) as client:
        check_hanging(running, client, tmp_path)


def check_hanging(running: LocalEngine, client: Client, folder: Path) -> None:
    queue = client.create_queue("orders", partitions=1)
    subscriber = RecordingSubscriber(running, "orders", folder)
    subscriber.start()
    queue.put(b"one")
    judged(client, "orders", "recorder", "idle")
    [host] = client.hosts()
    pid = running.zookeeper.pid
    assert pid is not None
    try:
        os.kill(pid, signal.SIGSTOP)
        try:
            with BlockingConnection(host.address, host.port) as connection:
                eventually(lambda: lost(connection), "the host tells that its ZooKeeper is away")
            code, line = check(running)
            assert (code, line.split(":")[0]) == (2, "HOOT CRITICAL - ZooKeeper lost")
        finally:
            os.kill(pid, signal.SIGCONT)
        judged(client, "orders", "recorder", "idle")
        os.kill(running.host.pid, signal.SIGSTOP)
        judged(client, "orders", "recorder", "host_unreachable")
        running.host.kill()
        judged(client, "orders", "recorder", "no_owner")
    finally:
        subscriber.kill()


def lost(connection: BlockingConnection) -> bool:
    found = connection.call("observe", "orders", "recorder", -1, 10)
    return bool(found) and found[0].zookeeperLostMs > 0
