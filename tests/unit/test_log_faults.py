"""A disk that is full, slow to take bytes, or fails to flush: the log stops acknowledging and says so."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from delivery.errors import StorageUnavailable
from delivery.model import QueueSettings
from delivery.storage.log import SegmentedLog
from delivery.storage.log.disk import IOV_MAX
from tests.stores import KEY, OTHER, FaultyDisk, batch, batches_of, bodies_of, log_files, sized, store_all
from tests.strategies import times

KEEP = QueueSettings()


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def log(tmp_path: Path, disk: FaultyDisk) -> SegmentedLog:
    log = SegmentedLog(tmp_path, segment_bytes=50_000, disk=disk)
    log.open(KEY, 1, KEEP)
    log.open(OTHER, 1, KEEP)
    return log


def test_a_full_disk_stops_the_partition_until_it_is_opened_anew(
    tmp_path: Path, log: SegmentedLog, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    store_all(log, [batch(1, [b"before"])])
    disk.room = 1000
    with caplog.at_level(logging.ERROR):
        answers = log.append([sized(2, 500), sized(3, 5000)])
    assert [type(answer) for answer in answers] == [StorageUnavailable, StorageUnavailable]
    assert "No space left" in caplog.text
    disk.room = None
    assert isinstance(log.append([batch(4)])[0], StorageUnavailable)
    assert bodies_of(log) == [b"before"]
    assert log.open(KEY, 1, KEEP).last_id == 1
    store_all(log, [batch(2, [b"after"])])
    assert bodies_of(log) == [b"before", b"after"]
    again = SegmentedLog(tmp_path)
    again.open(KEY, 2, KEEP)
    assert bodies_of(again) == [b"before", b"after"]


def test_what_did_not_fit_is_taken_off_the_disk_at_once(tmp_path: Path, log: SegmentedLog, disk: FaultyDisk) -> None:
    """Another host that takes over must not find what may never have reached the disk."""
    store_all(log, [batch(1)])
    size = batch(1).header.length
    disk.room = 1000
    log.append([sized(2, 500), sized(3, 5000)])
    assert log_files(tmp_path)[0].stat().st_size == size


@pytest.mark.parametrize("alone", [True, False], ids=["written and flushed at once", "beside another partition"])
def test_a_failed_flush_is_final_and_never_tried_again(
    tmp_path: Path, log: SegmentedLog, disk: FaultyDisk, *, alone: bool
) -> None:
    store_all(log, [batch(1, [b"kept"])])
    disk.failing_sync = True
    group = [batch(2), batch(3)] if alone else [batch(2), batch(1, key=OTHER), batch(3)]
    assert {type(answer) for answer in log.append(group)} == {StorageUnavailable}
    disk.failing_sync = False
    syncs = disk.syncs
    assert isinstance(log.append([batch(4)])[0], StorageUnavailable)
    assert disk.syncs == syncs
    assert log.open(KEY, 2, KEEP).last_id == 1
    assert disk.syncs == syncs + 1, "the index of the closed segment is synced; the segment itself was already"
    store_all(log, [batch(4, [b"new"], epoch=2)])
    assert bodies_of(log) == [b"kept", b"new"]


def test_one_partitions_failure_does_not_touch_the_others(log: SegmentedLog, disk: FaultyDisk) -> None:
    store_all(log, [batch(1, key=KEY), batch(1, key=OTHER)])
    disk.room = batch(2).header.length
    group = [batch(2, key=KEY), batch(2, key=OTHER)]
    assert [type(answer) for answer in log.append(group)] == [type(None), StorageUnavailable]
    disk.room = None
    assert [type(answer) for answer in log.append([batch(3), batch(3, key=OTHER)])] == [type(None), StorageUnavailable]


def test_a_disk_that_is_full_when_a_segment_is_closed_loses_nothing(log: SegmentedLog, disk: FaultyDisk) -> None:
    first = sized(1, 60_000)
    store_all(log, [first])
    disk.room = 10
    assert isinstance(log.append([batch(2)])[0], StorageUnavailable)
    disk.room = None
    assert log.open(KEY, 1, KEEP).last_id == 1
    second = batch(2)
    store_all(log, [second])
    assert batches_of(log) == [first.batch, second.batch]


def test_a_flush_that_fails_before_a_partition_is_given_away_is_final_too(log: SegmentedLog, disk: FaultyDisk) -> None:
    """Whichever flush it is: the one ahead of the closing of the segment, or that of the closing."""
    large = batch(1, [bytes(1 << 18)] * 2, durability="os")
    store_all(log, [large])
    disk.failing_sync = True
    with pytest.raises(StorageUnavailable):
        log.prepare_release(KEY)
    disk.failing_sync = False
    assert isinstance(log.append([batch(3)])[0], StorageUnavailable)
    assert log.open(KEY, 2, KEEP).last_id == 2
    assert batches_of(log) == [large.batch]


def test_while_what_is_there_is_flushed_ahead_more_is_stored(
    log: SegmentedLog, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that whoever publishes, to any partition of the host, does not wait for a disk that has a lot to write."""
    store_all(log, [batch(1, [bytes(1 << 18)] * 2, durability="os")])
    flush, meanwhile = disk.sync, []

    def sync(fd: int) -> None:
        monkeypatch.setattr(disk, "sync", flush)
        with ThreadPoolExecutor(1) as pool:
            meanwhile.extend(pool.submit(log.append, [batch(3, durability="os")]).result(10))
        flush(fd)

    monkeypatch.setattr(disk, "sync", sync)
    log.prepare_release(KEY)
    assert meanwhile == [None]


