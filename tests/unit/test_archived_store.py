"""Who reads a partition sees no border between its archive and what the store still holds: no gap and no double."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from delivery.batch import Header, Row
from delivery.batch.select import Refuses
from delivery.errors import ArchiveUnreadable, MetadataUnavailable
from delivery.ids import ID_MAX
from delivery.model import ArchivedRange, QueueSettings, encode_headers
from delivery.storage.archive import files
from delivery.storage.archive.store import ArchivedStore
from delivery.storage.base import Amount, Append, Bounds, Chunk, PartitionKey
from delivery.storage.memory import MemoryStore
from tests.archives import archive
from tests.stores import KEY, batch, batches_of, headers_of, store_all
from tests.strategies import bodies, header_maps, keys, stamped, times, topics

NOW_MS = 1_732_165_000_000
START = NOW_MS << 15
AGED = QueueSettings(ttl_seconds=1)

rows = st.tuples(bodies, keys, topics, header_maps.map(encode_headers))
row_lists = st.lists(st.lists(rows, min_size=1, max_size=5), min_size=1, max_size=12)
numbers = itertools.count()


class Records:
    """What is recorded of archives."""

    def __init__(self) -> None:
        self.ranges: tuple[ArchivedRange, ...] = ()
        self.error: MetadataUnavailable | None = None

    def __call__(self, keys: Sequence[PartitionKey]) -> list[tuple[ArchivedRange, ...]]:
        if self.error is not None:
            raise self.error
        return [self.ranges for _ in keys]


def filled(batches: Sequence[Append]) -> MemoryStore:
    store = MemoryStore()
    store.open(KEY, 1, QueueSettings())
    store_all(store, batches)
    return store


def made(lists: Sequence[Sequence[Row]], gap: int, spare: int | None = None) -> list[Append]:
    """Batches one after another, with so many ids between them; with `spare` every other one is the engine's own, and
    covers so many ids more."""
    found, base_id = [], START
    for number, batch_rows in enumerate(lists):
        own: list[Row] = []
        if spare is not None and number % 2:
            own = [(body, key, "hoot.own", block) for body, key, _, block in batch_rows]
        header, data = stamped(
            own or batch_rows, base_id, epoch=1, partition=KEY.partition, producer=(7, number),
            spare=spare or 0 if own else 0,
        )  # fmt: skip
        found.append(Append(KEY, 1, header, data, "fsync"))
        base_id = header.last_id + 1 + gap
    return found


def archived(store: MemoryStore, folder: Path, cuts: Sequence[int]) -> tuple[ArchivedStore, Records]:
    """The store with its archive up to the last of `cuts`."""
    records = Records()
    both = ArchivedStore(store, records)
    records.ranges = archive(folder, store, KEY, cuts)
    both.refresh([(KEY, str(folder))])
    return both, records


@given(
    row_lists, st.sampled_from([0, 1, 40_000, 3 * 86_400_000 << 15]), st.sampled_from([None, 0, 1, 500]), st.data(),
)  # fmt: skip
@times(0.3)
def test_all_reads_are_those_of_a_store_that_dropped_nothing(
    tmp_path_factory: pytest.TempPathFactory, lists: list[list[Row]], gap: int, spare: int | None, data: st.DataObject
) -> None:
    batches = made(lists, gap, spare)
    reference, store = filled(batches), filled(batches)
    last_id = batches[-1].header.last_id
    cuts = sorted(data.draw(st.sets(st.integers(START, last_id), min_size=1, max_size=4)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "GROUP_BYTES", data.draw(st.sampled_from([1, 500, files.GROUP_BYTES])))
        both, records = archived(store, tmp_path_factory.mktemp("archive"), cuts)
    dropped = data.draw(st.integers(START - 1, records.ranges[-1].until if records.ranges else START))
    store.trim(KEY, AGED, (last_id >> 15) + 10_000, dropped)

    assert batches_of(both) == batches_of(reference)
    assert batches_of(both, bytes_max=1) == batches_of(reference)
    ends = [one.header.last_id for one in batches]
    edges = sorted({0, START - 1, last_id, ID_MAX, *cuts, *ends, *(end - (spare or 0) // 2 for end in ends)})
    for after, until in itertools.pairwise(edges):
        assert both.measure(KEY, after, until).messages == reference.measure(KEY, after, until).messages
        assert headers_of(both, after=after) == headers_of(reference, after=after)
    found, expected = both.bounds(KEY), reference.bounds(KEY)
    assert (found.first_id, found.last_id, found.messages) == (
        expected.first_id, expected.last_id, expected.messages,
    )  # fmt: skip


def test_refused_batches_are_left_out_and_passed_over(tmp_path: Path) -> None:
    batches = [batch(START + number, topic=topic) for number, topic in enumerate(["a", "b", "a"])]
    store = filled(batches)
    both, _ = archived(store, tmp_path, [START + 2])
    store.trim(KEY, AGED, NOW_MS + 10_000)

    def refuses(header: Header, dictionary: bytes) -> bool:
        return dictionary == b"\x01b"

    chunk = both.read(KEY, 0, 1 << 20, refuses)
    assert chunk is not None
    assert (chunk.headers, chunk.last_id) == ((batches[0].header, batches[2].header), START + 2)
    chunk = both.read(KEY, START, 1, refuses)
    assert chunk is not None
    assert (chunk.headers, chunk.last_id) == ((), START + 1)


class TrimmedMeanwhile(MemoryStore):
    """Retention comes between the question how far the store reaches back and the reading."""

    coming = False

    def read(self, key: PartitionKey, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        self._come(key)
        return super().read(key, after, bytes_max, refuses)

    def measure(self, key: PartitionKey, after: int, until: int) -> Amount:
        self._come(key)
        return super().measure(key, after, until)

    def _come(self, key: PartitionKey) -> None:
        if self.coming:
            self.coming = False
            self.trim(key, AGED, NOW_MS + 10_000, START + 1)


def test_a_read_while_retention_drops_what_is_archived_skips_nothing(tmp_path: Path) -> None:
    batches = [batch(START + number) for number in range(3)]
    store = TrimmedMeanwhile()
    store.open(KEY, 1, QueueSettings())
    store_all(store, batches)
    both, _ = archived(store, tmp_path, [START + 1])
    store.coming = True
    assert headers_of(both) == [one.header for one in batches]
    assert not store.coming


def test_a_count_while_retention_drops_what_is_archived_misses_nothing(tmp_path: Path) -> None:
    store = TrimmedMeanwhile()
    store.open(KEY, 1, QueueSettings())
    store_all(store, [batch(START + number) for number in range(3)])
    both, _ = archived(store, tmp_path, [START + 1])
    store.coming = True
    assert both.measure(KEY, 0, ID_MAX).messages == 3


def test_what_is_to_be_archived_first_waits_for_it(tmp_path: Path) -> None:
    store = filled([batch(START + number) for number in range(4)])
    records = Records()
    both = ArchivedStore(store, records)
    first = QueueSettings(ttl_seconds=1, archive=str(tmp_path), archive_first=True)
    assert both.trim(KEY, first, NOW_MS + 10_000) == 0
    records.ranges = archive(tmp_path, store, KEY, [START + 1])
    both.refresh([(KEY, str(tmp_path))])
    assert both.trim(KEY, first, NOW_MS + 10_000) > 0
    assert store.bounds(KEY).first_id == START + 2
    assert both.bounds(KEY).first_id == START


def test_who_did_not_ask_for_it_loses_what_is_too_old_without_an_archive(tmp_path: Path) -> None:
    store = filled([batch(START)])
    both, _ = archived(store, tmp_path, [START - 1])
    assert both.trim(KEY, QueueSettings(ttl_seconds=1, archive=str(tmp_path)), NOW_MS + 10_000) > 0
    assert both.bounds(KEY) == Bounds(0, START, 0, 0)


def test_an_owner_that_opens_a_partition_knows_its_archive(tmp_path: Path) -> None:
    """Where the store has lost its end, which a queue without fsync may, ids in the archive are not given out again."""
    records = Records()
    records.ranges = archive(tmp_path, filled([batch(START), batch(START + 9)]), KEY, [START + 100])
    both = ArchivedStore(filled([batch(START)]), records)
    state = both.open(KEY, 2, QueueSettings(archive=str(tmp_path)))
    assert state.last_id == START + 100
    assert both.bounds(KEY).first_id == START
    assert both.open(KEY, 3, QueueSettings()).last_id == START


def test_a_partition_whose_records_cannot_be_read_is_not_opened(tmp_path: Path) -> None:
    store, records = MemoryStore(), Records()
    records.error = MetadataUnavailable("away")
    both = ArchivedStore(store, records)
    with pytest.raises(MetadataUnavailable):
        both.open(KEY, 1, QueueSettings(archive=str(tmp_path)))
    records.error = None
    assert both.open(KEY, 2, QueueSettings(archive=str(tmp_path))).last_id == 0


def break_file(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "half-written":
        path.write_bytes(content[: len(content) // 2])
    else:
        at = content.index(b"hidden-in-the-body")
        path.write_bytes(content[:at] + b"H" + content[at + 1 :])


@pytest.mark.parametrize(
    ("how", "told"), [("missing", "is missing: bring it back"), ("half-written", "no whole file"), ("other", "damaged")]
)
def test_a_broken_file_is_one_clear_error_for_whoever_needs_it(tmp_path: Path, how: str, told: str) -> None:
    store = filled([batch(START, [b"hidden-in-the-body"]), batch(START + 9)])
    both, _ = archived(store, tmp_path, [START])
    [path] = tmp_path.rglob("*.parquet")
    break_file(path, how)
    assert len(batches_of(both)) == 2, "the store has all of it still"
    store.trim(KEY, AGED, NOW_MS + 10_000, START)
    with pytest.raises(ArchiveUnreadable, match=told) as raised:
        both.read(KEY, 0, 1000)
    assert str(path) in str(raised.value)
    assert headers_of(both, after=START) == [batch(START + 9).header]
    assert both.bounds(KEY).messages == 2


def test_without_pyarrow_what_is_archived_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled([batch(START), batch(START + 9)])
    both, _ = archived(store, tmp_path, [START])
    store.trim(KEY, AGED, NOW_MS + 10_000, START)
    monkeypatch.setitem(__import__("sys").modules, "delivery.storage.archive.files", None)
    with pytest.raises(ArchiveUnreadable, match=r"pip install 'hoot\[archive\]'"):
        both.read(KEY, 0, 1000)
    assert headers_of(both, after=START) == [batch(START + 9).header]
