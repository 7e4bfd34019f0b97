"""Publishers wait for subscriptions where a queue says so: with a real host, its clients and its kills."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery import Client, Queue
from delivery.client import Backlog, NewMessage
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import HootError, QueueFull, UnknownOutcome
from delivery.rpc.blocking import BlockingConnection
from delivery.rpc.protocol import load_idl
from subscriber import Message, Subscriber
from tests.integration.cli.calling import call
from tests.integration.cli.running import environment
from tests.integration.embedded import eventually
from tests.integration.engine import Engine, hosted
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration

LIMIT = 50
SOON = 0.5
"""How long publishers wait here that go on until the queue is full."""
REFUSED = 2.0
"""How long those wait that are to be told that it is: longer than any answer takes."""


@pytest.fixture
def running(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Engine]:
    with hosted(zookeeper, tmp_path) as started:
        yield started


def filled(client: Client, name: str = "orders") -> Queue:
    """A queue that is full, for nobody is attached to its subscription."""
    queue = client.create_queue(name, backlog_messages=LIMIT)
    client.create_subscription(name, "audit", start="earliest")
    queue.put(b"first")
    eventually(lambda: backlog(client, name) is not None, "the backlog is measured")
    return full(queue)


def full(queue: Queue, body: bytes = b"x" * 100) -> Queue:
    """With as many messages as it takes."""

    def refused() -> bool:
        try:
            queue.put(body, timeout=SOON)
        except QueueFull:
            return True
        except UnknownOutcome:  # stored or not, the next one tells
            return False
        return False

    eventually(refused, "it is full", 60)
    return queue


def backlog(client: Client, name: str = "orders") -> Backlog | None:
    return client.queue_info(name).partitions[0].backlog


def counts(client: Client, subscription: str = "audit") -> None:
    """Returns when the host knows of the subscription: what comes before that is taken."""
    eventually(lambda: (found := backlog(client)) is not None and found.subscription == subscription, "it counts")


def goes_on(queue: Queue) -> None:
    """Publishing works again, soon."""
    queue.put(b"again", timeout=30)


def test_a_full_queue_refuses_in_time_says_why_and_holds_who_waits_until_there_is_room(
    running: Engine, client: Client
) -> None:
    queue = filled(client)
    with pytest.raises(QueueFull, match=r"orders/0 is full: subscription 'audit' has 50 messages") as refusal:
        queue.put(b"too much", timeout=REFUSED)
    assert refusal.value.retryable
    assert queue.count(0, 0) == LIMIT, "what was refused is nowhere"
    found = backlog(client)
    assert found is not None
    assert (found.messages, found.subscription, found.full) == (LIMIT, "audit", True)
    assert found.bytes > 100 * (LIMIT - 1)

    held = threading.Thread(target=queue.put, args=(b"waits",), daemon=True)
    held.start()
    held.join(SOON)
    assert held.is_alive()
    heard: list[bytes] = []
    subscriber = Subscriber("audit", zookeeper=running.address)
    subscriber.subscribe("orders", listener=lambda message: heard.append(message.body))
    with subscriber:
        held.join(30)
        assert not held.is_alive()
        for number in range(3 * LIMIT):
            queue.put(b"%d" % number)
        eventually(lambda: len(heard) == LIMIT + 1 + 3 * LIMIT, "everything is delivered")
        assert heard[LIMIT] == b"waits"
    assert b"too much" not in heard


def test_the_publisher_that_batches_slows_down_to_what_is_handled_and_loses_nothing(
    running: Engine, client: Client
) -> None:
    queue = client.create_queue("orders", backlog_messages=200)
    heard: list[bytes] = []
    most = 0
    pause = threading.Event()

    def slowly(message: Message) -> None:
        heard.append(message.body)
        if len(heard) % 20 == 0:
            pause.wait(0.02)

    subscriber = Subscriber("audit", zookeeper=running.address)
    subscriber.subscribe("orders", listener=slowly)
    with subscriber, queue.publisher(batch_messages=50, linger_ms=0.5, timeout=60) as publisher:
        counts(client)
        bodies = [b"%d" % number for number in range(3000)]
        for body in bodies:
            publisher.put(body)
            if int(body) % 100 == 0:
                found = backlog(client)
                most = max(most, found.messages if found is not None else 0)
        publisher.flush()
        assert most <= 200 + 50, "the limit, and one batch"
        eventually(lambda: len(heard) == len(bodies), "all are handled", 60)
    assert heard == bodies, "in order, each once"


def test_a_limit_of_bytes_counts_what_is_not_acknowledged_whatever_lies_before_that(
    running: Engine, client: Client
) -> None:
    queue = client.create_queue("orders", backlog_bytes=300_000)
    heard: list[int] = []
    subscriber = Subscriber("audit", zookeeper=running.address)
    subscriber.subscribe("orders", listener=lambda message: heard.append(len(message.body)))
    with subscriber:
        queue.put_many([b"x"] * 20_000)
        eventually(lambda: len(heard) == 20_000, "the small ones are handled")
    counts(client)
    before = queue.count(0, 0)
    full(queue, bytes(20_000))
    assert 14 <= queue.count(0, 0) - before <= 17, "by their own size, not by the mean of all that is stored"


@pytest.mark.parametrize("way", ["deleted", "sought", "bounded", "lifted", "raised"])
def test_there_is_room_again_when_what_was_waited_for_is_gone(client: Client, way: str) -> None:
    queue = filled(client)
    if way == "deleted":
        client.delete_subscription("orders", "audit")
    elif way == "sought":
        client.seek("orders", "audit", "latest")
    elif way == "bounded":
        client.update_subscription("orders", "audit", bound=5)
    elif way == "lifted":
        client.update_queue("orders", backlog_messages=None)
    else:
        client.update_queue("orders", backlog_messages=LIMIT + 10)
    goes_on(queue)


def test_replays_and_subscriptions_of_other_partitions_hold_nobody_up(client: Client) -> None:
    queue = client.create_queue("orders", partitions=2, backlog_messages=LIMIT)
    client.create_subscription("orders", "one", start="earliest", partitions=[1])
    queue.put_many([NewMessage(b"x", partition=0)] * 4 * LIMIT)
    client.create_subscription("orders", "real", partitions=[0])
    client.replay("orders", "real", into="shadow", start="earliest")
    for _ in range(LIMIT - 1):
        queue.put(b"y", partition=0)
    queue.put_many([NewMessage(b"x", partition=1)] * (LIMIT - 1))
    counts(client, "real")
    found = backlog(client)
    assert found is not None
    assert (found.messages, found.full) == (LIMIT - 1, False)


def test_a_host_that_was_killed_knows_it_again(running: Engine, client: Client) -> None:
    queue = filled(client)
    running.host.kill()
    running.host.start()
    eventually(lambda: backlog(client) is not None, "it is measured by the new owner", 60)
    with pytest.raises(QueueFull):
        queue.put(b"too much", timeout=REFUSED)
    assert queue.count(0, 0) == LIMIT
    client.seek("orders", "audit", "latest")
    goes_on(queue)


def test_whoever_is_asked_why_it_is_silent_says_so(running: Engine, client: Client) -> None:
    filled(client)
    found = judged(client, "orders", "audit", "no_listener")
    assert found.verdict.level == "critical"
    assert found.verdict.text.startswith("publishers wait for it: nobody is attached")
    told = call(["check", "--queue", "orders"], b"", environment(running.address))
    assert told.status == 2
    assert "publishers wait for it" in told.stdout
    shown = call(["queue", "info", "orders"], b"", environment(running.address)).stdout
    assert "50 messages of a partition that are not acknowledged" in shown
    assert any(line.split()[-2:] == ["audit", "wait"] for line in shown.splitlines()), shown
    told = call(["publish", "orders", "x", "--timeout", f"{REFUSED:g}s"], b"", environment(running.address))
    assert (told.status, "orders/0 is full" in told.stderr) == (1, True)
    go = threading.Event()
    subscriber = Subscriber("audit", zookeeper=running.address)
    subscriber.subscribe("orders", listener=lambda _: go.wait(30) and None)
    with subscriber:
        try:
            found = judged(client, "orders", "audit", "handler_stuck")
            assert found.verdict.text.startswith("publishers wait for it: no answer for")
            text = scraped(client)
            assert 'hoot_queue_full_partitions{queue="orders"} 1.0' in text
            assert 'hoot_queue_backlog_messages{queue="orders"} 50.0' in text
            assert any(line.startswith('hoot_refused_publishes_total{code="queue_full"}') for line in text)
        finally:
            go.set()
        judged(client, "orders", "audit", "idle")
        eventually(lambda: 'hoot_queue_full_partitions{queue="orders"} 0.0' in scraped(client), "it is full no more")


def scraped(client: Client) -> list[str]:
    [host] = client.hosts()
    with urllib.request.urlopen(f"http://127.0.0.1:{host.http_port}/metrics", timeout=30) as answer:
        return str(answer.read().decode()).splitlines()


def test_other_ways_in_are_told_at_once_and_may_try_again(client: Client) -> None:
    """The plain calls of any language, and HTTP, by which what is there can still be polled."""
    filled(client)
    [host] = client.hosts()
    with BlockingConnection(host.address, host.port) as connection, pytest.raises(QueueFull):
        connection.call("putMessage", "orders", load_idl("delivery").Message(body=b"x", headers={}, topic=""))
    base = f"http://127.0.0.1:{host.http_port}/v1/namespaces/shop/topics/news"
    asked(base, "PUT", {})
    name = next(one for one in client.queues() if "news" in one)
    client.update_queue(name, backlog_messages=LIMIT)
    client.create_subscription(name, "audit", start="earliest")
    eventually(lambda: asked(f"{base}/publish", "POST", {"messages": ["eA=="] * 10}) == 503, "it is full", 60)
    assert asked(f"{base}/poll", "POST", {"limit": 1}) == 200


def asked(url: str, method: str, body: object) -> int:
    """The status of a request with JSON; a refusal says why, and when to come again."""
    said = {"Content-Type": "application/json", "Accept": "application/json"}
    made = urllib.request.Request(url, json.dumps(body).encode(), said, method=method)
    try:
        with urllib.request.urlopen(made, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            told = json.loads(error.read())
        if (told["code"], error.headers["retry-after"]) != ("queue_full", "1"):
            raise AssertionError(told) from error
        return error.code


def test_wrong_limits_are_refused_and_change_nothing(running: Engine, client: Client) -> None:
    client.create_queue("orders", backlog_messages=LIMIT)
    before = client.queue_record("orders")
    for wrong in (
        {"backlog_messages": 0},
        {"backlog_bytes": 5},
        {"backlog_bytes": 1 << 30, "retention_bytes": 1 << 20},
    ):
        with pytest.raises(HootError, match=r"backlog|retention"):
            client.update_queue("orders", **wrong)
    for option in ("--backlog-messages=0", "--backlog-messages=many", "--backlog-bytes=1", "--backlog-bytes=x"):
        told = call(["queue", "update", "orders", option], b"", environment(running.address))
        assert told.status == 2, told
        assert told.stderr.count("\n") <= 2
    assert client.queue_record("orders") == before
    call(["queue", "update", "orders", "--backlog-messages", "none", "--backlog-bytes", "1MiB"], b"",
         environment(running.address))  # fmt: skip
    settings = client.queue_record("orders").settings
    assert (settings.backlog_messages, settings.backlog_bytes) == (None, 1 << 20)
