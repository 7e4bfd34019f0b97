"""What every message store tells of how much it holds; one suite over all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings, strategies as st

from delivery.batch import Header
from delivery.ids import ID_MAX
from delivery.model import QueueSettings
from delivery.storage.base import Append, MessageStore, PartitionKey
from tests.stores import KEY, batch, bodies_of, headers_of, messages_of, sized, store_all
from tests.strategies import times

Host = Callable[[], MessageStore]
KEEP = QueueSettings()
generations = itertools.count()


def test_ids_are_counted_from_above_one_up_to_another(store: MessageStore) -> None:
    store_all(store, [batch(10, [b"a"] * 5), batch(100, [b"b"] * 7), batch(107, [b"c"])])
    ids = [message.number for message in messages_of(store)]
    places = [0, 9, 10, 12, 14, 15, 99, 100, 106, 107, 108, 10**18]
    for after in places:
        for until in places:
            found = store.measure(KEY, after, until).messages
            assert found == sum(after < number <= until for number in ids), (after, until)


def _check_bytes(store: MessageStore, key: PartitionKey, group: list[Append], after: int, until: int) -> None:
    """Batches in between count whole; of those that the ends cut at most all."""
    headers = [item.header for item in group]
    whole = sum(one.length for one in headers if one.base_id > after and one.last_id <= until)
    touched = sum(one.length for one in headers if one.last_id > after and one.base_id <= until)
    assert whole <= store.measure(key, after, until).bytes <= (touched if after < until else 0)


def shown_ids(header: Header) -> range:
    """Of a batch of the engine's own only the ids that it keeps behind its messages count."""
    return range(header.base_id + (header.count if header.span > header.count else 0), header.last_id + 1)


def test_what_the_engine_keeps_between_the_messages_is_not_counted_and_is_there(store: MessageStore) -> None:
    store_all(store, [batch(10, [b"a"] * 5, topic="hoot.stored")])
    assert (store.bounds(KEY).first_id, store.bounds(KEY).last_id, store.bounds(KEY).messages) == (10, 14, 0)
    assert store.measure(KEY, 0, ID_MAX).messages == 0
    assert bodies_of(store) == [b"a"] * 5
    store.open(KEY, 2, KEEP)
    store_all(store, [batch(20, [b"b"] * 3, epoch=2), batch(30, topic="hoot.rollback", epoch=2)])
    assert (store.bounds(KEY).first_id, store.bounds(KEY).messages) == (10, 3)
    for after, until in ((0, 20), (12, 22), (20, 30), (14, 19), (22, 40)):
        assert store.measure(KEY, after, until).messages == sum(after < number <= until for number in (20, 21, 22))
    assert len(bodies_of(store)) == 9


@settings(times(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.lists(
        st.tuples(
            st.integers(1, 40), st.integers(1, 12_000), st.integers(1, 200), st.sampled_from([0, 0, 0, 1, 100, 70_000])
        ),
        min_size=1, max_size=40,
    ),
    data=st.data(),
)  # fmt: skip
def test_any_partition_reads_and_counts_as_the_list_of_its_messages(
    host: Host, shape: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    """Batches of many sizes, with gaps between the ids and ids behind their messages, over several segments."""
    store = host()
    key = PartitionKey("any", f"g{next(generations)}", 0)
    store.open(key, 1, KEEP)
    base, group = 0, []
    for gap, size, count, spare in shape:
        group.append(sized(base + gap, size, key=key, count=count, spare=spare))
        base = group[-1].header.last_id
        store_all(store, group[-1:])
    ids = [number for item in group for number in shown_ids(item.header)]
    for _ in range(5):
        after, until = data.draw(st.integers(0, base + 2)), data.draw(st.integers(0, base + 2))
        assert store.measure(key, after, until).messages == sum(after < number <= until for number in ids)
        _check_bytes(store, key, group, after, until)
        limit = data.draw(st.integers(1, 20_000))
        assert headers_of(store, key, after, limit) == [i.header for i in group if i.header.last_id > after]
    store.release(key)
    assert store.open(key, 2, KEEP).last_id == base
    assert headers_of(store, key) == [item.header for item in group]
