"""Two hosts over one data folder: whatever the moment of a takeover, a batch counts for both or for neither."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from delivery.errors import Fenced, StorageUnavailable
from delivery.ids import first_id_at
from delivery.model import QueueSettings
from delivery.storage.log import SegmentedLog
from delivery.storage.log.disk import Disk, locked
from tests.stores import KEY, NOW_MS, batch, batches_of, bodies_of, log_files, partition_folder, sized, store_all

KEEP = QueueSettings()


class PausingDisk(Disk):
    """Does something once, in the middle of an append: what the world does while a host is paused."""

    def __init__(self) -> None:
        self.before_write: Callable[[], object] | None = None
        self.after_write: Callable[[], object] | None = None
        self.part = 1.0
        """How much of the next write reaches the file before the pause."""

    def write_some(self, fd: int, parts: Sequence[bytes | memoryview], offset: int, *, synced: bool = False) -> int:
        before, self.before_write = self.before_write, None
        after, self.after_write = self.after_write, None
        if before:
            before()
        data = b"".join(parts)
        written = super().write_some(fd, [data[: round(len(data) * self.part)]], offset, synced=synced)
        if after:
            self.part = 1.0
            after()
        return written


@pytest.fixture
def pausing() -> PausingDisk:
    return PausingDisk()


@pytest.fixture
def old(tmp_path: Path, pausing: PausingDisk) -> SegmentedLog:
    old = SegmentedLog(tmp_path, segment_bytes=50_000, disk=pausing)
    old.open(KEY, 1, KEEP)
    store_all(old, [batch(1, [b"first"])])
    return old


@pytest.fixture
def new(tmp_path: Path) -> SegmentedLog:
    return SegmentedLog(tmp_path, segment_bytes=50_000)


def test_a_write_before_the_takeover_counts_for_both(
    old: SegmentedLog, new: SegmentedLog, pausing: PausingDisk
) -> None:
    """The old owner was paused between its write and its confirmation; the seal includes the write."""
    pausing.after_write = lambda: new.open(KEY, 2, KEEP)
    assert old.append([batch(2, [b"second"])]) == [None]
    assert bodies_of(new) == bodies_of(old) == [b"first", b"second"]
    assert isinstance(old.append([batch(3)])[0], Fenced)


def test_a_write_after_the_takeover_counts_for_neither(
    tmp_path: Path, old: SegmentedLog, new: SegmentedLog, pausing: PausingDisk
) -> None:
    pausing.before_write = lambda: new.open(KEY, 2, KEEP)
    assert isinstance(old.append([batch(2, [b"second"])])[0], Fenced)
    assert bodies_of(new) == bodies_of(old) == [b"first"]
    store_all(new, [batch(2, [b"mine"], epoch=2)])
    third = SegmentedLog(tmp_path)
    third.open(KEY, 3, KEEP)
    assert bodies_of(third) == [b"first", b"mine"]


@pytest.mark.parametrize("part", [0.1, 0.34, 0.5, 0.67, 0.9, 1.0])
def test_of_a_write_in_the_middle_of_the_takeover_those_count_that_were_whole(
    tmp_path: Path, old: SegmentedLog, new: SegmentedLog, pausing: PausingDisk, part: float
) -> None:
    group = [batch(base, [bytes([base]) * 100]) for base in (2, 3, 4)]
    pausing.part = part
    pausing.after_write = lambda: new.open(KEY, 2, KEEP)
    answers = old.append(group)
    stored = [item.batch for item, answer in zip(group, answers, strict=True) if answer is None]
    assert len(stored) == int(3 * part + 0.001)
    assert all(isinstance(answer, Fenced) for answer in answers[len(stored) :])
    assert batches_of(new)[1:] == stored
    store_all(new, [batch(9, epoch=2)])
    third = SegmentedLog(tmp_path)
    third.open(KEY, 3, KEEP)
    assert batches_of(third)[1:-1] == stored


def test_while_the_new_owner_has_not_sealed_the_outcome_is_unknown(
    tmp_path: Path, old: SegmentedLog, new: SegmentedLog, pausing: PausingDisk
) -> None:
    """It raised the epoch and died; the next one finds the write and keeps it."""
    epochs = new._epochs_of(partition_folder(tmp_path).parent)
    pausing.after_write = lambda: epochs.raise_to(KEY.partition, 2)
    assert isinstance(old.append([batch(2, [b"second"])])[0], StorageUnavailable)
    new.open(KEY, 3, KEEP)
    assert bodies_of(new) == [b"first", b"second"]


def test_a_fenced_owner_cannot_close_or_start_a_segment(tmp_path: Path, old: SegmentedLog, new: SegmentedLog) -> None:
    store_all(old, [sized(2, 60_000)])
    new.open(KEY, 2, KEEP)
    files = log_files(tmp_path) + log_files(tmp_path, "index")
    assert isinstance(old.append([batch(3)])[0], Fenced)
    assert log_files(tmp_path) + log_files(tmp_path, "index") == files
    fresh = SegmentedLog(tmp_path)
    fresh.open(KEY, 3, KEEP)
    new.open(KEY, 4, KEEP)
    assert isinstance(fresh.append([batch(3, epoch=3)])[0], Fenced)
    assert log_files(tmp_path) == files[:1]


def test_a_fenced_owner_cannot_trim(tmp_path: Path, old: SegmentedLog, new: SegmentedLog) -> None:
    new.open(KEY, 2, KEEP)
    with pytest.raises(Fenced):
        old.trim(KEY, QueueSettings(ttl_seconds=1), NOW_MS)
    assert len(log_files(tmp_path)) == 1


def test_a_fenced_owner_whose_flush_failed_takes_nothing_back(
    tmp_path: Path, old: SegmentedLog, new: SegmentedLog, pausing: PausingDisk
) -> None:
    """The new owner's seal may include the write, so the bytes must stay."""

    def take_over_and_fail() -> None:
        new.open(KEY, 2, KEEP)
        raise OSError(5, "Input/output error")

    pausing.after_write = take_over_and_fail
    assert isinstance(old.append([batch(2, [b"second"])])[0], StorageUnavailable)
    old.release(KEY)
    assert bodies_of(new) == [b"first", b"second"]


