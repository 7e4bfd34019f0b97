"""Replays to a subscription: its listeners hear them, and nobody else does, each once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from delivery import Client, NewMessage, connect
from delivery.errors import InvalidRequest, MetadataUnavailable, UnknownSubscription
from delivery.messaging.marks import header
from delivery.metastore.catalog import Catalog
from delivery.model import Message
from delivery.spark.jobs.choosing import Chosen, with_end
from delivery.spark.jobs.replaying import Wishes, replay_to_subscription
from delivery.spark.jobs.subscribed import as_subscribed, found, place_for
from delivery.spark.planning import engine
from subscriber import Subscriber, Subscription
from subscriber.runtime import Runtime
from tests.integration.embedded import eventually
from tests.integration.engine import Engine
from tests.integration.spark.commands import run_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

COUNT, PARTITIONS, SECONDS = 240, 3, 120.0
AGAIN = "select * except (value), concat('again ', cast(value as string)) as value from messages where value <> 'b7'"
Heard = list[Message]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscribers look at their preferences without any hint twice a second, not twice a minute."""
    monkeypatch.setattr(Runtime, "_renew_seconds", 0.5)


def publish(client: Client, queue: str) -> None:
    client.create_queue(queue, partitions=PARTITIONS).put_many([
        NewMessage(
            b"b%d" % n, key=b"k%d" % (n % 7), topic="a" if n % 4 else "other", partition=n % PARTITIONS,
            headers={"n": b"%d" % n},
        )
        for n in range(COUNT)
    ])  # fmt: skip


def listening(running: Engine, name: str, queue: str, heard: Heard) -> tuple[Subscriber, Subscription]:
    subscriber = Subscriber(name, running.address)
    return subscriber, subscriber.subscribe(queue, start="earliest", listener=heard.append)


def by_partition(messages: Heard, what: Callable[[Message], bytes]) -> dict[int, list[bytes]]:
    found = defaultdict(list)
    for one in messages:
        found[one.partition].append(what(one))
    return found


