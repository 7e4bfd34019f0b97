"""What the log finds after a crash, after a power cut, and after something damaged its files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, strategies as st

from delivery.errors import CorruptRecord
from delivery.model import QueueSettings
from delivery.storage.base import Append
from delivery.storage.log import SegmentedLog
from tests.stores import KEY, OTHER, batch, batches_of, bodies_of, log_files, partition_folder, sized, store_all

KEEP = QueueSettings()
SEGMENT = 20_000
body_lists = st.lists(st.lists(st.binary(max_size=200), min_size=1, max_size=5), min_size=1, max_size=8)


def opened(data: Path, epoch: int) -> SegmentedLog:
    log = SegmentedLog(data, segment_bytes=SEGMENT)
    log.open(KEY, epoch, KEEP)
    return log


def filled(data: Path, bodies: list[list[bytes]]) -> list[Append]:
    """A log with these batches in its open segment, left as a killed process leaves it."""
    log = opened(data, 1)
    group = [batch(100 * (place + 1), each) for place, each in enumerate(bodies)]
    for item in group:
        store_all(log, [item])
    return group


def length(group: list[Append]) -> int:
    """Behind so many bytes of its file there are zeros, which were reserved."""
    return sum(item.header.length for item in group)


def write_behind(path: Path, group: list[Append], data: bytes) -> None:
    """What was under way when the process died."""
    raw, end = path.read_bytes(), length(group)
    assert raw[end:] == bytes(len(raw) - end)
    path.write_bytes(raw[:end] + data + raw[end + len(data) :])


def cut_power(data: Path) -> None:
    """Lose what is in memory only: the noted ends."""
    (partition_folder(data).parent / "epochs").unlink()


def flip(path: Path, place: int, change: int = 1) -> None:
    raw = bytearray(path.read_bytes())
    raw[place] ^= change
    path.write_bytes(raw)


def expect_appends_go_on(data: Path, log: SegmentedLog, epoch: int, whole: list[bytes]) -> None:
    more = batch(10_000, [b"more"], epoch=epoch)
    store_all(log, [more])
    assert batches_of(log) == [*whole, more.batch]
    assert batches_of(opened(data, epoch + 1)) == [*whole, more.batch]


@given(body_lists, st.data())
def test_after_a_power_cut_the_whole_batches_before_any_cut_come_back(
    bodies: list[list[bytes]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        group = filled(folder, bodies)
        cut_power(folder)
        (path,) = log_files(folder)
        size = data.draw(st.integers(0, length(group)))
        path.write_bytes(path.read_bytes()[:size])
        ends = accumulate(item.header.length for item in group)
        whole = [item.batch for item, end in zip(group, ends, strict=True) if end <= size]
        log = opened(folder, 2)
        assert batches_of(log) == whole
        expect_appends_go_on(folder, log, 2, whole)


@given(body_lists, body_lists, st.data())
def test_after_a_kill_acknowledged_batches_are_all_there_and_of_an_unfinished_write_the_whole_ones(
    bodies: list[list[bytes]], unfinished: list[list[bytes]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        group = filled(folder, bodies)
        late = [batch(5000 + 100 * place, each) for place, each in enumerate(unfinished)]
        written = b"".join(item.batch for item in late)
        size = data.draw(st.integers(0, len(written)))
        (path,) = log_files(folder)
        write_behind(path, group, written[:size])
        ends = accumulate(item.header.length for item in late)
        whole = [item.batch for item, end in zip(late, ends, strict=True) if end <= size]
        log = opened(folder, 2)
        expect_appends_go_on(folder, log, 2, [item.batch for item in group] + whole)


@given(body_lists, st.data())
def test_after_a_kill_a_flipped_or_missing_byte_of_acknowledged_data_stops_the_partition(
    bodies: list[list[bytes]], data: st.DataObject
) -> None:
    """Even in the very last batch: the noted end says that it was acknowledged."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        group = filled(folder, bodies)
        (path,) = log_files(folder)
        place = data.draw(st.integers(0, length(group) - 1))
        if data.draw(st.booleans()):
            flip(path, place, data.draw(st.integers(1, 255)))
        else:
            path.write_bytes(path.read_bytes()[:place])
        before = path.read_bytes()
        for epoch in (2, 3):
            with pytest.raises(CorruptRecord):
                opened(folder, epoch)
        assert path.read_bytes() == before


