"""Stock Apache Thrift subscribes: subscriptions are created and deleted, listeners attached and detached, by calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from thrift.Thrift import TType

from delivery import NewMessage, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from subscriber import Flow, RetryPolicy, Subscriber
from tests.integration.apache import SECONDS, Client, DeclaredError, Server
from tests.integration.embedded import eventually
from tests.integration.plain import (
    Foreign,
    Received,
    attach,
    attached,
    checkpoint,
    create_subscription,
    foreign,
    i32,
    listening,
    message,
    put,
    struct,
    subscribing,
    text,
)
from tests.integration.several import Several, several
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration

TOKEN = "the token of this one"


@pytest.fixture(scope="module")
def site(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    with foreign(zookeeper, tmp_path_factory.mktemp("subscribing")) as found:
        yield found


@pytest.fixture
def client(site: Foreign) -> Iterator[Client]:
    with Client(site.port) as found:
        yield found


@pytest.fixture
def catalog(site: Foreign) -> Iterator[Catalog]:
    with ZooKeeperClient(site.running.address) as session:
        yield open_catalog(session)


@pytest.fixture
def flights(site: Foreign) -> str:
    return site.new_queue()


def subscription(catalog: Catalog, queue: str, name: str) -> SubscriptionRecord:
    found = catalog.subscription(queue, name)
    assert found is not None
    return found


def refused(client: Client, method: str, *arguments: tuple[int, object] | None) -> str:
    with pytest.raises(DeclaredError) as caught:
        client.result(method, *arguments)
    return str(caught.value.code)


def test_a_subscription_is_made_with_a_policy_for_what_is_not_handled(
    client: Client, catalog: Catalog, flights: str
) -> None:
    def options(**fields: tuple[int, Any]) -> tuple[int, Any]:
        return struct({5: struct({int(name[1:]): value for name, value in fields.items()})})

    asked = options(f1=text("key"), f2=(TType.DOUBLE, 0.5), f6=i32(3), f9=(TType.BOOL, False))
    client.result("createSubscription", text(flights), text("some"), asked)
    policy = RetryPolicy(order="key", first_seconds=0.5, deliveries_max=3, dead_letters=False)
    assert subscription(catalog, flights, "some").retry == policy
    wrong = options(f1=text("topic"))
    assert refused(client, "createSubscription", text(flights), text("other"), wrong) == "invalid_request"
    assert catalog.subscriptions(flights) == ["some"]


def test_a_subscription_is_made_with_a_filter_and_limits_and_both_can_be_changed(
    client: Client, catalog: Catalog, flights: str
) -> None:
    def flow(**fields: tuple[int, Any]) -> tuple[int, Any]:
        return struct({int(name[1:]): value for name, value in fields.items()})

    place = text(flights), text("some")
    asked = struct({8: text("hops > 2"), 9: flow(f1=(TType.DOUBLE, 50.0), f3=i32(7))})
    client.result("createSubscription", *place, asked)
    made = subscription(catalog, flights, "some")
    assert made.filter == '{"sql":"hops > 2"}'
    assert made.flow == Flow(messages_per_second=50, window_messages=7)
    changes = {1: (TType.LIST, (TType.STRING, ["JFK"])), 3: struct({2: (TType.DOUBLE, 0.5)}), 5: flow(f4=i32(4096))}
    client.result("updateSubscription", *place, struct(changes))
    now = subscription(catalog, flights, "some")
    assert (now.topics, now.filter, now.retry.first_seconds) == (("JFK",), made.filter, 0.5)
    assert now.flow == Flow(messages_per_second=50, window_messages=7, window_bytes=4096)
    client.result("updateSubscription", *place, struct({2: text(""), 4: i32(100), 6: text("failover")}))
    last = subscription(catalog, flights, "some")
    assert (last.topics, last.filter, last.bound, last.kind) == (("JFK",), None, 100, "failover")
    for wrong in ({2: text("hops >")}, {5: flow(f1=(TType.DOUBLE, -1.0))}, {6: text("both")}, {4: i32(-1)}):
        assert refused(client, "updateSubscription", *place, struct(wrong)) == "invalid_request"
    assert refused(client, "updateSubscription", *place, None) == "invalid_request"
    assert refused(client, "createSubscription", text(flights), text("t"), struct({8: text("=")})) == "invalid_request"
    assert refused(client, "updateSubscription", text(flights), text("t"), struct({})) == "unknown_subscription"
    assert (subscription(catalog, flights, "some"), catalog.subscriptions(flights)) == (last, ["some"])


def test_nothing_is_delivered_in_a_pause_and_a_resume_or_its_end_is_the_end_of_it(
    client: Client, site: Foreign, catalog: Catalog, flights: str
) -> None:
    def pause(ms: int) -> None:
        client.result("pauseSubscription", text(flights), text("s"), (TType.I64, ms))

    create_subscription(client, flights, "s")
    pause(0)
    stored = subscription(catalog, flights, "s").pause
    assert stored is not None
    assert stored.until_ms is None
    with attached(client, flights, "s") as received, attached_witness(client, flights) as witness:
        put(client, flights, 0, message(b"first"))
        eventually(lambda: witness.bodies() == [b"first"], "another subscription gets it", SECONDS)
        assert received.calls == []
        with connect(site.running.address) as operator:
            judged(operator, flights, "s", "paused")
        client.result("resumeSubscription", text(flights), text("s"))
        eventually(lambda: received.bodies() == [b"first"], "it goes on", SECONDS)
        pause(1500)
        ending = subscription(catalog, flights, "s").pause
        assert ending is not None
        assert ending.until_ms == ending.since_ms + 1500
        put(client, flights, 0, message(b"second"))
        eventually(lambda: received.bodies() == [b"first", b"second"], "the pause is over", SECONDS)
    for ms, code in ((-1, "invalid_request"), (1 << 62, "invalid_request")):
        assert refused(client, "pauseSubscription", text(flights), text("s"), (TType.I64, ms)) == code
    assert refused(client, "resumeSubscription", text(flights), text("nobody")) == "unknown_subscription"


@contextmanager
def attached_witness(client: Client, queue: str) -> Iterator[Received]:
    create_subscription(client, queue, "witness")
    with attached(client, queue, "witness") as received:
        yield received


def test_a_group_can_be_made_and_not_be_attached_to(client: Client, catalog: Catalog, flights: str) -> None:
    client.result("createSubscription", text(flights), text("crew"), struct({7: text("shared")}))
    assert subscription(catalog, flights, "crew").kind == "shared"
    there = text(flights), text("crew"), listening(1, TOKEN)
    assert refused(client, "attachListener", *there) == "group_mismatch"
    wrong = struct({7: text("broadcast")})
    assert refused(client, "createSubscription", text(flights), text("other"), wrong) == "invalid_request"
    assert (catalog.subscriptions(flights), catalog.listeners(flights)) == (["crew"], [])


def test_a_subscription_is_made_as_its_options_say_and_deleted(client: Client, catalog: Catalog, flights: str) -> None:
    stored = put(client, flights, 1, message(b"a"), message(b"b"))
    client.result("createSubscription", text(flights), text("all"), None)
    client.result("createSubscription", text(flights), text("some"), subscribing("LGA", "JFK", p1="earliest"))
    client.result("createSubscription", text(flights), text("at"), subscribing(start=str(stored[1])))
    client.result("createSubscription", text(flights), text("then"), subscribing(start="2026-01-31T12:00:00+01:00"))
    every, some, at, then = (subscription(catalog, flights, name) for name in ("all", "some", "at", "then"))
    assert (every.all_partitions, every.topics, every.starts) == (True, (), {0: 0, 1: stored[1], 2: 0})
    assert (some.topics, some.starts) == (("JFK", "LGA"), {0: 0, 1: 0, 2: 0})
    assert at.starts[1] == stored[1] - 1
    assert then.starts[0] == (1_769_857_200_000 << 15) - 1
    client.result("deleteSubscription", text(flights), text("some"))
    assert catalog.subscriptions(flights) == ["all", "at", "then"]


def test_what_cannot_be_is_refused_by_its_code_and_leaves_nothing(
    client: Client, catalog: Catalog, flights: str
) -> None:
    def creating(options: tuple[int, object] | None, queue: str = flights, name: str = "s") -> str:
        return refused(client, "createSubscription", text(queue), text(name), options)

    assert creating(None, queue="nowhere") == "unknown_queue"
    assert creating(None, name="a/b") == creating(None, queue="") == "invalid_request"
    assert creating(subscribing(start="soon")) == creating(subscribing(start="2026-01-31")) == "invalid_request"
    assert creating(subscribing(start="9999-12-31T00:00:00Z")) == "invalid_request"
    assert creating(subscribing("no topic")) == "invalid_request"
    assert creating(subscribing(p9="earliest")) == "unknown_partition"
    assert refused(client, "deleteSubscription", text(flights), text("s")) == "unknown_subscription"
    assert refused(client, "deleteSubscription", text("nowhere"), text("s")) == "unknown_queue"
    there = text(flights), text("s"), listening(1, TOKEN)
    assert refused(client, "attachListener", *there) == "unknown_subscription"
    assert refused(client, "attachListener", text("nowhere"), *there[1:]) == "unknown_queue"
    assert catalog.subscriptions(flights) == []
    create_subscription(client, flights, "s")
    assert creating(subscribing("JFK")) == "subscription_exists"
    assert refused(client, "attachListener", *there[:2], None) == "invalid_request"
    for wrong in (listening(0, TOKEN), listening(70_000, TOKEN), listening(1, "short"), listening(1, TOKEN, "smtp")):
        assert refused(client, "attachListener", *there[:2], wrong) == "invalid_request"
    with pytest.raises(DeclaredError, match="invalid_request"):
        attach(client, flights, "s", listening(1, TOKEN), ms=999)
    assert catalog.listeners(flights) == []


def test_a_listener_that_does_not_renew_its_lease_gets_nothing_more_and_its_place_is_kept(
    client: Client, site: Foreign, catalog: Catalog, flights: str
) -> None:
    create_subscription(client, flights, "s")
    received = Received(TOKEN)
    with Server(received.answer) as server:
        attach(client, flights, "s", listening(server.port, TOKEN))
        first = put(client, flights, 0, message(b"first"))[0]
        eventually(lambda: checkpoint(site, flights, "s", 0) == first, "it is attached", SECONDS)
        attach(client, flights, "s", listening(server.port, TOKEN), ms=1000)
        eventually(lambda: catalog.listener(flights, "s") is None, "its lease ends", SECONDS)
        with connect(site.running.address) as operator:
            judged(operator, flights, "s", "no_listener")
    put(client, flights, 0, message(b"later"))  # a host may hear of the end a moment later: nobody takes it by now
    with attached(client, flights, "s") as again:
        eventually(lambda: again.bodies() == [b"later"], "the next one goes on", SECONDS)
    assert received.bodies() == [b"first"]
    assert catalog.listener(flights, "s") is None, "it was detached at once"


def test_one_listener_at_a_time_whatever_the_language(client: Client, site: Foreign, flights: str) -> None:
    create_subscription(client, flights, "s")
    ours = Subscriber("s", site.running.address)
    ours.subscribe(flights).listener(lambda _: None)
    with Server(Received(TOKEN).answer) as server:
        listener = listening(server.port, TOKEN)
        with ours:
            with pytest.raises(DeclaredError, match="subscription_busy"):
                attach(client, flights, "s", listener)
            attach(client, flights, "s", listener, force=True)
            eventually(lambda: ours.subscriptions[flights].state == "taken_over", "ours hears of it", SECONDS)
    with attached(client, flights, "s") as received:  # nobody answers at the former one's address any more
        put(client, flights, 0, message(b"x"))
        eventually(lambda: received.bodies() == [b"x"], "the one that lives gets it", SECONDS)


@pytest.fixture
def three(zookeeper_hosts: str, zk: ZooKeeperClient, tmp_path: Path) -> Iterator[Several]:
    catalog = open_catalog(zk)
    with several(zookeeper_hosts, catalog, tmp_path, 3) as hosts:
        catalog.create_queue("orders", QueueSettings(partitions=3))
        yield hosts


def test_any_host_takes_the_calls_and_a_lease_outlives_the_host_where_it_began(three: Several) -> None:
    """The latest message of a partition is its owner's to tell; a killed host's znode ends with its session."""
    ports = [host.port for host in three.hosts]
    with connect(three.zookeeper) as publisher:
        publisher.queue("orders").put_many([NewMessage(b"before", partition=number) for number in range(3)])
    received = Received(TOKEN)
    with Server(received.answer) as server:
        listener = listening(server.port, TOKEN)
        with Client(ports[1]) as one:
            one.result("createSubscription", text("orders"), text("s"), subscribing(start="latest"))
            attach(one, "orders", "s", listener)
        three.processes[1].kill()
        with Client(ports[2]) as two:
            attach(two, "orders", "s", listener)
            found = three.catalog.listener("orders", "s")
            assert found is not None
            assert found.lease == three.hosts[2].host
            eventually(lambda: len(three.catalog.hosts()) == 2, "the killed host's session ends", SECONDS)
            assert three.catalog.listener("orders", "s") == found
            with connect(three.zookeeper) as publisher:
                publisher.queue("orders").put(b"after")
            eventually(lambda: received.bodies() == [b"after"], "it is delivered", SECONDS)
