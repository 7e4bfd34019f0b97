"""Reading some topics from HBase: what is asked of it, and what stands when it is not all there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from delivery.batch import headers_in, open_batch
from delivery.errors import CorruptRecord, Fenced
from delivery.filters import Filter, Topics
from delivery.hbase import Cells, Row
from delivery.model import Layout, QueueSettings
from delivery.storage.base import Append
from delivery.storage.hbase import HBaseStore, keys, layouts, reading
from tests.hbase_tables import Data, FakeTables
from tests.stores import KEY, batch, bodies_of, store_all
from tests.strategies import stamped

KEEP = QueueSettings()
TABLE = "hoot.g1.orders"


class Counting(FakeTables):
    """Counts the rows of messages that HBase gives."""

    rows = 0

    def scan(self, table: str, start: bytes, stop: bytes, columns: Sequence[bytes], **options: object) -> list[Row]:
        found = super().scan(table, start, stop, columns, **options)  # type: ignore[arg-type]
        self.rows += len(found) if columns[0].startswith(b"message") else 0
        return found

    def get_all(self, table: str, rows: Sequence[bytes], columns: Sequence[bytes]) -> dict[bytes, Cells]:
        found = super().get_all(table, rows, columns)
        self.rows += len(found) if columns[0].startswith(b"message") else 0
        return found


def opened(data: Data, layout: Layout = "rows", epoch: int = 1) -> tuple[Counting, HBaseStore]:
    tables = Counting(data)
    store = HBaseStore(tables, layout=layout)
    store.open(KEY, epoch, KEEP)
    return tables, store


def spread(base_id: int, count: int, *, topics: int = 100, key: bytes | None = None, epoch: int = 1) -> Append:
    """Messages of that many topics in turn, each with its id as its body."""
    ids = range(base_id, base_id + count)
    header, data = stamped(
        [(b"%d" % number, key, f"t{number % topics}", b"") for number in ids], base_id, epoch=epoch,
        partition=KEY.partition,
    )  # fmt: skip
    return Append(KEY, epoch, header, data, "fsync")


def selected(store: HBaseStore, *topics: str, after: int = 0, bytes_max: int = 1 << 20) -> list[bytes]:
    """The bodies of topics, read chunk by chunk to the end."""
    chosen, found = Filter(Topics(topics)), []
    while (chunk := store.read(KEY, after, bytes_max, chosen.refuses)) is not None:
        for at, header in headers_in(chunk.data):
            messages = open_batch(chunk.data[at : at + header.length]).messages(KEY.queue, after)
            found += [one.body for one in messages if one.topic in topics]
        after = chunk.last_id
    return found


@pytest.mark.parametrize("key", [None, b"k"])
def test_of_one_topic_in_a_hundred_no_other_message_is_fetched(key: bytes | None) -> None:
    tables, store = opened({})
    store_all(store, [spread(1, 1000, key=key), spread(2001, 500, key=key)])
    wanted = [b"%d" % number for number in [*range(7, 1001, 100), *range(2007, 2501, 100)]]
    assert selected(store, "t7") == wanted
    assert tables.rows == len(wanted)
    assert selected(store, "t7", after=450) == [body for body in wanted if int(body) > 450]


def test_what_much_of_a_stretch_consists_of_is_fetched_with_the_rest() -> None:
    tables, store = opened({})
    store_all(store, [spread(1, 100, topics=4)])
    chunk = store.read(KEY, 0, 1 << 20, Filter(Topics(("t0",))).refuses)
    assert chunk is not None
    assert (chunk.covered, chunk.headers[0].count) == (None, 100)
    assert tables.rows == 100


@pytest.mark.parametrize("layout", ["rows", "batches"])
def test_batches_of_other_topics_stay_where_they_are(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "GAP_ROWS", 4)
    tables, store = opened({}, layout)
    topics = ["other", "wanted", "other", "other", "wanted", "other"]
    store_all(store, [batch(10 * n, [b"%d" % n] * 5, topic=topic) for n, topic in enumerate(topics, start=1)])
    assert selected(store, "wanted") == [b"2"] * 5 + [b"5"] * 5
    assert tables.rows == (10 if layout == "rows" else 2)
    tables.rows = 0
    chunk = store.read(KEY, 0, 1 << 20, Filter(Topics(("never",))).refuses)
    assert chunk is not None
    assert (chunk.data, chunk.headers, chunk.last_id, tables.rows) == (b"", (), 64, 0)


def test_a_read_that_finds_nothing_ends_all_the_same_and_tells_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HEADS_MAX", 3)
    _, store = opened({})
    store_all(store, [batch(number, topic="other") for number in range(1, 11)])
    chunk = store.read(KEY, 0, 1 << 20, Filter(Topics(("never",))).refuses)
    assert chunk is not None
    assert chunk.last_id == 3
    assert selected(store, "other") == [b"body"] * 10


def test_rows_of_a_fenced_owner_are_not_selected() -> None:
    data: Data = {}
    tables, old = opened(data)
    store_all(old, [spread(1, 200)])
    _, new = opened(data, epoch=2)
    old.append([spread(201, 200)])
    store_all(new, [spread(201, 200, epoch=2), spread(401, 200, epoch=2)])
    assert tables.data is data
    assert selected(new, "t7") == [b"7", b"107", b"207", b"307", b"407", b"507"]


def test_a_message_that_is_wanted_and_not_there_is_damage() -> None:
    data: Data = {}
    _, store = opened(data)
    store_all(store, [spread(1, 200)])
    assert selected(store, "t8") == [b"8", b"108"]
    del data[TABLE][keys.message_row(KEY.partition, 107, 1)]
    with pytest.raises(CorruptRecord, match="of the batch of 1 1 of 2 messages are there"):
        selected(store, "t7")
    assert selected(store, "t8") == [b"8", b"108"], "which is known of what is read alone"


def test_who_was_fenced_and_trimmed_from_is_not_told_of_damage() -> None:
    data: Data = {}
    _, old = opened(data)
    store_all(old, [spread(1, 200)])
    opened(data, epoch=2)
    del data[TABLE][keys.message_row(KEY.partition, 107, 1)]
    with pytest.raises(Fenced):
        selected(old, "t7")


def test_topics_that_fell_over_to_others_are_damage() -> None:
    data: Data = {}
    _, store = opened(data)
    store_all(store, [spread(1, 200)])
    cells = data[TABLE][keys.message_row(KEY.partition, 1, 1)]
    cells[keys.TOPICS] = cells[keys.TOPICS].replace(b"\x02t7", b"\x02s7")
    with pytest.raises(CorruptRecord, match="orders/3: the checksum of the topics of the batch of 1 is wrong"):
        selected(store, "t7")


@pytest.mark.parametrize("layout", ["rows", "batches"])
def test_a_batch_whose_topics_are_not_told_is_read_as_a_whole(layout: Layout) -> None:
    data: Data = {}
    tables, store = opened(data, layout)
    store_all(store, [spread(1, 100), spread(101, 100), spread(201, 100)])
    del data[TABLE][keys.message_row(KEY.partition, 101, 1)][keys.TOPICS]
    assert selected(store, "t7") == [b"7", b"107", b"207"]
    assert tables.rows == (1 + 100 + 1 if layout == "rows" else 3)


def test_messages_of_more_topics_than_a_byte_counts_are_found() -> None:
    tables, store = opened({})
    store_all(store, [spread(1, 600, topics=300)])
    assert selected(store, "t299", "t1") == [b"1", b"299", b"301", b"599"]
    assert tables.rows == 4


def test_more_topics_than_a_cell_holds_are_not_told() -> None:
    _, store = opened({})
    rows = [(b"%d" % n, None, f"{n:0200}", b"") for n in range(400)]
    header, data = stamped(rows, 1, partition=KEY.partition)
    store_all(store, [Append(KEY, 1, header, data, "fsync")])
    assert selected(store, f"{7:0200}") == [b"7"]
    assert len(bodies_of(store)) == 400