def test_the_late_note_of_a_fenced_owner_does_not_confuse_the_next(
    tmp_path: Path, old: SegmentedLog, new: SegmentedLog
) -> None:
    """A host paused after its confirmation notes its end in shared memory when another has gone on already."""
    new.open(KEY, 2, KEEP)
    store_all(new, [batch(5, epoch=2)])
    epochs = new._epochs_of(partition_folder(tmp_path).parent)
    epochs.note(KEY.partition, 1, 10**9)
    assert epochs.noted(KEY.partition, 5) == 0
    # The new owner's note came in between the fields of the late one.
    epochs._slots[KEY.partition * 4 + 1] = 5
    assert epochs.noted(KEY.partition, 5) == 0
    assert SegmentedLog(tmp_path).open(KEY, 3, KEEP).last_id == 5


def test_a_reader_of_a_fenced_owner_whose_segments_were_trimmed_is_told(tmp_path: Path, old: SegmentedLog) -> None:
    for base in range(2, 5):
        store_all(old, [sized(base, 60_000)])
    newer = SegmentedLog(tmp_path)
    newer.open(KEY, 2, KEEP)
    assert newer.trim(KEY, QueueSettings(ttl_seconds=1), NOW_MS) > 0
    with pytest.raises(Fenced):
        old.read(KEY, 0, 100)


def test_a_lock_that_is_never_let_go_is_an_error_not_a_hang(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(StorageUnavailable, match="another"), locked(tmp_path / "lock", 0.02):
        pass


def test_two_hosts_may_share_a_folder_and_own_different_partitions(tmp_path: Path) -> None:
    hosts = [SegmentedLog(tmp_path), SegmentedLog(tmp_path)]
    keys = [type(KEY)("orders", "g1", number) for number in range(6)]
    for number, key in enumerate(keys):
        hosts[number % 2].open(key, 1, KEEP)
    for number, key in enumerate(keys):
        store_all(hosts[number % 2], [batch(first_id_at(NOW_MS), [str(number).encode()], key=key)])
    for number, key in enumerate(keys):
        assert bodies_of(hosts[number % 2], key) == [str(number).encode()]


def test_a_first_write_that_came_too_late_leaves_nothing(
    tmp_path: Path, pausing: PausingDisk, new: SegmentedLog
) -> None:
    """The new owner found an empty segment and removed it while the old one was about to write to it."""
    log = SegmentedLog(tmp_path, disk=pausing)
    log.open(KEY, 1, KEEP)
    pausing.before_write = lambda: new.open(KEY, 2, KEEP)
    assert isinstance(log.append([batch(1)])[0], Fenced)
    assert bodies_of(new) == []
    assert log_files(tmp_path) == []
