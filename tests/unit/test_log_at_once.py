"""What the log stores at once, for who must not wait, and what it leaves to `append`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from delivery.errors import Fenced, StorageUnavailable
from delivery.model import QueueSettings
from delivery.storage.log import SegmentedLog
from delivery.storage.log.disk import locked
from delivery.storage.log.epochs import Epochs
from tests.stores import KEY, OTHER, FaultyDisk, batch, bodies_of, partition_folder, sized, store_all

SEGMENT = 10_000


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def log(tmp_path: Path, disk: FaultyDisk) -> Iterator[SegmentedLog]:
    """With a partition to which something was appended."""
    opened = SegmentedLog(tmp_path, disk=disk, segment_bytes=SEGMENT)
    opened.open(KEY, 1, QueueSettings())
    store_all(opened, [batch(1, [b"first"])])
    disk.calls = disk.syncs = 0
    yield opened
    opened.close()


def test_a_batch_for_an_open_segment_takes_one_system_call(log: SegmentedLog, disk: FaultyDisk) -> None:
    assert log.append_at_once(batch(2, [b"second"])) == [None]
    assert (disk.calls, disk.syncs) == (1, 1)
    assert log.append_at_once(batch(3, [b"third"], durability="os")) == [None]
    assert (disk.calls, disk.syncs) == (2, 1)
    assert bodies_of(log) == [b"first", b"second", b"third"]


def test_a_segment_that_must_be_begun_or_closed_first_is_left_to_append(log: SegmentedLog, disk: FaultyDisk) -> None:
    store_all(log, [sized(2, SEGMENT)])
    log.open(KEY, 2, QueueSettings())
    calls = disk.calls
    assert log.append_at_once(batch(3, epoch=2)) is None, "none is open"
    assert disk.calls == calls
    store_all(log, [sized(3, SEGMENT, epoch=2)])
    calls = disk.calls
    assert log.append_at_once(batch(4, epoch=2)) is None, "it is full"
    assert disk.calls == calls
    store_all(log, [batch(4, epoch=2)])
    assert log.append_at_once(batch(5, epoch=2)) == [None]


def test_a_partition_at_which_somebody_is_busy_is_not_waited_for(
    log: SegmentedLog, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, write = threading.Event(), threading.Event(), disk.write

    def slow(fd: int, parts: Sequence[bytes], offset: int, *, synced: bool = False) -> None:
        begun.set()
        assert go_on.wait(20)
        write(fd, parts, offset, synced=synced)

    monkeypatch.setattr(disk, "write", slow)
    other = threading.Thread(target=store_all, args=(log, [batch(2)]))
    other.start()
    assert begun.wait(20)
    assert log.append_at_once(batch(3)) is None
    go_on.set()
    other.join(20)
    assert log.append_at_once(batch(3)) == [None]
    assert len(bodies_of(log)) == 3


def test_what_is_not_open_or_has_failed_or_has_a_newer_owner_is_left_to_append(
    log: SegmentedLog, disk: FaultyDisk, tmp_path: Path
) -> None:
    other = sized(2, 10, key=OTHER)
    assert log.append_at_once(other) is None
    newer = SegmentedLog(tmp_path)
    newer.open(KEY, 2, QueueSettings())
    calls = disk.calls
    assert log.append_at_once(batch(2)) is None
    assert disk.calls == calls
    [error] = log.append([batch(2)])
    assert isinstance(error, Fenced)
    newer.close()


def test_a_failed_flush_is_final_and_the_next_batch_is_left_to_append(log: SegmentedLog, disk: FaultyDisk) -> None:
    disk.failing_sync = True
    answers = log.append_at_once(batch(2))
    assert answers is not None
    assert isinstance(answers[0], StorageUnavailable)
    disk.failing_sync = False
    assert log.append_at_once(batch(2)) is None
    assert isinstance(log.append([batch(2)])[0], StorageUnavailable)
    assert bodies_of(log) == [b"first"]


def test_a_newer_owner_that_comes_in_the_middle_is_not_waited_for(
    log: SegmentedLog, disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the partition's lock for as long as it looks at what is there, or is stopped."""
    write = disk.write
    with contextlib.ExitStack() as held:

        def overtaken(fd: int, parts: Sequence[bytes], offset: int, *, synced: bool = False) -> None:
            write(fd, parts, offset, synced=synced)
            held.callback(SegmentedLog(tmp_path).open, KEY, 3, QueueSettings())
            Epochs(partition_folder(tmp_path).parent / "epochs").raise_to(KEY.partition, 2)
            held.enter_context(locked(partition_folder(tmp_path) / "lock"))

        monkeypatch.setattr(disk, "write", overtaken)
        answers = log.append_at_once(batch(2))
        assert answers is not None
        assert isinstance(answers[0], Fenced)
        assert log.append_at_once(batch(3)) is None
        log.release(KEY)
