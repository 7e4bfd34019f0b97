"""The log's folder: its layout, its segments and indexes, its open files."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from delivery.errors import DataFolderError, InvalidRequest, LayoutMismatch
from delivery.ids import first_id_at
from delivery.model import QueueSettings
from delivery.storage.base import Chunk, PartitionKey, StoredBatch
from delivery.storage.log import SegmentedLog
from delivery.storage.log.index import STRETCH_BYTES, Extent, Index, encode, read_index, read_trailer
from delivery.storage.log.segment import CLOSED_FILES_MAX, Segment
from tests.stores import (
    KEY,
    NOW_MS,
    batch,
    headers_of,
    log_files,
    sized,
    store_all,
)

KEEP = QueueSettings()


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


# -- the folder -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ['{"kind":"hoot-log","version":1}', '{"kind":"x","version":2,"id":"x"}', "", "[]"])
def test_a_folder_of_another_layout_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "layout.json").write_text(content)
    with pytest.raises(LayoutMismatch):
        SegmentedLog(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["layout.json"]
    assert (tmp_path / "layout.json").read_text() == content


def test_a_new_folder_states_its_layout(tmp_path: Path) -> None:
    SegmentedLog(tmp_path / "a" / "b")
    found = json.loads((tmp_path / "a" / "b" / "layout.json").read_text())
    assert found == {"kind": "hoot-log", "version": 2, "id": found["id"]}
    assert len(found["id"]) == 16


def test_hosts_that_start_at_once_in_a_new_folder_all_find_it_good(tmp_path: Path) -> None:
    hosts = 8
    at_once = threading.Barrier(hosts)

    def start(folder: Path) -> SegmentedLog:
        at_once.wait(10)
        return SegmentedLog(folder)

    with ThreadPoolExecutor(hosts) as pool:
        for attempt in range(20):
            list(pool.map(start, [tmp_path / str(attempt)] * hosts))


def test_a_folder_that_cannot_be_is_a_data_folder_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataFolderError):
            SegmentedLog(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_a_data_folder_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataFolderError):
        SegmentedLog(tmp_path)


@pytest.mark.parametrize(
    "key",
    [
        PartitionKey("../up", "g", 0),
        PartitionKey("q", "../g", 0),
        PartitionKey("q", "", 0),
        PartitionKey("q", "a~b", 0),
        PartitionKey("q", "g", -1),
        PartitionKey("q", "g", 32767),
    ],
)
def test_a_key_that_is_none_reaches_no_file(tmp_path: Path, key: PartitionKey) -> None:
    log = SegmentedLog(tmp_path)
    with pytest.raises(InvalidRequest):
        log.open(key, 1, KEEP)
    assert list((tmp_path / "queues").iterdir()) == []


def test_opening_writes_no_segment(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path)
    for epoch in range(1, 10):
        log.open(KEY, epoch, KEEP)
    assert log_files(tmp_path) == []


# -- segments and indexes -------------------------------------------------------------------------------------------


def test_a_segment_is_closed_when_it_is_full_and_its_files_tell_epoch_and_first_id(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path, segment_bytes=10_000)
    log.open(KEY, 7, KEEP)
    for base in (5, 10, 15):
        store_all(log, [sized(base, 6_000, epoch=7)])
    names = [path.name for path in log_files(tmp_path)]
    assert names == ["0000000007-00000000000000000005.log", "0000000007-00000000000000000015.log"]
    (index,) = log_files(tmp_path, "index")
    assert read_trailer(index).extent == Extent(log_files(tmp_path)[0].stat().st_size, 10, 2)


def test_whoever_takes_a_partition_that_was_given_away_reads_only_what_came_at_the_end(tmp_path: Path) -> None:
    """A full segment of small messages takes seconds to read, in which nobody would be served."""
    log = SegmentedLog(tmp_path)
    log.open(KEY, 1, KEEP)
    for base, size in ((5, 1 << 20), (10, 1000), (15, 1000)):
        store_all(log, [sized(base, size)])
        log.prepare_release(KEY)
    sizes = [path.stat().st_size for path in log_files(tmp_path)]
    assert sizes[0] > 1 << 20 > sizes[1] > 2000
    (index,) = log_files(tmp_path, "index")
    assert read_trailer(index).extent == Extent(sizes[0], 5, 1), "a small one is not worth a file of its own"


def test_a_log_file_is_its_batches_and_nothing_else(tmp_path: Path) -> None:
    """But for the zeros that are reserved while it is open."""
    log = SegmentedLog(tmp_path)
    log.open(KEY, 1, KEEP)
    group = [batch(base, [b"x" * base]) for base in range(1, 50)]
    store_all(log, group)
    (path,) = log_files(tmp_path)
    assert path.read_bytes().rstrip(b"\0") == b"".join(item.batch for item in group)
    log.open(KEY, 2, KEEP)
    assert path.read_bytes() == b"".join(item.batch for item in group)


def test_any_place_of_a_long_segment_is_found_by_its_index(tmp_path: Path) -> None:
    """In the open segment and in the same one when it is closed; backwards, so that no reader was there before."""
    log = SegmentedLog(tmp_path)
    log.open(KEY, 1, KEEP)
    store_all(log, [sized(10 * place, 2000, count=4) for place in range(1, 201)])
    for epoch in (1, 2):
        for after in range(2010, 0, -7):
            chunk = log.read(KEY, after, 1)
            expected = next((10 * place for place in range(1, 201) if 10 * place + 3 > after), None)
            assert (chunk.headers[0].base_id if chunk else None) == expected
            assert log.measure(KEY, 0, after).messages == sum(
                min(4, max(0, after - 10 * place + 1)) for place in range(1, 201)
            )
        log.open(KEY, epoch + 1, KEEP)
    assert len(read_index(log_files(tmp_path, "index")[0])[0].entries()) > 5


def test_a_small_retention_makes_small_segments(tmp_path: Path) -> None:
    """So that dropping whole segments keeps most of what it may."""
    settings = QueueSettings(retention_bytes=4 << 20)
    log = SegmentedLog(tmp_path)
    log.open(KEY, 1, settings)
    for base in range(1, 13):
        store_all(log, [sized(base, 1 << 19)])
    log.trim(KEY, settings, NOW_MS)
    assert 2 << 20 < log.bounds(KEY).bytes <= 4 << 20


def test_trimming_unlinks_the_files_but_the_newest_index(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path)
    log.open(KEY, 1, KEEP)
    for number in range(4):
        store_all(log, [batch(first_id_at(NOW_MS) + number)])
        log.trim(KEY, QueueSettings(ttl_seconds=1), NOW_MS + 5000)
        assert (len(log_files(tmp_path)), len(log_files(tmp_path, "index"))) == (0, 1)
    log.open(KEY, 2, KEEP)
    store_all(log, [batch(first_id_at(NOW_MS) + 9, epoch=2)])
    log.open(KEY, 3, KEEP)
    assert (len(log_files(tmp_path)), len(log_files(tmp_path, "index"))) == (1, 1)


def test_a_reader_that_was_in_a_trimmed_segment_goes_on_behind_it(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path, segment_bytes=1000)
    log.open(KEY, 1, KEEP)
    for number in range(6):
        store_all(log, [batch(first_id_at(NOW_MS + number * 1000), [bytes([number]) * 2000])])
    chunk = log.read(KEY, 0, 10)
    assert chunk is not None
    log.trim(KEY, QueueSettings(ttl_seconds=3), NOW_MS + 6000)
    assert [header.base_id for header in headers_of(log, after=chunk.last_id)] == [
        first_id_at(NOW_MS + number * 1000) for number in (3, 4, 5)
    ]


def test_a_reader_whose_segment_is_trimmed_just_before_it_is_read_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SegmentedLog(tmp_path, segment_bytes=1000)
    log.open(KEY, 1, KEEP)
    for number in range(4):
        store_all(log, [batch(first_id_at(NOW_MS + number * 1000), [bytes([number]) * 2000])])
    reader = log._partition(KEY)._reader  # type: ignore[union-attr]
    read = reader.read

    def read_too_late(segment: Segment, after: int, bytes_max: int) -> Chunk:
        log.trim(KEY, QueueSettings(ttl_seconds=1), NOW_MS + 3000)
        return read(segment, after, bytes_max)

    monkeypatch.setattr(reader, "read", read_too_late)
    assert [header.base_id for header in headers_of(log)] == [first_id_at(NOW_MS + ms) for ms in (2000, 3000)]


entry_steps = st.lists(st.tuples(st.integers(1, 50), st.integers(65, 200_000), st.integers(1, 50)), max_size=30)


@given(entry_steps, st.lists(st.integers(-(2**62), 2**62), max_size=4).map(tuple), st.data())
def test_an_index_finds_the_stretch_of_an_id_and_reads_back(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, int, int]],
    numbers: tuple[int, ...],
    data: st.DataObject,
) -> None:
    index, starts = Index(), []
    base, offset, before = 1, 0, 0
    for gap, size, count in steps:
        index.note(base, offset, before)
        starts.append((base, offset, before))
        base, offset, before = base + count + gap, offset + size, before + count
    stored = tuple(StoredBatch(number, 1, 2, 3, 2**32 - 1) for number in numbers)
    path = tmp_path_factory.mktemp("index") / "one.index"
    path.write_bytes(encode(index, stored, Extent(offset, base, before)))
    again, producers = read_index(path)
    assert (again.entries(), producers) == (index.entries(), stored)
    assert read_trailer(path).extent == Extent(offset, base, before)
    wanted = data.draw(st.integers(0, base))
    at, ahead = again.find(wanted)
    below = [start for start in starts if start[0] <= wanted] or [(0, 0, 0)]
    assert (at, ahead) in {(each[1], each[2]) for each in starts} | {(0, 0)}
    assert below[-1][1] - STRETCH_BYTES < at <= below[-1][1]


# -- open files -----------------------------------------------------------------------------------------------------


def test_reading_many_closed_segments_keeps_a_bounded_number_open(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path, segment_bytes=1)
    log.open(KEY, 1, KEEP)
    count = CLOSED_FILES_MAX + 50
    for base in range(1, count + 1):
        store_all(log, [batch(base, durability="os")])
    before = open_files()
    assert len(headers_of(log)) == count
    assert open_files() - before <= CLOSED_FILES_MAX
    assert [header.base_id for header in headers_of(log, after=count // 2)] == list(range(count // 2 + 1, count + 1))
    log.close()
    assert open_files() < before


def test_a_partition_that_is_only_read_keeps_one_file_open_at_most(tmp_path: Path) -> None:
    log = SegmentedLog(tmp_path)
    keys = [PartitionKey("many", "g", number) for number in range(200)]
    for key in keys:
        log.open(key, 1, KEEP)
    before = open_files()
    store_all(log, [batch(1, key=key) for key in keys])
    assert open_files() - before == len(keys)
    for key in keys:
        assert len(headers_of(log, key)) == 1
        log.open(key, 2, KEEP)
    assert open_files() == before
    log.close()
    assert open_files() < before


def test_readers_and_trimming_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Readers on threads of their own see rising ids and whole batches while segments come and go."""
    log = SegmentedLog(tmp_path, segment_bytes=2000)
    log.open(KEY, 1, KEEP)
    done = threading.Event()
    ids = [first_id_at(NOW_MS + 10 * number) for number in range(400)]

    def read_to_the_end() -> bool:
        seen = 0
        while seen < ids[-1]:
            finished = done.is_set()
            chunk = log.read(KEY, seen, 3000)
            if chunk is None:
                assert not finished
                done.wait(0.002)
                continue
            assert all(header.last_id > seen for header in chunk.headers)
            assert log.measure(KEY, 0, seen).messages < len(ids)
            seen = chunk.last_id
        return True

    with ThreadPoolExecutor(3) as threads:
        readers = [threads.submit(read_to_the_end) for _ in range(3)]
        try:
            for number, base in enumerate(ids):
                store_all(log, [batch(base, [b"x" * 500], durability="os")])
                if number % 20 == 0:
                    log.trim(KEY, QueueSettings(ttl_seconds=1), NOW_MS + 10 * number)
        finally:
            done.set()
        assert all(reader.result(timeout=30) for reader in readers)
    assert 100 <= log.bounds(KEY).messages < 200
