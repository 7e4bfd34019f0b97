"""Reading a partition across the border of the tail cache and the store: no gap, nothing twice."""

from __future__ import annotations

import trio
from hypothesis import given, strategies as st

from delivery.batch import Header
from delivery.cluster.partition import OwnedPartition, PartitionReader
from delivery.model import QueueSettings
from delivery.storage.base import Append, PartitionKey
from delivery.storage.memory import MemoryStore
from delivery.storage.tail import TailCache
from tests.strategies import stamped

KEY = PartitionKey("orders", "g1", 0)
SETTINGS = QueueSettings()


def append(store: MemoryStore, header: Header, data: bytes) -> None:
    assert store.append([Append(KEY, 1, header, data, "fsync")]) == [None]


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=25),
    st.integers(0, 3000),
    st.integers(0, 25),
    st.integers(1, 3000),
    st.integers(0, 30),
)
def test_every_batch_comes_once_and_in_order_wherever_the_cache_begins(
    sizes: list[int], cache_bytes: int, before: int, bytes_max: int, ahead: int
) -> None:
    """`before` batches were there when the partition was taken; the store may run `ahead` of the watermark."""

    async def run() -> None:
        store, tail = MemoryStore(), TailCache(cache_bytes)
        store.open(KEY, 1, SETTINGS)
        batches = [stamped([(b"x" * size, None, "", b"")], 10 * (n + 1)) for n, size in enumerate(sizes)]
        for header, data in batches[:before]:
            append(store, header, data)
        owned = OwnedPartition(KEY, SETTINGS, 1, 0, store.open(KEY, 1, SETTINGS), PartitionReader(store, tail))
        tail.begin(KEY, owned.watermark)
        later = batches[before:]
        for n, (header, data) in enumerate(later):
            append(store, header, data)
            if n + ahead < len(later):
                tail.append(KEY, header, data)
                owned.feed.advance(header.last_id)
        for header, data in later[max(0, len(later) - ahead) :]:
            after, found = 0, []
            while (chunk := await owned.read(after, bytes_max)) is not None:
                found += [each.base_id for each in chunk.headers]
                after = chunk.last_id
            assert found == sorted(set(found))
            assert found[: len(found)] == [each.base_id for each, _ in batches[: len(found)]]
            tail.append(KEY, header, data)
            owned.feed.advance(header.last_id)
        after, found = 0, []
        while (chunk := await owned.read(after, bytes_max)) is not None:
            found += [each.base_id for each in chunk.headers]
            after = chunk.last_id
        assert found == [header.base_id for header, _ in batches]

    trio.run(run)
