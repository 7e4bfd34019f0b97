"""`hoot subscription pause`, `resume` and limits, with a real host that is killed and real subscribers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest

from delivery import Client, NewMessage, connect
from delivery.dispatch.verdict import Limits
from subscriber import Flow, Message, Subscriber
from tests.integration.cli.running import SECONDS, Hoot
from tests.integration.embedded import eventually
from tests.integration.engine import Engine

pytestmark = pytest.mark.integration


@pytest.fixture
def client(running: Engine) -> Iterator[Client]:
    with connect(running.address) as connected:
        yield connected


def test_a_paused_subscription_hears_nothing_until_it_is_resumed_whatever_becomes_of_its_host(
    running: Engine, client: Client
) -> None:
    hoot, queue, heard = Hoot(running.address), client.create_queue("orders", partitions=2), list[bytes]()
    subscriber = Subscriber("mail", zookeeper=running.address)
    subscriber.subscribe("orders", listener=lambda message: heard.append(message.body))
    with subscriber:
        queue.put(b"before")
        eventually(lambda: heard == [b"before"], "what came before")
        assert hoot.json("subscription", "pause", "orders", "mail")["pause"]["until"] is None
        running.host.kill()
        running.host.start()
        queue.put(b"meanwhile")
        witnessed = list[bytes]()
        other = Subscriber("witness", zookeeper=running.address)
        other.subscribe("orders", start="earliest", listener=lambda message: witnessed.append(message.body))
        with other:
            eventually(lambda: b"meanwhile" in witnessed, "another subscription gets it", SECONDS)
        assert heard == [b"before"]
        assert hoot.json("subscription", "info", "orders", "mail")["pause"]["since"]
        assert "until a resume" in hoot("subscription", "list", "orders").stdout
        assert hoot.json("subscription", "resume", "orders", "mail")["pause"] is None
        eventually(lambda: heard == [b"before", b"meanwhile"], "the rest after the resume", SECONDS)
        assert hoot.json("subscription", "list", "orders")[0]["pause"] is None


def test_a_pause_settles_what_is_out_and_ends_by_itself(running: Engine, client: Client) -> None:
    queue, heard = client.create_queue("bills"), list[tuple[bytes, datetime]]()

    def listen(message: Message) -> None:
        if message.body == b"first":
            client.pause("bills", "mail", until=datetime.now(UTC) + timedelta(hours=1))
        heard.append((message.body, datetime.now(UTC)))

    subscriber = Subscriber("mail", zookeeper=running.address)
    subscriber.subscribe("bills", listener=listen)
    with subscriber:
        queue.put(b"first")
        eventually(lambda: client.subscription_info("bills", "mail").lag == 0 and bool(heard), "the first is settled")
        assert client.subscription_info("bills", "mail").pause is not None
        queue.put(b"second")
        pause = client.pause("bills", "mail", until=datetime.now(UTC) + timedelta(seconds=3)).pause
        eventually(lambda: len(heard) == 2, "the end of the pause", SECONDS)
        assert pause is not None
        assert pause.until_ms is not None
        assert heard[1][1].timestamp() * 1000 >= pause.until_ms
    assert client.subscription_info("bills", "mail").pause is None


def test_what_cannot_be_paused_is_refused(running: Engine, client: Client) -> None:
    hoot = Hoot(running.address)
    client.create_queue("quiet")
    assert hoot.refused("subscription", "pause", "quiet", "nobody")["error"] == "unknown_subscription"
    client.create_subscription("quiet", "mail")
    hoot.refused("subscription", "pause", "quiet", "mail", "--for", "1h", "--until", "2999-01-01", status=2)
    hoot.refused("subscription", "pause", "quiet", "mail", "--until", "latest", status=2)
    hoot.refused("subscription", "pause", "quiet", "mail", "--until", "-1h", status=2)
    assert "for 1h" in hoot("subscription", "pause", "quiet", "mail", "--for", "1h1m").stdout


def test_a_limit_holds_for_all_partitions_together_until_it_is_changed(running: Engine, client: Client) -> None:
    hoot, queue, heard = Hoot(running.address), client.create_queue("sent", partitions=2), list[float]()
    for partition in (0, 1):
        queue.put_many([NewMessage(b"x", partition=partition) for _ in range(500)])
    subscriber = Subscriber("mail", zookeeper=running.address)
    subscriber.subscribe(
        "sent", start="earliest", flow=Flow(messages_per_second=20), listener=lambda _: heard.append(monotonic())
    )
    began = monotonic()
    with subscriber:
        eventually(lambda: len(heard) > 30, "some of them", SECONDS)
        assert len(heard) <= 20 * (heard[-1] - began) + 10
        told = client.subscription_info("sent", "mail", Limits(behind_seconds=0.1)).partitions
        assert {one.verdict.name for one in told} == {"limited"}
        assert hoot.json("subscription", "info", "sent", "mail")["flow"]["messages_per_second"] == 20
        assert "20 messages/s" in hoot("subscription", "info", "sent", "mail").stdout
        changed = ["--messages-per-second", "0", "--bytes-per-second", "64MiB"]
        assert hoot.json("subscription", "update", "sent", "mail", *changed)["flow"] == {
            "messages_per_second": 0, "bytes_per_second": 64 << 20, "window_messages": 0, "window_bytes": 0,
        }  # fmt: skip
        eventually(lambda: len(heard) == 1000, "the rest", SECONDS)
    assert client.subscription_info("sent", "mail").flow == Flow(bytes_per_second=64 << 20)


def test_limits_that_cannot_be_are_refused_and_change_nothing(running: Engine, client: Client) -> None:
    hoot = Hoot(running.address)
    client.create_queue("calm")
    hoot.refused("subscription", "create", "calm", "mail", "--messages-per-second", "0.001", status=2)
    hoot("subscription", "create", "calm", "mail", "--bytes-per-second", "1KiB")
    assert "limit" in hoot.refused("subscription", "update", "calm", "mail", status=2)["message"]
    hoot.refused("subscription", "update", "calm", "mail", "--bytes-per-second", "-1", status=2)
    assert client.subscription_info("calm", "mail").flow == Flow(bytes_per_second=1024)


def test_a_fixed_window_bounds_what_is_out_with_a_subscriber(running: Engine, client: Client) -> None:
    queue, lists = client.create_queue("held"), list[list[Message]]()
    queue.put_many([b"x"] * 500)
    subscriber = Subscriber("mail", zookeeper=running.address)
    subscriber.subscribe("held", start="earliest", flow=Flow(window_messages=7), batch_listener=lists.append)
    with subscriber:
        eventually(lambda: sum(map(len, lists)) == 500, "all", SECONDS)
    assert max(map(len, lists)) <= 7
