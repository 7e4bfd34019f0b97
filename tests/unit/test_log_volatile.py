"""Queues of durability `memory` in the log: nothing on disk, the same promises about epochs and ids, bounded."""

from __future__ import annotations

from pathlib import Path

from delivery.errors import Fenced
from delivery.model import QueueSettings
from delivery.storage.base import StoredBatch
from delivery.storage.log import SegmentedLog
from delivery.storage.memory import BYTES_MAX
from tests.stores import KEY, NOW_MS, batch, batches_of, bodies_of, headers_of, partition_folder, store_all

KEEP = QueueSettings()
IN_MEMORY = QueueSettings(durability="memory")


def test_a_memory_queue_writes_no_segment_and_keeps_its_messages_until_it_is_released(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path)
    log.open(KEY, 1, IN_MEMORY)
    group = [batch(10, [b"a"] * 3, producer=(4, 1)), batch(20, [b"b"])]
    store_all(log, group)
    assert batches_of(log) == [item.batch for item in group]
    assert (log.measure(KEY, 0, 100).messages, log.bounds(KEY).messages) == (4, 4)
    assert log.open(KEY, 2, IN_MEMORY).producers == (StoredBatch(4, 1, 10, 3, group[0].header.payload_crc),)
    assert len(headers_of(log)) == 2
    assert [path.name for path in partition_folder(tmp_path).iterdir()] == ["lock"]
    log.release(KEY)
    assert log.open(KEY, 3, IN_MEMORY).last_id == 20
    assert headers_of(log) == []


def test_a_memory_queue_is_fenced_like_any_other_and_its_next_owner_goes_on_above_its_ids(tmp_path: Path) -> None:
    old, new = SegmentedLog(tmp_path), SegmentedLog(tmp_path)
    old.open(KEY, 1, IN_MEMORY)
    store_all(old, [batch(500)])
    assert new.open(KEY, 2, IN_MEMORY).last_id == 500
    assert isinstance(old.append([batch(501)])[0], Fenced)
    store_all(new, [batch(501, [b"new"], epoch=2)])
    assert bodies_of(new) == [b"new"]
    assert old.open(KEY, 3, IN_MEMORY).last_id == 501
    assert headers_of(old) == [], "what it held before the other owner is out of date"


def test_a_memory_queue_is_bounded(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path)
    log.open(KEY, 1, IN_MEMORY)
    for base in range(1, 11):
        store_all(log, [batch(base, [bytes(8 << 20)])])
    assert BYTES_MAX - (9 << 20) < log.bounds(KEY).bytes <= BYTES_MAX
    assert headers_of(log)[-1].base_id == 10
    log.trim(KEY, QueueSettings(durability="memory", retention_bytes=20 << 20), NOW_MS)
    store_all(log, [batch(11)])
    assert log.bounds(KEY).bytes <= 20 << 20


def test_a_queue_that_becomes_a_memory_queue_keeps_what_it_stored(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path)
    log.open(KEY, 1, KEEP)
    store_all(log, [batch(1, [b"stored"])])
    log.open(KEY, 2, IN_MEMORY)
    store_all(log, [batch(2, [b"more"], epoch=2, durability="memory")])
    assert bodies_of(log) == [b"stored", b"more"]


def test_a_memory_queue_that_is_to_be_stored_goes_on_above_its_ids(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path)
    log.open(KEY, 1, IN_MEMORY)
    store_all(log, [batch(70)])
    assert log.open(KEY, 2, KEEP).last_id == 70
    store_all(log, [batch(71, epoch=2)])
    assert len(headers_of(log)) == 1
