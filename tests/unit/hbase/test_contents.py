"""What stands in HBase's tables, byte for byte, and what happens when something else stands there."""

from __future__ import annotations

import struct
from collections.abc import Callable

import google_crc32c
import msgspec
import pytest

from delivery.batch import Header, encode, open_batch, peek, stamp
from delivery.batch.select import Refuses
from delivery.errors import ConfigError, CorruptRecord, InvalidRequest, LayoutMismatch
from delivery.ids import first_id_at
from delivery.model import Layout, QueueSettings, encode_headers
from delivery.storage.base import Append, PartitionKey
from delivery.storage.hbase import HBaseStore, keys, layouts
from tests.hbase_tables import Data, FakeTables
from tests.stores import KEY, NOW_MS, OTHER, batch, batches_of, bodies_of, store_all

KEEP = QueueSettings()
TABLE = "hoot.g1.orders"
PARTITION = b"\x00\x03"


def opened(data: Data, epoch: int, layout: Layout = "rows", key: PartitionKey = KEY) -> HBaseStore:
    store = HBaseStore(FakeTables(data), layout=layout)
    store.open(key, epoch, KEEP)
    return store


def row(ms: int, sequence: int, epoch: int) -> bytes:
    return PARTITION + struct.pack(">QHQ", ms, sequence, epoch)


def mixed() -> Append:
    """Three messages of two topics, one with a key and headers; ids 5-7, 5-8 and 5-9."""
    rows = [(b"tea", b"k", "drinks", encode_headers({"h": b"1"})), (b"", None, "", b""), (b"rye", b"", "food", b"")]
    data = encode(rows, KEY.partition, 77, 3)
    header = peek(data)
    assert header is not None
    header, data = stamp(header, data, 5 * 32768 + 7, 2)
    return Append(KEY, 2, header, data, "fsync")


def test_a_row_is_a_message_with_its_topic_as_qualifier_and_its_body_as_value() -> None:
    data: Data = {}
    item = mixed()
    store_all(opened(data, 2), [item])
    rows = dict(data[TABLE])
    assert set(rows.pop(b"\xff\xff")) == {b"batch:table"}
    owner = msgspec.json.decode(rows.pop(PARTITION)[b"batch:owner"])
    assert {name: owner[name] for name in ("version", "layout", "epoch")} == {
        "version": 1,
        "layout": "rows",
        "epoch": 2,
    }
    head = rows[row(5, 7, 2)].pop(b"batch:head")
    assert head == bytes(64) + item.batch[:64]
    told = struct.pack(">I", 3) + b"\x06drinks\x00\x04food" + bytes((0, 1, 2))
    assert rows[row(5, 7, 2)].pop(b"batch:topics") == struct.pack(">I", google_crc32c.value(told)) + told
    assert rows == {
        row(5, 7, 2): {
            b"message:drinks": b"tea", b"message::key": b"k", b"message::headers": encode_headers({"h": b"1"}),
        },
        row(5, 8, 2): {b"message:": b""},
        row(5, 9, 2): {b"message:food": b"rye", b"message::key": b""},
    }  # fmt: skip


def test_a_packed_batch_is_one_cell() -> None:
    data: Data = {}
    item = mixed()
    store_all(opened(data, 2, "batches"), [item])
    cells = data[TABLE][row(5, 7, 2)]
    assert cells.pop(b"batch:topics").endswith(b"\x06drinks\x00\x04food")
    assert cells == {b"batch:head": bytes(64) + item.batch[:64], b"message::batch": item.batch}
    assert len(data[TABLE]) == 3, "with the rows of the partition and of the table"


def test_a_batch_that_no_cell_holds_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "PIECE_BYTES", 100)
    data: Data = {}
    store = opened(data, 1, "batches")
    item = batch(10, [bytes(150)])
    store_all(store, [item])
    cells = next(cells for cells in data[TABLE].values() if b"message::batch" in cells)
    assert {name for name in cells if name not in (b"batch:head", b"batch:topics")} == {
        b"message::batch",
        b"message::batch1",
        b"message::batch2",
    }
    assert batches_of(store) == [item.batch]


def test_a_partition_keeps_the_layout_that_it_was_made_with() -> None:
    data: Data = {}
    store_all(opened(data, 1, "rows"), [batch(10, [b"a"])])
    other = opened(data, 2, "batches")
    store_all(other, [batch(20, [b"b"], epoch=2)])
    assert bodies_of(other) == [b"a", b"b"]
    assert sum(b"message:" in cells for cells in data[TABLE].values()) == 2


