"""What every message store promises about epochs and retention. `host` makes one more host on the same storage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from delivery.errors import Fenced
from delivery.ids import first_id_at
from delivery.model import QueueSettings
from delivery.storage.base import Bounds, MessageStore
from delivery.storage.sealed import EpochIds
from tests.stores import KEY, NOW_MS, OTHER, batch, bodies_of, headers_of, sized, store_all

Host = Callable[[], MessageStore]
KEEP = QueueSettings()


# -- fencing --------------------------------------------------------------------------------------------------------


def test_a_newer_epoch_fences_the_older_owner(host: Host) -> None:
    old, new = host(), host()
    old.open(KEY, 1, KEEP)
    store_all(old, [batch(10, [b"kept"])])
    assert new.open(KEY, 2, KEEP).last_id == 10
    answers = old.append([batch(11, [b"late"]), batch(12, [b"later"])])
    assert [type(answer) for answer in answers] == [Fenced, Fenced]
    store_all(new, [batch(11, [b"new"], epoch=2)])
    assert bodies_of(new) == [b"kept", b"new"]
    assert host().open(KEY, 3, KEEP).last_id == 11


def test_a_fenced_owner_stays_fenced(host: Host) -> None:
    old, new = host(), host()
    old.open(KEY, 1, KEEP)
    new.open(KEY, 2, KEEP)
    for base in (5, 6):
        assert isinstance(old.append([batch(base)])[0], Fenced)
    with pytest.raises(Fenced):
        old.open(KEY, 1, KEEP)
    assert bodies_of(new) == []


def test_a_fenced_owner_sees_no_more_than_it_knew(host: Host) -> None:
    old, new = host(), host()
    old.open(KEY, 1, KEEP)
    store_all(old, [batch(10, [b"kept"])])
    new.open(KEY, 2, KEEP)
    store_all(new, [batch(11, [b"new"], epoch=2)])
    assert bodies_of(old) == [b"kept"]
    assert old.bounds(KEY).last_id == 10


def test_an_older_epoch_cannot_open(host: Host) -> None:
    first, second = host(), host()
    first.open(KEY, 5, KEEP)
    for store in (first, second):
        with pytest.raises(Fenced):
            store.open(KEY, 4, KEEP)
    store_all(first, [batch(1, epoch=5)])


def test_a_batch_of_another_epoch_and_what_follows_it_fail(store: MessageStore) -> None:
    store.open(KEY, 2, KEEP)
    group = [batch(1, [b"a"], epoch=2), batch(2, [b"b"], epoch=1), batch(3, [b"c"], epoch=2), batch(1, key=OTHER)]
    answers = store.append(group)
    assert [type(answer) for answer in answers] == [type(None), Fenced, Fenced, type(None)]
    assert bodies_of(store) == [b"a"]


def test_ownership_goes_back_and_forth_without_a_loss(host: Host) -> None:
    stores = [host(), host()]
    for epoch in range(1, 9):
        store = stores[epoch % 2]
        assert store.open(KEY, epoch, KEEP).last_id == 10 * (epoch - 1)
        store_all(store, [batch(10 * epoch, [str(epoch).encode()], epoch=epoch)])
    assert bodies_of(stores[0]) == [str(epoch).encode() for epoch in range(1, 9)]
    assert stores[0].measure(KEY, 0, 1000).messages == 8


def test_a_partition_that_will_be_released_is_served_until_it_is_and_the_next_owner_finds_all(host: Host) -> None:
    """Large enough for a store to do something about it."""
    old, new = host(), host()
    old.open(KEY, 1, KEEP)
    store_all(old, [sized(base, 1 << 18) for base in (10, 11)])
    old.prepare_release(KEY)
    old.prepare_release(OTHER)
    store_all(old, [batch(12, [b"meanwhile"], producer=(7, 3))])
    old.prepare_release(KEY)
    old.release(KEY)
    old.prepare_release(KEY)
    state = new.open(KEY, 2, KEEP)
    assert (state.last_id, [one.sequence for one in state.producers]) == (12, [3])
    assert [header.base_id for header in headers_of(new)] == [10, 11, 12]


def test_a_fenced_owner_has_nothing_to_prepare_and_leaves_all_to_the_newer_one(host: Host) -> None:
    old, new = host(), host()
    old.open(KEY, 1, KEEP)
    store_all(old, [sized(10, 1 << 19)])
    new.open(KEY, 2, KEEP)
    store_all(new, [batch(11, [b"new"], epoch=2)])
    with contextlib.suppress(Fenced):
        old.prepare_release(KEY)
    store_all(new, [batch(12, [b"newer"], epoch=2)])
    assert [header.base_id for header in headers_of(new)] == [10, 11, 12]


# -- retention ------------------------------------------------------------------------------------------------------


def test_messages_older_than_the_ttl_go_even_when_nothing_new_comes(store: MessageStore) -> None:
    old = first_id_at(NOW_MS - 10_000)
    store_all(store, [batch(old, [b"x"] * 3, producer=(6, 1))])
    freed = store.trim(KEY, QueueSettings(ttl_seconds=5), NOW_MS)
    assert freed > 0
    assert store.read(KEY, 0, 1000) is None
    assert store.bounds(KEY) == Bounds(0, old + 2, 0, 0)
    assert store.measure(KEY, 0, 10**18).messages == 0


def test_after_everything_was_trimmed_ids_still_rise_and_producers_are_known(host: Host) -> None:
    store = host()
    store.open(KEY, 1, KEEP)
    old = first_id_at(NOW_MS - 10_000)
    for base in (old, old + 10, old + 20):
        store_all(store, [batch(base, producer=(6, base - old))])
        assert store.trim(KEY, QueueSettings(ttl_seconds=5), NOW_MS) > 0
    for epoch in (2, 3):
        state = host().open(KEY, epoch, KEEP)
        assert state.last_id == old + 20
        assert [stored.sequence for stored in state.producers] == [0, 10, 20]


def test_messages_younger_than_the_ttl_stay(store: MessageStore) -> None:
    store_all(store, [batch(first_id_at(NOW_MS - 4_000))])
    assert store.trim(KEY, QueueSettings(ttl_seconds=5), NOW_MS) == 0
    assert len(headers_of(store)) == 1


def test_above_its_size_a_partition_loses_its_oldest_messages_first(store: MessageStore) -> None:
    limit = QueueSettings(retention_bytes=1 << 20)
    group = [sized(base, 50_000) for base in range(1, 41)]
    for item in group:
        store_all(store, [item])
    freed = store.trim(KEY, limit, NOW_MS)
    left = headers_of(store)
    assert [header.base_id for header in left] == list(range(41 - len(left), 41))
    assert (1 << 20) - 400_000 < store.bounds(KEY).bytes <= 1 << 20
    assert freed == sum(item.header.length for item in group) - store.bounds(KEY).bytes
    assert store.trim(KEY, limit, NOW_MS) == 0


def test_a_reader_below_what_is_left_goes_on_at_the_first_that_is(store: MessageStore) -> None:
    for base in range(1, 41):
        store_all(store, [sized(base, 50_000)])
    chunk = store.read(KEY, 0, 10)
    assert chunk is not None
    store.trim(KEY, QueueSettings(retention_bytes=1 << 20), NOW_MS)
    first = store.bounds(KEY).first_id
    assert first > 10
    for after in (0, chunk.last_id, 5):
        again = store.read(KEY, after, 10)
        assert again is not None
        assert again.headers[0].base_id == first
    assert store.measure(KEY, 0, 100).messages == len(headers_of(store)) == 41 - first


@pytest.mark.parametrize(
    "limit", [QueueSettings(ttl_seconds=5), QueueSettings(retention_bytes=1 << 20)], ids=["age", "size"]
)
def test_nothing_above_an_id_is_trimmed_whatever_the_settings_say(store: MessageStore, limit: QueueSettings) -> None:
    base = first_id_at(NOW_MS - 60_000)
    for number in range(30):
        store_all(store, [sized(base + number, 100_000)])
    assert store.trim(KEY, limit, NOW_MS, base - 1) == 0
    store.trim(KEY, limit, NOW_MS, base + 9)
    assert base < store.bounds(KEY).first_id <= base + 10
    assert [one.base_id for one in headers_of(store)][-20:] == [base + number for number in range(10, 30)]


def test_trimming_leaves_what_is_appended_later(store: MessageStore) -> None:
    old, new = first_id_at(NOW_MS - 10_000), first_id_at(NOW_MS)
    store_all(store, [batch(old, [b"old"])])
    store.trim(KEY, QueueSettings(ttl_seconds=5), NOW_MS)
    store_all(store, [batch(new, [b"new"])])
    assert bodies_of(store) == [b"new"]
    assert store.bounds(KEY).first_id == new
    state = store.open(KEY, 2, KEEP)
    assert state.last_id == new
    assert bodies_of(store) == [b"new"]


def test_an_owner_hears_what_each_older_epoch_left(host: Host) -> None:
    first = host()
    assert first.open(KEY, 1, KEEP).sealed == ()
    store_all(first, [sized(10, 100), sized(20, 100, count=5)])
    second = host()
    assert second.open(KEY, 3, KEEP).sealed == (EpochIds(1, 10, 24),)
    assert second.open(KEY, 4, KEEP).sealed == (EpochIds(1, 10, 24),), "an epoch that stored nothing left nothing"
    store_all(second, [sized(30, 60_000, epoch=4), sized(31, 60_000, epoch=4), sized(32, 100, epoch=4)])
    assert second.open(KEY, 4, KEEP).sealed == (EpochIds(1, 10, 24),), "its own are none of the older ones"
    third = host()
    assert third.open(KEY, 9, KEEP).sealed == (EpochIds(1, 10, 24), EpochIds(4, 30, 32))
    assert sorted(third.queues()) == [(KEY.queue, KEY.generation)]
    third.delete(KEY.queue, KEY.generation)
    assert third.queues() == []
