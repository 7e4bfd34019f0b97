"""The table of a queue is made once: what was dropped, emptied or made anew is told from what was never there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import msgspec
import pytest

from delivery.errors import LayoutMismatch, MessagesGone, StorageUnavailable, UnknownOutcome, UnknownQueue, WrongStore
from delivery.metastore.catalog import Catalog
from delivery.metastore.placed import PlacedMetaStore
from delivery.model import Durability, QueueSettings
from delivery.storage.base import PartitionKey
from delivery.storage.hbase import HBaseStore, keys
from delivery.storage.homes import OwnRegister, Register, in_hbase
from delivery.storage.log import SegmentedLog
from delivery.testing.znodes import Tree
from tests.hbase_tables import Data, FakeTables
from tests.stores import KEY, OTHER, batch, bodies_of, store_all
from tests.znodes import FakeZNodes

KEEP = QueueSettings(partitions=8)
TABLE = "hoot.g1.orders"


@pytest.fixture
def register() -> Register:
    """What the hosts of a test share, as they share the MetaStore."""
    return OwnRegister()


def host(data: Data, register: Register, epoch: int | None = None) -> HBaseStore:
    store = HBaseStore(FakeTables(data), register=register)
    if epoch is not None:
        store.open(KEY, epoch, KEEP)
    return store


def _drop(data: Data) -> None:
    del data[TABLE]


def _empty(data: Data) -> None:
    """As `truncate` of HBase's shell does."""
    data[TABLE] = {}


def _replace(data: Data) -> None:
    """The hosts have been set up for another HBase, which has a table of that name."""
    del data[TABLE]
    host(data, OwnRegister(), 1)


@pytest.mark.parametrize("happens", [_drop, _empty, _replace])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_queue_whose_messages_are_gone_is_not_served_as_an_empty_one(
    data: Data, register: Register, happens: Callable[[Data], None], restarted: bool
) -> None:
    store = host(data, register, 1)
    store_all(store, [batch(10)])
    before = data[TABLE]
    happens(data)
    found = {table: dict(rows) for table, rows in data.items()}
    if restarted:
        store = host(data, register)
    else:
        assert store.append([batch(20)]) != [None]
    left = {table: dict(rows) for table, rows in data.items()}
    for epoch in (2, 3):
        for key in (KEY, OTHER):
            with pytest.raises(MessagesGone, match=TABLE):
                store.open(key, epoch, KEEP)
    assert data == left, "nothing is made, and nothing put"
    assert not restarted or left == found
    data[TABLE] = before
    store.open(KEY, 4, KEEP)
    assert bodies_of(store) == [b"body"], "it was restored"


def test_whoever_knows_that_it_is_the_right_table_may_say_so(data: Data, register: Register) -> None:
    store = host(data, register, 1)
    data[TABLE] = {keys.TABLE_ROW: {keys.TABLE: b"another"}}
    with pytest.raises(MessagesGone) as raised:
        store.open(KEY, 2, KEEP)
    word = register.home_of(KEY.queue, KEY.generation).removeprefix("hbase:")
    assert f"batch:table of its row ff ff is not {word}" in raised.value.message
    data[TABLE][keys.TABLE_ROW][keys.TABLE] = word.encode()
    store.open(KEY, 2, KEEP)


def test_another_partition_of_an_emptied_table_is_not_opened_either(data: Data, register: Register) -> None:
    """By a host that has one of it open, and knows the table."""
    store = host(data, register, 1)
    _empty(data)
    with pytest.raises(MessagesGone):
        store.open(OTHER, 1, KEEP)
    assert data[TABLE] == {}


@pytest.mark.parametrize("marked", [True, False])
def test_a_table_whose_maker_died_before_it_was_recorded_is_taken(data: Data, register: Register, marked: bool) -> None:
    data[TABLE] = {keys.TABLE_ROW: {keys.TABLE: b"w"}} if marked else {}
    store_all(host(data, register, 1), [batch(10)])
    word = data[TABLE][keys.TABLE_ROW][keys.TABLE].decode()
    assert register.home_of(KEY.queue, KEY.generation) == in_hbase(word)
    assert bodies_of(host(data, register, 2)) == [b"body"]


def test_a_table_of_our_name_with_rows_of_another_is_left_alone(data: Data, register: Register) -> None:
    data[TABLE] = {b"row": {b"message:": b"x"}}
    with pytest.raises(LayoutMismatch, match=TABLE):
        host(data, register, 1)
    assert data == {TABLE: {b"row": {b"message:": b"x"}}}
    assert register.home_of(KEY.queue, KEY.generation) == ""


def test_a_table_that_was_made_filled_and_dropped_while_another_host_was_about_to_make_it_is_missed(
    data: Data, register: Register
) -> None:
    """That host has found neither a table nor a record of one."""

    class Late(FakeTables):
        def create(self, table: str, families: Sequence[str], compression: str = "NONE") -> None:
            store_all(host(data, register, 1), [batch(10)])
            _drop(data)
            super().create(table, families, compression)

    with pytest.raises(MessagesGone, match="at this moment"):
        HBaseStore(Late(data), register=register).open(KEY, 2, KEEP)


