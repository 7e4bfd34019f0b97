"""Attaching to subscriptions in a real ZooKeeper: who may attach, take over and detach, and who is in the way."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from delivery.errors import (
    BadVersion,
    CorruptRecord,
    MetadataUnavailable,
    SubscriptionBusy,
    UnknownQueue,
    UnknownSubscription,
)
from delivery.metastore import records
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.integration.metastore import (
    Interposed,
    at_once,
    catalog_over,
    listener,
    rewrite,
    subscription,
)

pytestmark = pytest.mark.integration


def test_an_attached_listener_is_there_until_its_session_ends_and_the_subscription_stays(
    queue: Catalog, other: Catalog, zookeeper_hosts: str
) -> None:
    with ZooKeeperClient(zookeeper_hosts) as client:
        open_catalog(client).attach("q", "s", listener("a"))
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
        catalog_over(between).attach("q", "s", listener("c"), replace=listener("a"))
    assert caught.value.address == "127.0.0.1:5002"
    assert queue.listener("q", "s") == listener("b", port=5002)


def test_a_detachment_does_not_hit_somebody_who_took_over_since(
    queue: Catalog, other: Catalog, zk: ZooKeeperClient
) -> None:
    queue.attach("q", "s", listener("a"))
    between = Interposed(zk)
    between.before = lambda: other.attach("q", "s", listener("b"), replace=listener("a"))
    catalog_over(between).detach("q", "s", listener("a"))
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
        open_catalog(old).attach("q", "s", listener("a"))
        queue.attach("q", "s", listener("a"))
    assert queue.listener("q", "s") == listener("a")


def test_when_the_answer_to_an_attachment_is_lost_it_is_recognised_as_ones_own(
    queue: Catalog, zk: ZooKeeperClient
) -> None:
    between = Interposed(zk)
    through = catalog_over(between)
    between.lose_answer = True
    through.attach("q", "s", listener("a"))
    assert queue.listener("q", "s") == listener("a")
    between.down_after = len(between.transactions)
    with pytest.raises(MetadataUnavailable):
        through.attach("q", "s", listener("b"), replace=listener("a"))


def test_when_the_answer_to_the_confirmation_is_lost_it_is_made_again(queue: Catalog, zk: ZooKeeperClient) -> None:
    """The value does not tell whether it was written: it is the one that was there."""
    between = Interposed(zk)
    through = catalog_over(between)
    between.before = lambda: setattr(between, "before", lambda: setattr(between, "lose_answer", True))
    through.attach("q", "s", listener("a"))
    assert len(between.transactions) == 3
    assert (queue.listener("q", "s"), queue.subscription("q", "s")) == (listener("a"), subscription())


def test_attaching_does_not_change_the_record_and_survives_a_change_of_it(queue: Catalog, zk: ZooKeeperClient) -> None:
    changed = msgspec.structs.replace(subscription(), topics=("new",))
    between = Interposed(zk)
    between.before = lambda: rewrite(queue, changed)
    catalog_over(between).attach("q", "s", listener("a"))
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
    zk.create(records.listeners_path("q"))
    zk.create(records.listener_path("q", "s"), value)
    with pytest.raises(CorruptRecord, match="/hoot/listeners/q/s"):
        queue.listener("q", "s")
    with pytest.raises(CorruptRecord, match="/hoot/listeners/q/s"):
        queue.attach("q", "s", listener())


@pytest.mark.parametrize("recreated", [False, True])
def test_who_attaches_to_what_is_deleted_at_that_moment_is_told_and_leaves_no_listener(
    queue: Catalog, other: Catalog, zk: ZooKeeperClient, recreated: bool
) -> None:
    """The deletion comes between the reading of the preferences and the listener; nobody sees an orphan."""
    between = Interposed(zk)

    def change() -> None:
        other.delete_subscription("q", "s")
        if recreated:
            other.create_subscription(subscription(created_ms=99))

    between.before = change
    through = catalog_over(between)
    if recreated:
        through.attach("q", "s", listener())
        assert queue.listener("q", "s") == listener()
    else:
        with pytest.raises(UnknownSubscription):
            through.attach("q", "s", listener())
        assert queue.listener("q", "s") is None


def test_who_counts_on_a_subscription_does_not_attach_to_the_one_that_was_made_again(
    queue: Catalog, other: Catalog, zk: ZooKeeperClient
) -> None:
    queue.attach("q", "s", listener())
    between = Interposed(zk)

    def change() -> None:
        other.delete_subscription("q", "s")
        other.create_subscription(subscription(created_ms=99))

    between.before = change
    with pytest.raises(BadVersion, match="made again"):
        catalog_over(between).attach("q", "s", listener(), agreed=subscription())
    assert queue.listener("q", "s") is None
    with pytest.raises(BadVersion, match="made again"):
        queue.attach("q", "s", listener(), agreed=subscription())


def test_who_attaches_while_the_queue_is_deleted_leaves_not_even_the_folder(
    queue: Catalog, other: Catalog, zk: ZooKeeperClient
) -> None:
    between = Interposed(zk)
    between.before = lambda: other.delete_queue("q")
    with pytest.raises(UnknownQueue):
        catalog_over(between).attach("q", "s", listener())
    assert zk.children(records.LISTENERS) == []


@pytest.mark.slow
def test_fifty_who_attach_to_one_queue_at_once_all_do(queue: Catalog, other: Catalog) -> None:
    names = [f"s{n}" for n in range(50)]
    for name in names:
        queue.create_subscription(subscription(name=name))
    calls = [partial((queue, other)[n % 2].attach, "q", name, listener(name)) for n, name in enumerate(names)]
    assert at_once(calls) == [None] * 50
    assert queue.listeners("q") == sorted(names)
