"""The zeros that the log keeps behind the batches of an open segment, so that a flush has less to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from delivery.model import QueueSettings
from delivery.storage.log import SegmentedLog
from delivery.storage.log.writer import RESERVED_BYTES_MAX, RESERVED_BYTES_MIN, RESERVING_BYTES
from tests.stores import KEY, batch, log_files, sized, store_all

KEEP = QueueSettings()


def test_little_is_reserved_where_little_is_and_nothing_for_large_groups(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path, segment_bytes=4 << 20)
    log.open(KEY, 1, KEEP)
    written = reserved = 0
    for base in range(1, 41):
        item = sized(100 * base, 60_000)
        store_all(log, [item])
        written += len(item.batch)
        reserved = log_files(tmp_path)[0].stat().st_size - written
        assert 0 <= reserved <= max(RESERVED_BYTES_MIN, min(written, RESERVED_BYTES_MAX))
    assert reserved > 0
    log.open(KEY, 2, KEEP)
    store_all(log, [sized(9000, RESERVING_BYTES, epoch=2)])
    store_all(log, [batch(9001, epoch=2, durability="os")])
    assert log_files(tmp_path)[1].stat().st_size == log.bounds(KEY).bytes - written


def test_a_full_segment_gives_back_what_was_reserved(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path, segment_bytes=1000)
    log.open(KEY, 1, KEEP)
    for base in range(1, 5):
        store_all(log, [sized(base, 600)])
    sizes = [path.stat().st_size for path in log_files(tmp_path)]
    assert (sizes[0], sizes[1] > RESERVED_BYTES_MIN) == (sum(sized(1, 600).header.length for _ in range(2)), True)


def test_what_a_full_disk_reserved_in_part_is_given_back_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SegmentedLog(tmp_path, segment_bytes=1000)
    log.open(KEY, 1, KEEP)

    def part(fd: int, start: int, length: int) -> None:
        os.truncate(fd, start + length // 2)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", part)
    store_all(log, [sized(1, 1000)])
    assert log_files(tmp_path)[0].stat().st_size > log.bounds(KEY).bytes
    stored = log.bounds(KEY).bytes
    store_all(log, [batch(2)])
    assert log_files(tmp_path)[0].stat().st_size == stored


def test_where_nothing_can_be_reserved_batches_are_stored_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, start: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    log = SegmentedLog(tmp_path)
    log.open(KEY, 1, KEEP)
    monkeypatch.setattr("os.posix_fallocate", refuse)
    store_all(log, [batch(1)])
    store_all(log, [batch(2)])
    assert log_files(tmp_path)[0].stat().st_size == log.bounds(KEY).bytes