def test_a_queue_in_the_log_is_left_there(data: Data, register: Register, tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path, register=register)
    log.open(KEY, 1, KEEP)
    assert log.append([batch(10)]) == [None]
    for epoch in (2, 3):
        with pytest.raises(WrongStore, match="`hoot serve --store log"):
            host(data, register, epoch)
    assert data == {}, "no table is made"
    again = SegmentedLog(tmp_path, register=register)
    again.open(KEY, 4, KEEP)
    assert bodies_of(again) == [b"body"]


def test_one_that_went_into_the_log_while_its_table_was_made_stays_there(
    data: Data, register: Register, tmp_path: Path
) -> None:
    class Late(FakeTables):
        def create(self, table: str, families: Sequence[str], compression: str = "NONE") -> None:
            SegmentedLog(tmp_path, register=register).open(KEY, 1, KEEP)
            super().create(table, families, compression)

    store = HBaseStore(Late(data), register=register)
    with pytest.raises(WrongStore):
        store.open(KEY, 2, KEEP)
    assert register.home_of(KEY.queue, KEY.generation).startswith("log:")


@pytest.mark.parametrize("durability", ["fsync", "memory"])
def test_a_queue_in_hbase_is_not_served_by_a_log_that_has_nothing_of_it(
    data: Data, register: Register, tmp_path: Path, durability: Durability
) -> None:
    store_all(host(data, register, 1), [batch(10)])
    log = SegmentedLog(tmp_path, register=register)
    for key in (KEY, OTHER):
        with pytest.raises(WrongStore, match="`hoot serve --store hbase`"):
            log.open(key, 2, msgspec.structs.replace(KEEP, durability=durability))
    assert log.queues() == []
    assert bodies_of(host(data, register, 3)) == [b"body"]


def test_hosts_that_begin_at_the_same_moment_use_one_table(data: Data, register: Register) -> None:
    meeting = Barrier(8, timeout=30)

    class Meeting(FakeTables):
        def create(self, table: str, families: Sequence[str], compression: str = "NONE") -> None:
            meeting.wait()
            super().create(table, families, compression)

    def begin(partition: int) -> bytes:
        key = PartitionKey(KEY.queue, KEY.generation, partition)
        store = HBaseStore(Meeting(data), register=register)
        store.open(key, 1, KEEP)
        store_all(store, [batch(10, key=key)])
        return data[TABLE][keys.TABLE_ROW][keys.TABLE]

    with ThreadPoolExecutor(8) as hosts:
        assert len(set(hosts.map(begin, range(8)))) == 1


def test_a_deleted_queue_leaves_nothing_that_keeps_its_table_from_being_dropped(data: Data, register: Register) -> None:
    store = host(data, register, 1)
    store.delete(KEY.queue, KEY.generation)
    store.delete(KEY.queue, KEY.generation)
    assert data == {}


# -- the word in the table ------------------------------------------------------------------------------------------


class Losing(FakeTables):
    """Compare-and-sets without an answer, which were done or not."""

    done = True

    def check_and_put(self, *arguments: object) -> bool:
        if self.done:
            super().check_and_put(*arguments)  # type: ignore[arg-type]
        raise UnknownOutcome("the answer was lost")


def test_a_cell_whose_answer_was_lost_is_looked_for(data: Data) -> None:
    tables = Losing(data)
    tables.create(TABLE, [])
    assert tables.settle(TABLE, b"r", b"f:", b"mine") == b"mine"
    assert tables.settle(TABLE, b"r", b"f:", b"later") == b"mine"
    tables.done = False
    with pytest.raises(StorageUnavailable):
        tables.settle(TABLE, b"other", b"f:", b"mine")


@pytest.mark.parametrize("at_start", [True, False])
def test_cells_that_are_too_small_for_the_largest_messages_are_warned_of_once(
    data: Data, caplog: pytest.LogCaptureFixture, at_start: bool
) -> None:
    tables = FakeTables(data)
    tables.cell_limit = 8 << 20
    HBaseStore(tables).open(KEY, 1, KEEP)
    assert not caplog.records
    tables.cell_limit = 1 << 20
    store = HBaseStore(tables)
    if at_start:
        store.look_around()
    for epoch, key in enumerate((KEY, OTHER), start=2):
        store.open(key, epoch, KEEP)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "exceeds limit of 1048576 bytes" in record.getMessage()


# -- the record -----------------------------------------------------------------------------------------------------


def test_the_queue_s_record_keeps_the_first_home_through_other_changes() -> None:
    zk = FakeZNodes(Tree())
    catalog = Catalog(zk, PlacedMetaStore(zk, zk))
    catalog.ensure_layout()
    generation = catalog.create_queue("orders", KEEP).generation
    assert catalog.home_of("orders", generation) == ""
    assert catalog.settle_home("orders", generation, "first") == "first"
    assert catalog.settle_home("orders", generation, "second") == "first"
    catalog.update_queue("orders", lambda _: QueueSettings(partitions=8, ttl_seconds=60))
    assert catalog.home_of("orders", generation) == "first"
    catalog.delete_queue("orders")
    catalog.create_queue("orders", KEEP)
    with pytest.raises(UnknownQueue, match="another one"):
        catalog.home_of("orders", generation)
    with pytest.raises(UnknownQueue, match="another one"):
        catalog.settle_home("orders", generation, "second")