def test_opening_on_a_full_disk_fails_and_works_once_there_is_room(log: SegmentedLog, disk: FaultyDisk) -> None:
    store_all(log, [batch(1, [b"a"])])
    disk.room = 0
    with pytest.raises(StorageUnavailable):
        log.open(KEY, 2, KEEP)
    disk.room = None
    assert log.open(KEY, 2, KEEP).last_id == 1
    assert bodies_of(log) == [b"a"]


@given(st.integers(1, 700), st.integers(1, 12))
@times(0.5)
def test_a_write_that_the_system_takes_in_pieces_is_finished(
    tmp_path_factory: pytest.TempPathFactory, step: int, count: int
) -> None:
    disk = FaultyDisk()
    disk.step = step
    log = SegmentedLog(tmp_path_factory.mktemp("pieces"), disk=disk)
    log.open(KEY, 1, KEEP)
    group = [sized(base, 100 * base) for base in range(1, count + 1)]
    store_all(log, group)
    assert batches_of(log) == [item.batch for item in group]
    log.close()


def test_more_batches_than_one_call_takes_are_written_in_several(log: SegmentedLog, disk: FaultyDisk) -> None:
    group = [batch(base) for base in range(1, 2 * IOV_MAX + 2)]
    disk.calls = 0
    store_all(log, group)
    assert disk.calls == 3
    assert batches_of(log) == [item.batch for item in group]


def test_a_group_costs_one_write_and_one_flush_for_each_partition(log: SegmentedLog, disk: FaultyDisk) -> None:
    store_all(log, [batch(1, key=KEY), batch(1, key=OTHER)])
    disk.calls = disk.syncs = 0
    store_all(log, [batch(base, key=key) for base in range(2, 50) for key in (KEY, OTHER)])
    assert (disk.calls, disk.syncs) == (2, 2)


def test_what_was_not_flushed_yet_is_flushed_with_the_first_batch_that_must_be(
    log: SegmentedLog, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a queue's durability is raised while it is in use."""
    store_all(log, [batch(1, durability="os")])
    whole: list[int] = []
    monkeypatch.setattr(disk, "sync", whole.append)
    store_all(log, [batch(2)])
    assert len(whole) == 1
    store_all(log, [batch(3)])
    assert len(whole) == 1, "by now a write is flushed by itself"


def test_where_the_system_cannot_write_and_flush_at_once_it_does_one_after_the_other(
    log: SegmentedLog, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, asked = os.pwritev, []

    def refuse(fd: int, parts: Sequence[bytes], offset: int, flags: int = 0) -> int:
        asked.append(flags)
        if flags:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return write(fd, parts, offset)

    monkeypatch.setattr(os, "pwritev", refuse)
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    item = batch(1)
    store_all(log, [item])
    assert asked == [os.RWF_DSYNC, 0]
    assert len(flushed) == 1
    assert batches_of(log) == [item.batch]


def test_a_queue_of_durability_os_flushes_only_when_a_segment_is_closed(
    tmp_path: Path, log: SegmentedLog, disk: FaultyDisk
) -> None:
    store_all(log, [batch(1, durability="os")])
    disk.syncs = 0
    for base in range(2, 6):
        store_all(log, [batch(base, [b"x" * 20_000], durability="os")])
    assert len(log_files(tmp_path, "index")) == 1
    assert disk.syncs == 2, "the segment, then its index"
    killed = SegmentedLog(tmp_path, disk=disk)
    assert killed.open(KEY, 2, KEEP).last_id == 5
    assert disk.syncs == 4, "what a killed process left unflushed is flushed before anybody reads it"