@given(body_lists.filter(lambda bodies: len(bodies) > 1), st.data())
def test_after_a_power_cut_a_flipped_byte_before_the_last_batch_stops_the_partition(
    bodies: list[list[bytes]], data: st.DataObject
) -> None:
    """In the last batch it cannot be told from a torn tail, and is cut like one; the test below says so."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        group = filled(folder, bodies)
        cut_power(folder)
        (path,) = log_files(folder)
        place = data.draw(st.integers(0, length(group[:-1]) - 1))
        flip(path, place, data.draw(st.integers(1, 255)))
        with pytest.raises(CorruptRecord):
            opened(folder, 2)


def test_after_a_power_cut_a_damaged_last_batch_counts_as_torn(tmp_path: Path) -> None:
    group = filled(tmp_path, [[b"a"], [b"b"]])
    cut_power(tmp_path)
    flip(log_files(tmp_path)[0], length(group) - 1)
    assert batches_of(opened(tmp_path, 2)) == [group[0].batch]


def test_a_torn_tail_is_cut_and_logged_once_with_its_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    group = filled(tmp_path, [[b"a"]])
    (path,) = log_files(tmp_path)
    torn = batch(900).batch[:50].rstrip(b"\0")
    write_behind(path, group, torn)
    with caplog.at_level(logging.WARNING):
        opened(tmp_path, 2)
        opened(tmp_path, 3)
    assert [record.getMessage().split(" of ")[0] for record in caplog.records] == [f"cut {len(torn)} bytes"]
    assert path.stat().st_size == length(group)


def test_what_was_reserved_is_cut_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    group = filled(tmp_path, [[b"a"], [b"b"]])
    (path,) = log_files(tmp_path)
    assert path.stat().st_size > length(group)
    with caplog.at_level(logging.WARNING):
        assert batches_of(opened(tmp_path, 2)) == [item.batch for item in group]
    assert path.stat().st_size == length(group)
    assert not caplog.records


def test_a_torn_first_batch_leaves_no_segment(tmp_path: Path) -> None:
    opened(tmp_path, 1)
    torn = partition_folder(tmp_path) / f"{1:010}-{50:020}.log"
    torn.write_bytes(batch(50).batch[:-1])
    log = opened(tmp_path, 2)
    assert log_files(tmp_path) == []
    expect_appends_go_on(tmp_path, log, 2, [])


def test_messages_that_look_like_batches_do_not_stop_recovery(tmp_path: Path) -> None:
    """A torn batch whose body is itself a whole batch, with a higher id and the same epoch."""
    group = filled(tmp_path, [[b"a"]])
    (path,) = log_files(tmp_path)
    outer = batch(900, [batch(950, [b"inner"]).batch, b"x" * 1000])
    write_behind(path, group, outer.batch[:-500])
    cut_power(tmp_path)
    assert batches_of(opened(tmp_path, 2)) == [item.batch for item in group]


@pytest.mark.parametrize(
    "stale",
    [batch(900, epoch=9), batch(100), batch(50), batch(900, key=OTHER)],
    ids=["epoch", "same id", "low id", "place"],
)
def test_whole_batches_that_do_not_belong_behind_the_last_one_are_cut(tmp_path: Path, stale: Append) -> None:
    group = filled(tmp_path, [[b"a"]])
    (path,) = log_files(tmp_path)
    write_behind(path, group, stale.batch)
    assert batches_of(opened(tmp_path, 2)) == [item.batch for item in group]


def test_segments_that_overlap_stop_the_partition(tmp_path: Path) -> None:
    """A copy of a segment under another name, say."""
    three_segments(tmp_path)
    for kind in ("log", "index"):
        source = log_files(tmp_path, kind)[0]
        source.with_name(f"{1:010}-{9:020}.{kind}").write_bytes(source.read_bytes())
    with pytest.raises(CorruptRecord, match="begins inside"):
        opened(tmp_path, 2)


def test_only_the_open_segment_is_scanned(tmp_path: Path) -> None:
    """Damage to a closed one is found when it is read, or by its size, not by an opening that must be quick."""
    log = opened(tmp_path, 1)
    for base in range(1, 6):
        store_all(log, [sized(base, SEGMENT)])
    flip(log_files(tmp_path)[1], 5000)
    log = opened(tmp_path, 2)
    chunk = log.read(KEY, 0, 10)
    assert chunk is not None
    with pytest.raises(CorruptRecord, match="orders/3"):
        log.read(KEY, 1, 10)
    assert log.read(KEY, 2, 10) is not None


@given(st.data())
def test_a_flipped_byte_in_any_file_never_changes_what_is_read(data: st.DataObject) -> None:
    """Segments and indexes, closed and open: the right batches or CorruptRecord."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        log = opened(folder, 1)
        group = [sized(10 * place, SEGMENT // 2) for place in range(1, 8)]
        for item in group:
            store_all(log, [item])
        path = data.draw(st.sampled_from(log_files(folder) + log_files(folder, "index")))
        flip(path, data.draw(st.integers(0, path.stat().st_size - 1)), data.draw(st.integers(1, 255)))
        try:
            again = opened(folder, 2)
            found = batches_of(again)
            ranks = [again.measure(KEY, 0, item.header.base_id).messages for item in group]
        except CorruptRecord:
            return
        assert found == [item.batch for item in group]
        assert ranks == list(range(1, 8))


def three_segments(data: Path) -> list[Append]:
    log = opened(data, 1)
    group = [sized(10 * place, SEGMENT) for place in range(1, 5)]
    for item in group:
        store_all(log, [item])
    assert len(log_files(data, "index")) == 3
    return group


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [cut, Path.unlink])
@pytest.mark.parametrize(("kind", "place"), [("log", 1), ("log", 2), ("index", 0), ("index", 1), ("index", 2)])
def test_a_cut_or_missing_file_of_a_closed_segment_stops_the_partition(
    tmp_path: Path, damage: Callable[[Path], object], kind: str, place: int
) -> None:
    three_segments(tmp_path)
    damage(log_files(tmp_path, kind)[place])
    with pytest.raises(CorruptRecord):
        opened(tmp_path, 2)


def test_a_trim_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    """The oldest segment's batches are gone, its index is still there."""
    group = three_segments(tmp_path)
    log_files(tmp_path)[0].unlink()
    assert batches_of(opened(tmp_path, 2)) == [item.batch for item in group[1:]]
    assert len(log_files(tmp_path, "index")) == 3


def test_an_index_that_was_not_finished_is_written_anew(tmp_path: Path) -> None:
    group = filled(tmp_path, [[b"a"]])
    draft = log_files(tmp_path)[0].with_suffix(".index.tmp")
    draft.write_bytes(b"half")
    assert batches_of(opened(tmp_path, 2)) == [group[0].batch]
    assert not draft.exists()


def test_segments_of_a_newer_epoch_fence_even_when_shared_memory_was_lost(tmp_path: Path) -> None:
    opened(tmp_path, 1)
    log = opened(tmp_path, 5)
    store_all(log, [batch(1, epoch=5)])
    cut_power(tmp_path)
    with pytest.raises(Exception, match="epoch 5"):
        opened(tmp_path, 4)
    assert bodies_of(opened(tmp_path, 6)) == [b"body"]