def test_messages_packed_in_another_way_by_their_publisher_come_back() -> None:
    """Its dictionary names a topic that no message has, so the same messages make other bytes here."""
    item = mixed()
    header, data = item.header, item.batch
    dictionary = b"\x04food\x06drinks\x00\x05never"
    at = 64 + len(b"\x06drinks\x00\x04food")
    index = struct.pack("<3H", 1, 2, 0)
    payload = dictionary + index + data[at + 6 :]
    odd = _header_for(header, payload)
    store = opened({}, 2)
    store_all(store, [Append(KEY, 2, odd, odd.pack() + payload, "fsync")])
    (found,) = batches_of(store)
    assert list(open_batch(found).messages("q")) == list(open_batch(data).messages("q"))


def _header_for(header: Header, payload: bytes) -> Header:
    return msgspec.structs.replace(
        header, topic_count=4, length=64 + len(payload), payload_crc=google_crc32c.value(payload)
    )


# -- damage ---------------------------------------------------------------------------------------------------------


def _cut(cells: dict[bytes, bytes], name: bytes) -> None:
    cells[name] = cells[name][:-1]


DAMAGE: dict[str, Callable[[dict[bytes, dict[bytes, bytes]]], object]] = {
    "another body": lambda rows: rows[row(5, 8, 2)].update({b"message:": b"x"}),
    "a row that is gone": lambda rows: rows.pop(row(5, 8, 2)),
    "two bodies": lambda rows: rows[row(5, 8, 2)].update({b"message:more": b"x"}),
    "no body": lambda rows: rows[row(5, 9, 2)].pop(b"message:food"),
    "a topic that cannot be": lambda rows: rows[row(5, 9, 2)].update({b"message:\xff": b""}),
    "a foreign row": lambda rows: rows.update({row(5, 8, 2) + b"more": {b"message:": b""}}),
    "a head cut short": lambda rows: _cut(rows[row(5, 7, 2)], b"batch:head"),
    "a head in another row": lambda rows: rows.update(
        {row(5, 8, 9): {b"batch:head": rows[row(5, 7, 2)][b"batch:head"]}}
    ),
    "the head that is gone": lambda rows: rows[row(5, 7, 2)].pop(b"batch:head"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_told_and_the_other_partitions_go_on(damage: str) -> None:
    data: Data = {}
    store = opened(data, 2)
    store.open(OTHER, 1, KEEP)
    store_all(store, [mixed(), batch(1, [b"fine"], key=OTHER)])
    DAMAGE[damage](data[TABLE])
    with pytest.raises(CorruptRecord):
        store.read(KEY, 0, 1 << 20)
    assert bodies_of(store, OTHER) == [b"fine"]


@pytest.mark.parametrize("layout", ["rows", "batches"])
@pytest.mark.parametrize("refuses", [None, lambda *_: False])
@pytest.mark.parametrize("gone", [10, 20, 30])
def test_a_batch_that_is_gone_is_told_wherever_reading_begins(
    layout: Layout, refuses: Refuses | None, gone: int
) -> None:
    """Each batch names the one before it: what somebody deleted is not passed over as if it had never been."""
    data: Data = {}
    store = opened(data, 1, layout)
    store_all(store, [batch(first, [b"a", b"b"]) for first in (10, 20, 30)])
    for number in (gone, gone + 1):
        data[TABLE].pop(row(0, number, 1), None)
    for begun in (gone - 10, gone - 1, gone):
        with pytest.raises(CorruptRecord, match="not there"):
            _read_out(store, begun, refuses)


def _read_out(store: HBaseStore, after: int, refuses: Refuses | None) -> None:
    while (chunk := store.read(KEY, after, 1 << 20, refuses)) is not None:
        after = chunk.last_id


@pytest.mark.parametrize("cell", [b"batch:owner", b"batch:checkpoint"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"version": 1}'])
def test_a_partition_whose_record_does_not_parse_is_not_opened(cell: bytes, content: bytes) -> None:
    data: Data = {}
    opened(data, 1)
    data[TABLE][PARTITION][cell] = content
    with pytest.raises(CorruptRecord):
        opened(data, 2)
    assert data[TABLE][PARTITION][cell] == content


def test_a_queue_may_ask_for_a_layout_that_the_host_does_not_have() -> None:
    data: Data = {}
    for epoch, settings in enumerate((QueueSettings(layout="batches"), KEEP), start=1):
        HBaseStore(FakeTables(data), layout="rows").open(KEY, epoch, settings)
        assert b'"layout":"batches"' in data[TABLE][PARTITION][b"batch:owner"], "which the partition keeps"
    HBaseStore(FakeTables(data), layout="rows").open(OTHER, 1, KEEP)
    assert b'"layout":"rows"' in data[TABLE][b"\x00\x04"][b"batch:owner"]


def test_a_table_whose_cells_hbase_removes_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    tables = FakeTables({})
    tables.life = 60
    HBaseStore(tables).open(KEY, 1, KEEP)
    assert "removes what is in the table hoot.g1.orders after 60 s" in caplog.text
    assert "alter 'hoot.g1.orders', {NAME => FAMILY, TTL => 'FOREVER'} for batch and message" in caplog.text


def test_a_partition_of_another_layout_version_is_not_touched() -> None:
    data: Data = {}
    opened(data, 1)
    content = data[TABLE][PARTITION][b"batch:owner"] = b'{"version": 2, "who": "knows"}'
    with pytest.raises(LayoutMismatch, match="version 2"):
        opened(data, 2)
    assert data[TABLE][PARTITION][b"batch:owner"] == content


def test_a_table_that_somebody_else_made_is_not_touched() -> None:
    tables = FakeTables({TABLE: {}})
    tables.families_of[TABLE] = {"f"}
    with pytest.raises(LayoutMismatch, match=r"\['f'\]"):
        HBaseStore(tables).open(KEY, 1, KEEP)
    assert tables.data == {TABLE: {}}


@pytest.mark.parametrize(
    "key",
    [
        PartitionKey("q" * 230, "g" * 20, 0),
        PartitionKey("q", "g.1", 0),
        PartitionKey("q", "", 0),
        PartitionKey("q", "g", -1),
    ],
)
def test_names_that_no_table_can_have_are_refused(key: PartitionKey) -> None:
    with pytest.raises(InvalidRequest):
        opened({}, 1, key=key)


@pytest.mark.parametrize("prefix", ["", "a.b", "-a", "a" * 65, "a:", ":a", "a-b:c", "a:b:c", "a:-b"])
def test_a_prefix_that_no_table_can_have_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidRequest):
        HBaseStore(FakeTables({}), prefix=prefix)


def test_a_prefix_may_name_a_namespace_which_has_to_be_there() -> None:
    tables = FakeTables({})
    store = HBaseStore(tables, prefix="ours:hoot")
    store.look_around()
    store.open(KEY, 1, KEEP)
    assert list(tables.data) == ["ours:hoot.g1.orders"]
    assert store.queues() == [("orders", "g1")]
    with pytest.raises(ConfigError, match="create_namespace 'theirs'"):
        HBaseStore(tables, prefix="theirs:hoot").look_around()


def test_a_new_table_has_a_region_per_partition_up_to_a_limit() -> None:
    assert keys.splits(1) == []
    assert keys.splits(4) == [b"\0\1", b"\0\2", b"\0\3"]
    many = keys.splits(32767)
    assert len(many) == keys.REGIONS_MAX - 1
    assert many == sorted(set(many))
    assert many[0] > b"\0\0"
    assert many[-1] < keys.partition_row(32766)


def test_tables_of_others_are_no_queues() -> None:
    data: Data = {"hoot.g1.a.b": {}, "other.g1.a": {}, "hoot": {}, "ready": {}}
    assert HBaseStore(FakeTables(data)).queues() == [("a.b", "g1")]


# -- retention ------------------------------------------------------------------------------------------------------


def test_what_hbase_expired_while_nobody_had_the_partition_is_passed_over() -> None:
    data: Data = {}
    store = HBaseStore(FakeTables(data))
    store.open(KEY, 1, QueueSettings(ttl_seconds=3600))
    old, now = first_id_at(NOW_MS - 20_000_000), first_id_at(2 * NOW_MS)
    store_all(store, [batch(old, [b"a", b"b"]), batch(old + 10, [b"c"]), batch(now, [b"d"])])
    store.close()
    for number in (old, old + 1, old + 10):
        ms, sequence = divmod(number, 32768)
        del data[TABLE][row(ms, sequence, 1)]
    later = HBaseStore(FakeTables(data))
    later.open(KEY, 2, QueueSettings(ttl_seconds=3600))
    assert bodies_of(later) == [b"d"]
    assert later.bounds(KEY).first_id == now
    assert later.measure(KEY, 0, 2 * now).messages == 1


def test_trimming_deletes_rows_unless_hbase_will() -> None:
    data: Data = {}
    store = opened(data, 1)
    old = first_id_at(NOW_MS - 10_000)
    store_all(store, [batch(old, [b"a", b"b"])])
    ttl = QueueSettings(ttl_seconds=5)
    assert store.trim(KEY, ttl, NOW_MS) > 0
    assert set(data[TABLE]) == {PARTITION, keys.TABLE_ROW}
    store_all(store, [batch(old + 10, [b"c"])])
    assert store.trim(KEY, ttl, NOW_MS) > 0
    assert len(data[TABLE]) == 3, "written with a life, which ends by itself"
    assert store.bounds(KEY).messages == 0
