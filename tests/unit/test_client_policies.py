"""The publisher's pure decisions: where a message goes, which batch it joins, which host is asked, whose turn it is."""

from __future__ import annotations

import threading
from random import Random
from time import monotonic

import pytest
from hypothesis import given, strategies as st
from msgspec import structs

from delivery.client.accumulator import ROW_BYTES, Accumulator, Limits
from delivery.client.hosts import Owners, Route
from delivery.client.receipts import Batch
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
from tests.lanes import rows_of
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


# -- batching -------------------------------------------------------------------------------------------------------


def accumulator(partitions: int = 1, **limits: float) -> Accumulator:
    return Accumulator(Router("q", partitions, Random(1)), Limits(**limits), 1 << 20)  # type: ignore[arg-type]


def place(of: Accumulator, body: bytes = b"x", now: float = 0.0, key: bytes | None = None) -> Batch:
    return of.place((body, key, "", b""), len(body) + ROW_BYTES, None, now, 30.0)


def test_a_batch_waits_for_its_linger_and_is_then_taken_whole() -> None:
    under_test = accumulator(linger=1.0)
    batch = place(under_test, now=0.0)
    assert place(under_test, now=0.5) is batch
    assert under_test.ready(0.9) == []
    assert under_test.take(0, 0.9) is None
    assert under_test.next_due(0.9) == 1.0
    assert under_test.ready(1.0) == [0]
    assert under_test.take(0, 1.0) is batch
    assert len(batch.rows) == 2
    assert under_test.take(0, 1.0) is None


def test_a_full_batch_may_go_at_once_and_the_next_message_opens_another() -> None:
    under_test = accumulator(linger=60.0, batch_messages=2)
    batches = [place(under_test) for _ in range(5)]
    assert batches[0] is batches[1]
    assert batches[1] is not batches[2]
    assert under_test.closings == 2
    assert [under_test.take(0, 0.0), under_test.take(0, 0.0)] == [batches[0], batches[2]]
    under_test.hurry(0.0)
    assert under_test.take(0, 0.0) is batches[4]


def test_an_open_batch_that_is_due_goes_on_growing_until_it_is_taken() -> None:
    under_test = accumulator(linger=0.0)
    assert place(under_test, now=0.0) is place(under_test, now=5.0)


def test_a_message_larger_than_a_batch_or_the_buffer_goes_alone() -> None:
    under_test = accumulator(batch_bytes=100, buffer_bytes=50)
    assert under_test.fits(5000)
    batch = place(under_test, bytes(5000))
    assert not under_test.fits(1)
    under_test.hurry(0.0)
    assert under_test.take(0, 0.0) is batch
    under_test.settled(batch)
    assert under_test.fits(5000)


def test_batches_past_their_deadline_are_taken_out() -> None:
    under_test = accumulator(batch_messages=1)
    early, late = place(under_test, now=0.0), place(under_test, now=10.0)
    assert under_test.expired(30.0) == [early]
    assert under_test.expired(40.0) == [late]
    assert under_test.ready(99.0) == []


@given(
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from([None, b"a", b"b", b"c"])), max_size=120),
    st.integers(1, 6), st.integers(1, 500), st.integers(0, 2**32),
)  # fmt: skip
def test_every_message_leaves_in_one_batch_in_order_within_the_limits(
    messages: list[tuple[int, bytes | None]], batch_messages: int, batch_bytes: int, seed: int
) -> None:
    random, now = Random(seed), 0.0
    under_test = accumulator(3, batch_messages=batch_messages, batch_bytes=batch_bytes, linger=1.0)
    room, taken = under_test.room, []
    for number, (size, key) in enumerate(messages):
        body = number.to_bytes(2, "big") + bytes(size)
        place(under_test, body, now, key)
        now += random.random()
        if random.random() < 0.3:
            taken += [b for p in under_test.ready(now) if (b := under_test.take(p, now)) is not None]
    taken += under_test.take_all()
    for batch in taken:
        assert batch.partition < 3
        assert len(batch.rows) == 1 or (len(batch.rows) <= batch_messages and batch.size <= batch_bytes)
        for _, key, _, _ in rows_of(batch):
            assert key is None or partition_of(key, 3) == batch.partition
        under_test.settled(batch)
    numbers = [int.from_bytes(row[0][:2], "big") for batch in taken for row in rows_of(batch)]
    assert sorted(numbers) == list(range(len(messages)))
    for partition in range(3):
        mine = [int.from_bytes(r[0][:2], "big") for b in taken if b.partition == partition for r in rows_of(b)]
        assert mine == sorted(mine)
    assert under_test.room == room
    assert not under_test.unsettled


# -- hosts ----------------------------------------------------------------------------------------------------------

ONE, TWO, THREE = (
    HostRecord(name, "10.0.0.1", port, None, port, "1", 0) for name, port in (("a", 1), ("b", 2), ("c", 3))
)


def address(of: HostRecord) -> Address:
    return (of.address, of.port)


def named(of: HostRecord) -> NotOwner:
    return NotOwner("elsewhere", address=f"{of.address}:{of.port}")


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
