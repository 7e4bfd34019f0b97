"""The members of groups in a real ZooKeeper: who has a place, who agrees with whom, and who holds what."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from delivery.errors import BadVersion, GroupMismatch, SubscriptionBusy
from delivery.metastore.catalog import Catalog
from delivery.metastore.groups import fits
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.integration.metastore import Interposed, at_once, catalog_over, listener, rewrite, subscription

pytestmark = pytest.mark.integration

GROUP = msgspec.structs.replace(subscription(), kind="shared", starts=dict.fromkeys(range(6), 0))


def member(name: str, port: int = 5000) -> ListenerRecord:
    return msgspec.structs.replace(listener(f"of {name}", port), member=name)


@pytest.fixture
def group(queue: Catalog) -> Catalog:
    rewrite(queue, GROUP)
    return queue


def holders(catalog: Catalog) -> dict[str, tuple[int, ...]]:
    found = catalog.subscription("q", "s")
    assert found is not None
    return found.holders


def test_members_are_attached_beside_one_another_each_in_a_place_of_its_own(group: Catalog, other: Catalog) -> None:
    group.attach("q", "s", member("a"))
    other.attach("q", "s", member("b"))
    assert group.members("q", "s") == [member("a"), member("b")]
    assert (group.listeners("q"), group.listener("q", "s", "b")) == (["s"], member("b"))
    with pytest.raises(SubscriptionBusy, match="member 'a'"):
        other.attach("q", "s", member("a", port=5001))
    group.detach("q", "s", member("a"))
    assert group.members("q", "s") == [member("b")]


def test_a_listener_without_a_place_is_refused(group: Catalog) -> None:
    with pytest.raises(GroupMismatch, match="its members have names"):
        group.attach("q", "s", listener())
    rewrite(group, subscription())
    with pytest.raises(GroupMismatch, match="it has no members"):
        group.attach("q", "s", member("a"))
    assert group.members("q", "s") == []


@pytest.mark.parametrize("changed", [{"kind": "exclusive"}, {"topics": ("other",)}], ids=["kind", "topics"])
def test_a_member_that_comes_while_the_options_are_changed_hears_of_it_and_is_not_attached(
    group: Catalog, zk: ZooKeeperClient, changed: dict[str, object]
) -> None:
    between = Interposed(zk)
    between.before = lambda: rewrite(group, msgspec.structs.replace(GROUP, **changed))
    with pytest.raises(GroupMismatch):
        catalog_over(between).attach("q", "s", member("a"), agreed=GROUP)
    assert group.members("q", "s") == []


def test_options_are_not_changed_under_a_member_that_comes_at_that_moment(
    group: Catalog, other: Catalog, zk: ZooKeeperClient
) -> None:
    """As a subscriber does it that asks for others: it looks who is there, then writes under the version of before."""
    between = Interposed(zk)
    between.before = lambda: other.attach("q", "s", member("a"), agreed=GROUP)

    def change(found: SubscriptionRecord) -> SubscriptionRecord:
        if group.members("q", "s"):
            raise BadVersion("somebody is there")
        return msgspec.structs.replace(found, topics=("other",))

    with pytest.raises(BadVersion, match="somebody is there"):
        catalog_over(between).change_subscription("q", "s", change)
    assert group.subscription("q", "s") == GROUP


def test_hosts_that_spread_at_once_agree(group: Catalog, other: Catalog) -> None:
    for name in "abc":
        group.attach("q", "s", member(name))
        outcomes = at_once([partial(catalog.spread, "q", "s") for catalog in (group, other) * 2])
        assert outcomes == [group.subscription("q", "s")] * 4
        assert fits(holders(group), [one.member for one in group.members("q", "s")], GROUP.starts)
    before = holders(group)
    for name in "abc":
        group.detach("q", "s", member(name))
    assert group.spread("q", "s").holders == before, "whoever comes back finds its partitions"


def test_deleting_a_subscription_takes_all_members_off(group: Catalog, other: Catalog) -> None:
    group.attach("q", "s", member("a"))
    other.attach("q", "s", member("b"))
    group.delete_subscription("q", "s")
    assert group.seats(["q"]) == [{}]
