"""States through the catalog in a real ZooKeeper: in few requests, by one owner at a time, forward for all to see."""

from __future__ import annotations

import random

import pytest

from delivery.errors import Fenced, HootError, MetadataUnavailable, UnknownSubscription
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.managers.changes import SaveState, TakeState
from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.tables.versions import Version, Versioned
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from tests.integration.metastore import CREATED_MS, GENERATION, Interposed, at_once, catalog_over, make_queue

pytestmark = pytest.mark.integration
PARTITIONS = 5


def record(name: str = "s", created_ms: int = CREATED_MS) -> SubscriptionRecord:
    return SubscriptionRecord(
        name=name, queue="q", generation=GENERATION, created_ms=created_ms, starts=dict.fromkeys(range(PARTITIONS), 0),
        all_partitions=True, topics=(),
    )  # fmt: skip


@pytest.fixture
def between(catalog: Catalog, zk: ZooKeeperClient) -> Interposed:
    """A queue `q` with subscriptions `s` and `t`; and a hand in between."""
    make_queue(catalog, settings=QueueSettings(partitions=PARTITIONS))
    for name in ("s", "t"):
        catalog.create_subscription(record(name))
    return Interposed(zk)


class Owner:
    """Takes states under an epoch, and saves positions under what it holds."""

    def __init__(self, catalog: Catalog, epoch: int) -> None:
        self.catalog, self.epoch = catalog, epoch
        self.held: dict[tuple[str, int], Version] = {}

    def take(self, *names: str, created_ms: int = CREATED_MS) -> dict[tuple[str, int], int]:
        """Where all partitions of these subscriptions go on."""
        places = [(name, partition) for name in names for partition in range(PARTITIONS)]
        takes = [TakeState(record(name, created_ms), partition, self.epoch) for name, partition in places]
        found: dict[tuple[str, int], int] = {}
        for place, taken in zip(places, self.catalog.take_states(takes), strict=True):
            if isinstance(taken, Versioned):
                self.held[place], found[place] = taken.version, taken.value.position
        return found

    def save(
        self, positions: dict[tuple[str, int], int], created_ms: int = CREATED_MS
    ) -> dict[tuple[str, int], HootError]:
        """What could not be saved."""
        saves = [
            SaveState(
                "q", *place, SubscriptionState(position, self.epoch, "g", created_ms), self.held[place]
            )
            for place, position in positions.items()
        ]  # fmt: skip
        failed: dict[tuple[str, int], HootError] = {}
        for place, outcome in zip(positions, self.catalog.save_states(saves), strict=True):
            if isinstance(outcome, Version):
                self.held[place] = outcome
            else:
                failed[place] = outcome
        return failed


def positions(catalog: Catalog, name: str = "s") -> dict[int, int]:
    return {partition: state.position for partition, state in catalog.states("q", name).items()}


def test_250_saves_are_one_transaction_and_no_read(catalog: Catalog, between: Interposed) -> None:
    names = [f"s{number:02}" for number in range(50)]
    for name in names:
        catalog.create_subscription(record(name))
    owner = Owner(catalog_over(between), 1)
    taken = owner.take(*names)
    assert set(taken.values()) == {0}
    for number in (10, 20):
        between.transactions.clear()
        between.reads = 0
        assert owner.save(dict.fromkeys(taken, number)) == {}
        assert ([len(ops) for ops in between.transactions], between.reads) == ([250], 0)
    assert all(positions(catalog, name) == dict.fromkeys(range(PARTITIONS), 20) for name in names)


def test_250_states_that_are_there_are_taken_over_in_one_reading_and_one_transaction(
    catalog: Catalog, between: Interposed
) -> None:
    names = [f"s{number:02}" for number in range(50)]
    Owner(catalog, 1).take(*names)
    second = Owner(catalog_over(between), 2)
    between.transactions.clear()
    between.reads = 0
    assert len(second.take(*names)) == 250
    assert ([len(ops) for ops in between.transactions], between.reads) == ([250], 1)


