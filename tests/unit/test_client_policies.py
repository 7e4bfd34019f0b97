"""The publisher's pure decisions: where a message goes, which host is asked, and whose turn it is."""

from __future__ import annotations

import threading
from random import Random
from time import monotonic

import pytest
from hypothesis import given, strategies as st
from msgspec import structs

from delivery.client.hosts import Owners, Route
from delivery.client.routing import Router
from delivery.client.turns import Turns
from delivery.errors import (
    CorruptRecord,
    HootError,
    HostUnreachable,
    InvalidRequest,
    MetadataUnavailable,
    NoHost,
    NotOwner,
    ServiceStopping,
    StorageUnavailable,
    UnknownPartition,
)
from delivery.metastore.live import Address, parse_address
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.records import HostRecord
from delivery.model import partition_of
from tests.scripted_host import FixedCatalog

SECONDS = 20.0

# -- routing --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 100), st.binary(max_size=20), st.integers(0, 2**32))
def test_a_key_has_one_partition_and_a_named_partition_wins(partitions: int, key: bytes, seed: int) -> None:
    router = Router("q", partitions, Random(seed))
    assert router.route(key, None) == partition_of(key, partitions) < partitions
    assert router.route(key, partitions - 1) == partitions - 1
    with pytest.raises(UnknownPartition):
        router.route(None, partitions)
    with pytest.raises(InvalidRequest):
        router.route(None, True)


@given(st.integers(2, 100), st.integers(0, 2**32))
def test_messages_without_a_key_stay_until_a_change_and_then_go_elsewhere(partitions: int, seed: int) -> None:
    router = Router("q", partitions, Random(seed))
    first = router.route(None, None)
    assert router.route(None, None) == first
    router.change()
    assert router.route(None, None) != first
    assert 0 <= router.sticky < partitions


def test_random_partitions_are_all_used() -> None:
    router, seen = Router("q", 5, Random(1)), set()
    for _ in range(200):
        seen.add(router.sticky)
        router.change()
    assert seen == set(range(5))


# -- hosts ----------------------------------------------------------------------------------------------------------

ONE, TWO, THREE = (
    HostRecord(name, "10.0.0.1", port, None, port, "1", 0) for name, port in (("a", 1), ("b", 2), ("c", 3))
)


def address(of: HostRecord) -> Address:
    return (of.address, of.port)


def named(of: HostRecord) -> NotOwner:
    return NotOwner("elsewhere", address=of.host_port)


def test_the_live_owner_is_asked_and_remembered() -> None:
    catalog = FixedCatalog(ONE, TWO)
    catalog.owned = {0: OwnerInfo("b", 2, 1)}
    owners = Owners(catalog)
    assert [owners.address("q", 0) for _ in range(5)] == [address(TWO)] * 5
    assert catalog.looks == 1


def test_an_owner_of_another_session_is_not_asked() -> None:
    catalog = FixedCatalog(ONE)
    catalog.owned = {0: OwnerInfo("a", 99, 1), 1: OwnerInfo("gone", 7, 1)}
    owners = Owners(catalog)
    assert owners.address("q", 0) == owners.address("q", 1) == address(ONE)
    with pytest.raises(NoHost):
        Owners(FixedCatalog()).address("q", 0)


def test_of_the_hosts_that_do_not_own_it_one_that_drains_is_asked_last() -> None:
    leaving = structs.replace(TWO, draining=True)
    assert {Owners(FixedCatalog(ONE, leaving), Random(seed)).address("q", 0) for seed in range(20)} == {address(ONE)}
    assert Owners(FixedCatalog(leaving)).address("q", 0) == address(TWO)


def test_at_most_two_redirects_are_followed_then_the_catalog_is_asked_after_a_pause() -> None:
    catalog = FixedCatalog(ONE)
    route = Route(Owners(catalog), "q", 0)
    assert route.address() == address(ONE)
    assert route.failed(named(TWO)) == 0
    assert route.address() == address(TWO)
    assert route.failed(named(THREE)) == 0
    assert route.address() == address(THREE)
    assert route.failed(NotOwner("not me", address="10.0.0.9:9")) > 0
    assert route.address() == address(ONE)


def test_a_host_that_was_asked_already_is_not_followed_again() -> None:
    route = Route(Owners(FixedCatalog(ONE)), "q", 0)
    route.address()
    assert route.failed(named(TWO)) == 0
    route.address()
    assert route.failed(named(ONE)) > 0


def test_pauses_grow_up_to_a_limit_and_end_with_an_answer() -> None:
    route = Route(Owners(FixedCatalog(ONE)), "q", 0)
    pauses = []
    for _ in range(12):
        route.address()
        pauses.append(route.failed(HostUnreachable("gone")))
    assert max(pauses) <= 1.0
    assert min(pauses[-3:]) >= 0.5
    route.arrived()
    assert route.failed(HostUnreachable("gone")) < 0.05