def test_its_listeners_hear_a_replay_in_order_and_nobody_else_does(running: Engine, spark: SparkSession) -> None:
    queue, place = "told", "told.billing.replay"
    billing, audit = Heard(), Heard()
    with connect(running.address) as client:
        publish(client, queue)
        client.create_subscription(queue, "billing", topics=["a"], start="earliest")
        taken = [one for one in client.queue(queue).scanner() if one.topic == "a"]
        subscriber, subscription = listening(running, "billing", queue, billing)
        with subscriber, listening(running, "audit", "told*", audit)[0]:
            eventually(lambda: (len(billing), len(audit)) == (len(taken), COUNT), "both have heard all", SECONDS)
            chosen = with_end(as_subscribed(Chosen(zookeeper=running.address, queue=queue), "billing"))
            asked = Wishes(sql=AGAIN)
            assert replay_to_subscription(spark, chosen, "billing", asked, dry_run=True).messages == len(taken) - 1
            assert place not in client.queues(), "a dry run makes nothing"
            for _ in range(2):
                done = replay_to_subscription(spark, chosen, "billing", asked)
                assert (done.target, done.messages) == (place, len(taken) - 1)
            eventually(lambda: len(billing) == 2 * len(taken) - 1, "the same listener hears it", SECONDS)
            assert subscription.parts[place].state == "attached"
            again = [one for one in billing if one.queue == place]
            expected = [one for one in taken if one.body != b"b7"]
            origins = by_partition(again, lambda one: one.headers["hoot-origin"])
            assert origins == by_partition(expected, lambda one: f"{queue}/{one.partition}/{one.id}".encode())
            assert by_partition(again, lambda one: one.body) == by_partition(expected, lambda one: b"again " + one.body)
            client.queue(queue).put(b"live", topic="a")
            eventually(lambda: billing[-1].body == b"live", "what is published comes as ever", SECONDS)
            eventually(lambda: client.subscription_info(place, "billing").lag == 0, "all is acknowledged", SECONDS)
        assert len(billing) == 2 * len(taken), "and nothing came twice"
        assert {one.queue for one in audit} == {queue}
        later = Heard()
        replay_to_subscription(spark, Chosen(zookeeper=running.address, queue=queue, topics=("other",)), "billing")
        with listening(running, "billing", queue, later)[0]:
            eventually(lambda: len(later) == COUNT // 4, "who comes later hears it, too", SECONDS)
            client.delete_subscription(queue, "billing")
            assert client.subscriptions(place) == [], "the subscription takes that of its replays along"


def test_a_replay_to_what_is_no_subscription_changes_nothing(running: Engine, spark: SparkSession) -> None:
    with connect(running.address) as client:
        publish(client, "wrong")
        client.create_subscription("wrong", "billing", start="earliest")
        client.replay("wrong", "billing", "shadow", start="earliest")
        before = client.queues()
        chosen = Chosen(zookeeper=running.address, queue="wrong")
        with pytest.raises(UnknownSubscription, match="did you mean billing"):
            replay_to_subscription(spark, chosen, "biling")
        with pytest.raises(InvalidRequest, match="is a replay itself"):
            replay_to_subscription(spark, chosen, "shadow")
        with pytest.raises(InvalidRequest, match="no column 'size'"):
            replay_to_subscription(spark, chosen, "billing", Wishes(sql="select *, 1 as size from messages"))
        assert client.queues() == before


@pytest.mark.parametrize("step", ["create_subscription", "change_subscription"])
def test_what_broke_off_between_two_steps_is_gone_on_with(running: Engine, step: str) -> None:
    queue = f"broken-{step}"
    with connect(running.address) as client, engine(running.address) as hosts:
        settings = client.create_queue(queue, partitions=PARTITIONS).record.settings
        client.create_subscription(queue, "billing", start="earliest")
        into = place_for(hosts, found(hosts, queue, "billing"), settings)
        with (
            mock.patch.object(Catalog, step, side_effect=MetadataUnavailable("away")),
            pytest.raises(MetadataUnavailable),
        ):
            into.opened()
        generation = into.opened()
        assert into.opened() == generation == client.queue_record(into.queue).generation
        heir, record = (hosts.catalog.subscription(one, "billing") for one in (into.queue, queue))
        assert heir is not None
        assert record is not None
        assert record.replayed_ms == heir.created_ms
        assert heir.starts == dict.fromkeys(range(PARTITIONS), 0), "from the first message on"


def test_what_is_not_committed_is_not_replayed_to_who_wants_what_is(running: Engine, spark: SparkSession) -> None:
    queue = "undecided"
    chosen = Chosen(zookeeper=running.address, queue=queue)
    with connect(running.address) as client:
        stored = client.create_queue(queue)
        client.create_subscription(queue, "billing", start="earliest", isolation="committed")
        stored.put(b"before")
        pointer = client.transactions.begin(600_000).pointer
        stored.put_many([NewMessage(b"one", headers=header(pointer)), NewMessage(b"behind")])
        taken = with_end(as_subscribed(chosen, "billing"))
        client.transactions.commit(pointer, [])
        for _ in range(2):
            assert replay_to_subscription(spark, taken, "billing").messages == 1
        bodies = [one.body for one in client.queue(f"{queue}.billing.replay").scanner()]
        assert bodies == [b"before"], "the same ones, also when the transaction has ended meanwhile"
        assert replay_to_subscription(spark, chosen, "billing").messages == 3


def test_the_command_names_a_subscription_in_the_place_of_a_queue(running: Engine) -> None:
    with connect(running.address) as client:
        publish(client, "typed")
        client.create_subscription("typed", "billing", topics=["a"])
        common = ["spark", "replay", "typed", "--zookeeper", running.address, "--master", "local[1]", "--json"]
        wrong, done, nowhere = run_all(
            [
                [*common, "--to-subscription", "biling"], [*common, "--to-subscription", "billing"],
                [*common, "--to-subscription", "billing", "--master", "k8s://https://127.0.0.1:1"],
            ], 300.0,
        )  # fmt: skip
        told = json.loads(nowhere.stderr.splitlines()[-1])
        assert (nowhere.status, told["error"]) == (2, "invalid_request")
        assert "Connection refused" in told["message"]
        assert "at org.apache" not in nowhere.stderr
        assert (wrong.status, "did you mean billing" in wrong.stderr) == (1, True)
        told = json.loads(done.stdout)
        assert (told["target"], told["messages"]) == ("typed.billing.replay", COUNT * 3 // 4)
        assert client.subscription_info("typed.billing.replay", "billing").lag == told["messages"]