def test_who_lost_some_states_saves_nothing_there_and_everything_elsewhere(
    catalog: Catalog, between: Interposed
) -> None:
    old, new = Owner(catalog_over(between), 1), Owner(catalog, 2)
    everything = dict.fromkeys(old.take("s", "t"), 10)
    new.take("t")
    failed = old.save(everything)
    assert {place: type(error) for place, error in failed.items()} == {("t", p): Fenced for p in range(PARTITIONS)}
    assert (positions(catalog), positions(catalog, "t")) == (dict.fromkeys(range(5), 10), dict.fromkeys(range(5), 0))
    assert new.save({("t", 1): 11}) == {}


@pytest.mark.usefixtures("between")
@pytest.mark.parametrize("anew", [False, True])
def test_a_deleted_subscription_does_not_hold_up_the_others(catalog: Catalog, anew: bool) -> None:
    owner = Owner(catalog, 1)
    owner.take("s", "t")
    assert owner.save({("s", 0): 5, ("t", 0): 5}) == {}
    catalog.delete_subscription("q", "s")
    if anew:
        catalog.create_subscription(record(created_ms=CREATED_MS + 1))
    failed = owner.save({("s", 0): 10, ("t", 0): 10, ("s", 1): 10})
    assert {place: type(error) for place, error in failed.items()} == {
        ("s", 0): UnknownSubscription, ("s", 1): UnknownSubscription
    }  # fmt: skip
    assert positions(catalog, "t")[0] == 10
    if anew:
        assert positions(catalog) == {}
        assert Owner(catalog, 1).take("s", created_ms=CREATED_MS + 1)["s", 0] == 0
    else:
        with pytest.raises(UnknownSubscription):
            catalog.states("q", "s")


def test_while_zookeeper_is_away_every_one_is_unavailable_and_can_be_saved_later(
    catalog: Catalog, between: Interposed
) -> None:
    owner = Owner(catalog_over(between), 1)
    owner.take("s")
    between.down_after = len(between.transactions)
    failed = owner.save({("s", 0): 10, ("s", 1): 10})
    assert all(isinstance(error, MetadataUnavailable) for error in failed.values())
    assert len(failed) == 2
    between.down_after = None
    between.lose_answer = True
    assert len(owner.save({("s", 0): 10, ("s", 1): 10})) == 2
    assert owner.save({("s", 0): 10, ("s", 1): 10}) == {}, "the same again: it was done"
    assert owner.save({("s", 0): 11, ("s", 1): 11}) == {}
    assert positions(catalog) == {0: 11, 1: 11, 2: 0, 3: 0, 4: 0}


def test_whatever_several_owners_do_no_state_is_ever_seen_lower(
    catalog: Catalog, between: Interposed, zookeeper_hosts: str
) -> None:
    """Hosts go on from what they took over while the states change hands; a third one watches."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    highest = dict.fromkeys(range(PARTITIONS), 0)
    with ZooKeeperClient(zookeeper_hosts) as third:
        hosts = [Owner(catalog_over(between), 1), Owner(open_catalog(third), 1)]
        at = [{partition: place for (_, partition), place in host.take("s").items()} for host in hosts]
        for epoch in range(2, 40):
            if chance.random() < 0.4:
                chosen = chance.randrange(2)
                hosts[chosen].epoch = epoch
                at[chosen] = {partition: place for (_, partition), place in hosts[chosen].take("s").items()}
            calls = []
            for host, belief in zip(hosts, at, strict=True):
                for partition in belief:
                    belief[partition] += chance.randrange(10)
                saves = {("s", partition): place for partition, place in belief.items()}
                calls.append(lambda host=host, saves=saves: host.save(saves))
            at_once(calls)
            for partition, found in positions(catalog).items():
                assert found >= highest[partition], f"seed {seed}"
                highest[partition] = found
    assert all(highest.values()), f"seed {seed}"
