"""Subscriptions and their listeners in a real ZooKeeper: who may attach, take over, detach and delete."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

from delivery.errors import CorruptRecord, MetadataUnavailable, SubscriptionBusy, UnknownQueue, UnknownSubscription
from delivery.metastore import records
from delivery.metastore.catalog import Catalog
from delivery.metastore.ops import NodeExists
from delivery.metastore.partitions import NEVER_OWNED
from delivery.metastore.records import Checkpoint, ListenerRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from tests.integration.metastore import Interposed, at_once, listener, subscription, update

pytestmark = pytest.mark.integration


@pytest.fixture
def queue(catalog: Catalog) -> Catalog:
    """The catalog with a queue `q` and its subscription `s`."""
    catalog.create_queue("q", QueueSettings(partitions=2))
    catalog.put_subscription(subscription(), create=True)
    return catalog


@pytest.fixture
def other(zookeeper_hosts: str) -> Iterator[Catalog]:
    """The catalog over another session."""
    with ZooKeeperClient(zookeeper_hosts) as client:
        yield Catalog(client)


# -- records


def test_a_subscription_is_written_listed_and_read_back(queue: Catalog) -> None:
    assert queue.subscription("q", "s") == subscription()
    assert queue.subscription("q", "t") is None
    queue.put_subscription(subscription(name="r"), create=True)
    assert queue.subscriptions("q") == ["r", "s"]
    changed = msgspec.structs.replace(subscription(), topics=())
    queue.put_subscription(changed, create=False)
    assert queue.subscription("q", "s") == changed


def test_a_subscription_is_neither_created_twice_nor_changed_before_it_is_there(queue: Catalog) -> None:
    with pytest.raises(NodeExists):
        queue.put_subscription(msgspec.structs.replace(subscription(), topics=()), create=True)
    with pytest.raises(UnknownSubscription, match="did you mean s"):
        queue.put_subscription(subscription(name="ss"), create=False)
    with pytest.raises(UnknownQueue):
        queue.put_subscription(subscription(queue="r"), create=True)
    assert (queue.subscriptions("q"), queue.subscription("q", "s")) == (["s"], subscription())


@pytest.mark.parametrize(
    "value",
    [
        b"", b"{}", b"\xff", records.encode(subscription(name="t")), records.encode(subscription(queue="r")),
        records.encode(msgspec.structs.replace(subscription(), starts={-1: 0})),
        records.encode(msgspec.structs.replace(subscription(), starts={0: -5})),
        records.encode(msgspec.structs.replace(subscription(), starts={32767: 0})),
    ],
)  # fmt: skip
def test_a_foreign_subscription_record_is_named(queue: Catalog, zk: ZooKeeperClient, value: bytes) -> None:
    zk.set(records.subscription_path("q", "s"), value)
    with pytest.raises(CorruptRecord, match="/hoot/queues/q/subscriptions/s"):
        queue.subscription("q", "s")


# -- attaching


def test_an_attached_listener_is_there_until_its_session_ends_and_the_subscription_stays(
    queue: Catalog, other: Catalog, zookeeper_hosts: str
) -> None:
    with ZooKeeperClient(zookeeper_hosts) as client:
        Catalog(client).attach("q", "s", listener("a"))
        assert (queue.listeners("q"), queue.listener("q", "s")) == (["s"], listener("a"))
    assert (queue.listeners("q"), queue.listener("q", "s")) == ([], None)
    assert queue.subscription("q", "s") == subscription()
    other.attach("q", "s", listener("b"))
    assert queue.listener("q", "s") == listener("b")


def test_a_second_subscriber_is_refused_and_told_who_is_there(queue: Catalog, other: Catalog) -> None:
    queue.attach("q", "s", listener("a", port=5001))
    for replace in (None, listener("outdated", port=5001)):
        with pytest.raises(SubscriptionBusy, match="'s' of queue 'q'") as caught:
            other.attach("q", "s", listener("b"), replace=replace)
        assert caught.value.address == "127.0.0.1:5001"
    assert queue.listener("q", "s") == listener("a", port=5001)


def test_a_takeover_replaces_exactly_the_listener_that_was_seen(queue: Catalog, other: Catalog) -> None:
    queue.attach("q", "s", listener("a"))
    other.attach("q", "s", listener("b"), replace=other.listener("q", "s"))
    assert queue.listener("q", "s") == listener("b")
    queue.detach("q", "s", listener("a"))
    assert queue.listener("q", "s") == listener("b"), "who was replaced cannot detach the new one"


def test_a_takeover_from_somebody_who_has_gone_is_a_plain_attachment(queue: Catalog) -> None:
    queue.attach("q", "s", listener("b"), replace=listener("a"))
    assert queue.listener("q", "s") == listener("b")


def test_a_takeover_does_not_hit_somebody_who_came_since(queue: Catalog, other: Catalog, zk: ZooKeeperClient) -> None:
    """A was seen; before the transaction A leaves and B comes, and B's znode has the version that A's had."""
    other.attach("q", "s", listener("a"))
    between = Interposed(zk)

    def change() -> None:
        other.detach("q", "s", listener("a"))
        other.attach("q", "s", listener("b", port=5002))

    between.before = change
    with pytest.raises(SubscriptionBusy) as caught:
        Catalog(between).attach("q", "s", listener("c"), replace=listener("a"))
    assert caught.value.address == "127.0.0.1:5002"
    assert queue.listener("q", "s") == listener("b", port=5002)


def test_a_detachment_does_not_hit_somebody_who_took_over_since(
    queue: Catalog, other: Catalog, zk: ZooKeeperClient
) -> None:
    queue.attach("q", "s", listener("a"))
    between = Interposed(zk)
    between.before = lambda: other.attach("q", "s", listener("b"), replace=listener("a"))
    Catalog(between).detach("q", "s", listener("a"))
    assert queue.listener("q", "s") == listener("b")


@pytest.mark.parametrize("held", [False, True])
def test_of_many_who_attach_at_once_exactly_one_does(queue: Catalog, other: Catalog, held: bool) -> None:
    for turn in range(8):
        seen = None
        if held:
            seen = listener(f"old-{turn}")
            queue.attach("q", "s", seen, replace=queue.listener("q", "s"))
        contenders = [listener(f"{turn}-{n}", port=6000 + n) for n in range(4)]
        catalogs = (queue, other, queue, other)
        calls = [partial(c.attach, "q", "s", one, replace=seen) for c, one in zip(catalogs, contenders, strict=True)]
        outcomes = at_once(calls)
        assert [type(outcome) for outcome in outcomes].count(SubscriptionBusy) == 3
        winner = contenders[outcomes.index(None)]
        assert queue.listener("q", "s") == winner
        queue.detach("q", "s", winner)
        assert queue.listener("q", "s") is None


def test_the_same_listener_attached_again_lives_on_with_the_present_session(
    queue: Catalog, zookeeper_hosts: str
) -> None:
    with ZooKeeperClient(zookeeper_hosts) as old:
        Catalog(old).attach("q", "s", listener("a"))
        queue.attach("q", "s", listener("a"))
    assert queue.listener("q", "s") == listener("a")


def test_when_the_answer_to_an_attachment_is_lost_it_is_recognised_as_ones_own(
    queue: Catalog, zk: ZooKeeperClient
) -> None:
    between = Interposed(zk)
    between.lose_answer = True
    Catalog(between).attach("q", "s", listener("a"))
    assert queue.listener("q", "s") == listener("a")
    between.down_after = 1
    with pytest.raises(MetadataUnavailable):
        Catalog(between).attach("q", "s", listener("b"), replace=listener("a"))


def test_attaching_does_not_change_the_record_and_survives_a_change_of_it(queue: Catalog, zk: ZooKeeperClient) -> None:
    changed = msgspec.structs.replace(subscription(), topics=("new",))
    between = Interposed(zk)
    between.before = lambda: queue.put_subscription(changed, create=False)
    Catalog(between).attach("q", "s", listener("a"))
    assert (queue.subscription("q", "s"), queue.listener("q", "s")) == (changed, listener("a"))


def test_only_an_existing_subscription_can_be_attached_to(queue: Catalog) -> None:
    with pytest.raises(UnknownSubscription):
        queue.attach("q", "t", listener())
    with pytest.raises(UnknownQueue):
        queue.attach("r", "s", listener())
    queue.detach("q", "t", listener())
    assert queue.listeners("q") == []


@pytest.mark.parametrize(
    "value", [b"", b"{}", records.encode(listener(port=0)), records.encode(listener(port=65536)), b'{"address":""}']
)
def test_a_foreign_listener_record_is_named(queue: Catalog, zk: ZooKeeperClient, value: bytes) -> None:
    zk.create(records.listener_path("q", "s"), value)
    with pytest.raises(CorruptRecord, match="/hoot/queues/q/listeners/s"):
        queue.listener("q", "s")
    with pytest.raises(CorruptRecord, match="/hoot/queues/q/listeners/s"):
        queue.attach("q", "s", listener())


# -- deleting


def checkpointed(catalog: Catalog) -> None:
    catalog.claim("q", 0, "h", 1, NEVER_OWNED)
    assert catalog.save_checkpoints([update(0, 5)]) == [None]


def test_a_deleted_subscription_takes_its_checkpoints_and_its_listener_with_it(queue: Catalog) -> None:
    checkpointed(queue)
    queue.attach("q", "s", listener())
    queue.delete_subscription("q", "s")
    assert (queue.subscriptions("q"), queue.listeners("q"), queue.subscription("q", "s")) == ([], [], None)
    with pytest.raises(UnknownSubscription):
        queue.delete_subscription("q", "s")
    queue.put_subscription(subscription(), create=True)
    assert queue.checkpoints("q", "s") == {}


def test_a_deletion_meets_a_subscriber_who_attaches_and_an_owner_who_saves_meanwhile(
    queue: Catalog, other: Catalog, zk: ZooKeeperClient
) -> None:
    """Both come after the deletion has looked and before it is done; neither is left without a subscription."""
    checkpointed(queue)
    between = Interposed(zk)

    def meanwhile() -> None:
        other.attach("q", "s", listener("late"))
        queue.claim("q", 1, "h", 1, NEVER_OWNED)
        assert queue.save_checkpoints([update(1, 5)]) == [None]

    between.before = lambda: setattr(between, "before", meanwhile)  # before the second transaction
    Catalog(between).delete_subscription("q", "s")
    assert len(between.transactions) > 4, "it had to begin again"
    assert (queue.subscriptions("q"), queue.listeners("q")) == ([], [])


@pytest.mark.parametrize("done", range(3))
def test_a_deletion_that_breaks_off_can_be_ended_by_another(queue: Catalog, zk: ZooKeeperClient, done: int) -> None:
    checkpointed(queue)
    queue.attach("q", "s", listener())
    between = Interposed(zk)
    between.down_after = done
    with pytest.raises(MetadataUnavailable):
        Catalog(between).delete_subscription("q", "s")
    assert queue.subscriptions("q") == ["s"]
    queue.delete_subscription("q", "s")
    assert queue.subscriptions("q") == []


def test_the_holder_is_given_as_a_record_to_take_over_from(queue: Catalog, other: Catalog) -> None:
    queue.attach("q", "s", listener("a"))
    seen = other.listener("q", "s")
    assert isinstance(seen, ListenerRecord)
    assert other.checkpoints("q", "s") == dict[int, Checkpoint]()
    other.attach("q", "s", listener("b"), replace=seen)
