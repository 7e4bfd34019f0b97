"""The owners of partitions in a real ZooKeeper: claims, epochs, releases."""

from __future__ import annotations

from functools import partial

import pytest

from delivery.errors import BadVersion, CorruptRecord, MetadataUnavailable, UnknownPartition, UnknownQueue
from delivery.metastore import records
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.managers.records import EPOCH_MAX, OwnerInfo
from delivery.metastore.partitions import NEVER_OWNED
from delivery.metastore.tables.versions import Version
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from tests.integration.metastore import Interposed, at_once, catalog_over, corrupt, entry

pytestmark = pytest.mark.integration
KEY = "q\x0100000"


def test_each_claim_takes_the_next_epoch_and_a_release_keeps_it(catalog: Catalog) -> None:
    catalog.create_queue("q", QueueSettings(partitions=2))
    assert catalog.partition("q", 1) == (None, NEVER_OWNED)
    assert catalog.claim("q", 1, "h1", 11, NEVER_OWNED) == OwnerInfo("h1", 11, 1)
    assert catalog.partition("q", 1) == (OwnerInfo("h1", 11, 1), NEVER_OWNED + 1)
    assert catalog.claim("q", 1, "h2", 22, 0) == OwnerInfo("h2", 22, 2)
    catalog.release("q", 1, 2, 1)
    assert catalog.partition("q", 1) == (OwnerInfo("", 0, 2), 2)
    assert catalog.owners("q") == {}
    assert catalog.claim("q", 1, "h1", 11, 2) == OwnerInfo("h1", 11, 3)
    assert catalog.owners("q") == {1: OwnerInfo("h1", 11, 3)}


@pytest.mark.parametrize("expected", [NEVER_OWNED, 0, 2])
def test_a_claim_on_an_outdated_view_is_refused(catalog: Catalog, expected: int) -> None:
    catalog.create_queue("q", QueueSettings())
    catalog.claim("q", 0, "h1", 1, NEVER_OWNED)
    catalog.claim("q", 0, "h2", 2, 0)
    with pytest.raises(BadVersion):
        catalog.claim("q", 0, "h3", 3, expected)
    with pytest.raises(BadVersion):
        catalog.release("q", 0, 1, 0)
    assert catalog.partition("q", 0) == (OwnerInfo("h2", 2, 2), 1)


def test_of_many_who_claim_at_once_exactly_one_wins_each_time(catalog: Catalog, zookeeper_hosts: str) -> None:
    catalog.create_queue("q", QueueSettings())
    with ZooKeeperClient(zookeeper_hosts) as one, ZooKeeperClient(zookeeper_hosts) as other:
        catalogs = [open_catalog(client) for client in (one, other, one, other)]
        for version in range(NEVER_OWNED, 20):
            outcomes = at_once([partial(c.claim, "q", 0, f"h{n}", n, version) for n, c in enumerate(catalogs)])
            [winner] = [outcome for outcome in outcomes if isinstance(outcome, OwnerInfo)]
            assert sum(isinstance(outcome, BadVersion) for outcome in outcomes) == 3
            assert winner.epoch == version + 2
            assert catalog.partition("q", 0) == (winner, version + 1)


def test_when_the_answer_to_a_claim_is_lost_the_claim_is_recognised_as_ones_own(
    catalog: Catalog, zk: ZooKeeperClient
) -> None:
    catalog.create_queue("q", QueueSettings())
    between = Interposed(zk)
    through = catalog_over(between)
    through.claim("q", 0, "h0", 0, NEVER_OWNED)
    between.lose_answer = True
    assert through.claim("q", 0, "h1", 1, 0) == OwnerInfo("h1", 1, 2)
    between.down_after = len(between.transactions)
    with pytest.raises(MetadataUnavailable):
        through.claim("q", 0, "h2", 2, 1)
    assert catalog.partition("q", 0) == (OwnerInfo("h1", 1, 2), 1)


def test_partitions_out_of_range_and_of_no_queue_are_refused(catalog: Catalog) -> None:
    for partition in (-1, 32767, 99999):
        with pytest.raises(UnknownPartition):
            catalog.partition("q", partition)
    with pytest.raises(UnknownQueue):
        catalog.claim("q", 0, "h", 1, NEVER_OWNED)
    assert catalog.partition("q", 0) == (None, NEVER_OWNED), "nothing is left of it"


@pytest.mark.parametrize("owned", [False, True])
def test_a_claim_that_meets_the_end_of_the_queue_leaves_no_owner(
    catalog: Catalog, zk: ZooKeeperClient, owned: bool
) -> None:
    catalog.create_queue("q", QueueSettings())
    between = Interposed(zk)
    through = catalog_over(between)
    if owned:
        through.claim("q", 0, "h1", 1, NEVER_OWNED)
    between.before = lambda: catalog.delete_queue("q")
    with pytest.raises(UnknownQueue):
        through.claim("q", 0, "h1", 1, 0 if owned else NEVER_OWNED)
    assert catalog.partition("q", 0) == (None, NEVER_OWNED)


@pytest.mark.parametrize("epoch", [0, -1, EPOCH_MAX + 1, 2**63, '"1"', "null"])
def test_an_impossible_epoch_is_named_and_never_claimed_over(
    catalog: Catalog, zk: ZooKeeperClient, epoch: object
) -> None:
    catalog.create_queue("q", QueueSettings())
    corrupt(zk, "owners", KEY, entry("owner", f'{{"epoch":{epoch},"host":"h","session":1}}'.encode()))
    for call in (
        lambda: catalog.partition("q", 0),
        lambda: catalog.claim("q", 0, "h", 1, 0),
        lambda: catalog.owners("q"),
    ):
        with pytest.raises(CorruptRecord, match=r"'q.x0100000' of table owners"):
            call()
    assert catalog.managers.owners._infos._table.get(KEY).version == Version(0)


def test_the_last_epoch_is_not_passed(catalog: Catalog, zk: ZooKeeperClient) -> None:
    catalog.create_queue("q", QueueSettings())
    corrupt(zk, "owners", KEY, entry("owner", records.encode(OwnerInfo("h", 1, EPOCH_MAX))))
    with pytest.raises(CorruptRecord, match="epoch"):
        catalog.claim("q", 0, "h", 1, 0)