def test_after_a_failure_another_live_host_is_tried() -> None:
    owners = Owners(FixedCatalog(ONE, TWO), Random(1))
    route = Route(owners, "q", 0)
    first = route.address()
    route.failed(HostUnreachable("gone"))
    assert route.address() != first


def test_an_owner_that_cannot_be_reached_twice_is_looked_for_by_another_host() -> None:
    catalog = FixedCatalog(ONE, TWO)
    catalog.owned = {0: OwnerInfo("a", 1, 1)}
    route = Route(Owners(catalog), "q", 0)
    for _ in range(2):
        assert route.address() == address(ONE)
        route.failed(HostUnreachable("refused"))
    assert route.address() == address(TWO)
    assert route.failed(named(ONE)) == 0, "it lives: that host has looked"
    assert route.address() == address(ONE)
    route.arrived()
    route.failed(HostUnreachable("closed"))
    assert route.address() == address(ONE), "once is no reason"


def test_an_owner_that_cannot_be_reached_and_has_no_neighbour_is_asked_again() -> None:
    catalog = FixedCatalog(ONE)
    catalog.owned = {0: OwnerInfo("a", 1, 1)}
    route = Route(Owners(catalog), "q", 0)
    for _ in range(4):
        assert route.address() == address(ONE)
        route.failed(HostUnreachable("refused"))


@pytest.mark.parametrize("seed", range(20))
def test_of_many_that_are_dead_and_registered_each_is_asked_once_without_growing_pauses(seed: int) -> None:
    hosts = [HostRecord(f"h{number}", "10.0.0.1", 1 + number, None, number, "1", 0) for number in range(9)]
    alive, owner = address(hosts[7]), address(hosts[0])
    catalog = FixedCatalog(*hosts)
    catalog.owned = {0: OwnerInfo("h0", 0, 1), 1: OwnerInfo("h0", 0, 1)}
    owners = Owners(catalog, Random(seed))
    asked, pauses = [], list[float]()
    route = Route(owners, "q", 0)
    while (at := route.address()) != alive:
        asked.append(at)
        pauses.append(route.failed(HostUnreachable("refused")))
    assert asked[:2] == [owner, owner]
    assert len(set(asked[2:])) == len(asked[2:]) <= 7
    assert sum(pauses) < 0.3
    other = Route(owners, "q", 1)
    for _ in range(2):
        assert other.address() == owner
        other.failed(HostUnreachable("refused"))
    known = {*asked}
    assert other.address() not in known, "what one partition has learnt the others know"


@pytest.mark.parametrize("error", [MetadataUnavailable, ServiceStopping, StorageUnavailable])
def test_an_owner_that_can_serve_no_longer_is_asked_until_zookeeper_names_another(error: type[HootError]) -> None:
    catalog = FixedCatalog(ONE, TWO)
    catalog.owned = {0: OwnerInfo("a", 1, 1)}
    route = Route(Owners(catalog), "q", 0)
    assert route.address() == address(ONE)
    route.failed(error("not here, not now"))
    assert route.address() == address(ONE)
    catalog.owned = {0: OwnerInfo("b", 2, 2)}
    route.failed(error("not here, not now"))
    assert route.address() == address(TWO)


def test_while_zookeeper_does_not_answer_the_partitions_do_not_wait_for_it_one_by_one() -> None:
    class Silent(FixedCatalog):
        def readable_hosts(self) -> tuple[list[HostRecord], list[CorruptRecord]]:
            self.looks += 1
            raise MetadataUnavailable("silence")

    catalog = Silent()
    owners = Owners(catalog)
    for partition in range(100):
        with pytest.raises(MetadataUnavailable):
            owners.address("q", partition)
    assert catalog.looks < 10


@pytest.mark.parametrize("text", ["", None, "host", "host:", ":5", "host:0", "host:65536", "host:x", "host:１"])
def test_what_is_no_address_is_not_followed(text: str | None) -> None:
    assert parse_address(text) is None
    assert parse_address("[::1]:9") == ("::1", 9)


# -- turns ----------------------------------------------------------------------------------------------------------


def test_one_leads_and_the_others_end_when_their_wish_comes_true() -> None:
    turns, done = Turns(), threading.Event()
    assert turns.take(lambda: False, monotonic())
    led: list[bool] = []
    waiting = [
        threading.Thread(target=lambda: led.append(turns.take(done.is_set, monotonic() + SECONDS))) for _ in range(8)
    ]
    for one in waiting:
        one.start()
    assert not turns.take(lambda: False, monotonic() + 0.01), "its time is up"
    done.set()
    while len(led) < 8:
        turns.tell()
    assert not any(led)
    turns.pass_on()
    assert turns.take(lambda: False, monotonic()), "the turn is free"


def test_the_lead_goes_from_one_to_the_next() -> None:
    turns, count = Turns(), 6
    order: list[int] = []

    def lead(number: int) -> None:
        assert turns.take(lambda: False, monotonic() + SECONDS)
        order.append(number)
        turns.pass_on()

    assert turns.take(lambda: False, monotonic())
    threads = [threading.Thread(target=lead, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    turns.pass_on()
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(order) == list(range(count))
