"""The scanners of plain clients: merged by id, bounded, and closed when nobody asks."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, strategies as st

from delivery.api.scanners import Cursor, Range, Scanner, ScannerTable, check_range
from delivery.batch import Header, Row
from delivery.errors import HootError, InvalidRequest, NotOwner, Throttled, UnknownScanner
from delivery.filters import filter_of
from delivery.ids import ID_MAX
from delivery.storage.base import Chunk
from tests.strategies import stamped


class Partitions:
    """Batches by partition, read one at a time; a partition may be out of reach."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[Header, bytes]]] = {}
        self.lost: set[int] = set()

    def add(self, partition: int, base_id: int, *topics: str) -> None:
        rows: list[Row] = [(b"%d" % (base_id + i), None, topic, b"") for i, topic in enumerate(topics)]
        header, data = stamped(rows, base_id, partition=partition)
        self.batches.setdefault(partition, []).append((header, data))

    async def read(self, queue: str, partition: int, after: int, bytes_max: int) -> Chunk | None:
        if partition in self.lost:
            raise NotOwner("moved", address="10.0.0.2:7000")
        for header, data in self.batches.get(partition, ()):
            if header.last_id > after:
                return Chunk(data, (header,))
        return None


def scanner(*partitions: int, wanted: Range | None = None) -> Scanner:
    return Scanner([Cursor("orders", partition, wanted or Range()) for partition in partitions])


def take(partitions: Partitions, scan: Scanner, count: int) -> list[int]:
    async def run() -> list[int]:
        return [message.number for message in await scan.take(count, partitions.read)]

    return trio.run(run)


def test_several_partitions_come_merged_by_id() -> None:
    partitions = Partitions()
    partitions.add(0, 10, "a", "a", "a")
    partitions.add(1, 11, "a", "a")
    partitions.add(0, 30, "a")
    partitions.add(1, 20, "a")
    scan = scanner(0, 1)
    assert take(partitions, scan, 4) == [10, 11, 11, 12]
    assert take(partitions, scan, 100) == [12, 20, 30]
    assert take(partitions, scan, 100) == []


def test_a_scanner_at_the_end_goes_on_when_there_is_more() -> None:
    partitions = Partitions()
    scan = scanner(0)
    assert take(partitions, scan, 1) == []
    partitions.add(0, 10, "a", "a")
    assert take(partitions, scan, 1) == [10]
    assert take(partitions, scan, 5) == [11]


def test_start_stop_and_topics_hold() -> None:
    partitions = Partitions()
    partitions.add(0, 10, "a", "b", "a", "b")
    partitions.add(0, 20, "b", "a")
    assert take(partitions, scanner(0, wanted=Range(11, 21, filter_of(("b",), None))), 100) == [11, 13, 20]


def test_a_partition_that_moves_away_in_the_middle_costs_nothing_that_was_read() -> None:
    partitions = Partitions()
    partitions.add(0, 10, "a")
    partitions.add(1, 11, "a")
    scan = scanner(0, 1)
    assert take(partitions, scan, 1) == [10]
    partitions.lost.add(0)
    with pytest.raises(NotOwner):
        take(partitions, scan, 10)
    partitions.lost.clear()
    assert take(partitions, scan, 10) == [11]


def test_a_scanner_that_nobody_uses_is_closed_and_one_in_use_stays() -> None:
    table = ScannerTable(idle_seconds=60, partitions_max=100)
    used, idle = table.add(scanner(0), now=0), table.add(scanner(0), now=0)
    table.use(used, now=50)
    assert table.use(used, now=100) is table.use(used, now=100)
    with pytest.raises(UnknownScanner):
        table.use(idle, now=100)
    assert len(table) == 1


def test_closing_twice_is_fine_and_using_a_closed_one_is_an_error() -> None:
    table = ScannerTable(idle_seconds=60, partitions_max=100)
    opened = table.add(scanner(0), now=0)
    table.close(opened)
    table.close(opened)
    with pytest.raises(UnknownScanner):
        table.use(opened, now=0)


def test_open_scanners_are_bounded_by_the_partitions_that_they_read() -> None:
    table = ScannerTable(idle_seconds=60, partitions_max=10)
    opened = table.add(scanner(*range(8)), now=0)
    with pytest.raises(Throttled):
        table.add(scanner(1, 2, 3), now=0)
    table.close(opened)
    table.add(scanner(*range(10)), now=0)
    table.add(scanner(1), now=61)


def test_ids_go_round_without_meeting_one_that_is_open() -> None:
    table = ScannerTable(idle_seconds=60, partitions_max=10, first_id=2**31 - 2)
    opened = [table.add(scanner(0), now=0) for _ in range(3)]
    assert len(set(opened)) == 3
    assert all(0 <= number < 2**31 for number in opened)


@pytest.mark.parametrize(("start", "stop"), [(-1, None), (0, -5)])
def test_ids_that_cannot_be_are_refused(start: int, stop: int | None) -> None:
    with pytest.raises(InvalidRequest):
        check_range(start, stop, None)


def test_a_range_begins_at_the_oldest_and_has_no_end_by_default() -> None:
    assert check_range(None, None, None) == Range(0, ID_MAX)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 50)), max_size=15),
    st.lists(st.integers(1, 7), min_size=1, max_size=40),
)
def test_whatever_is_stored_and_however_it_is_asked_for_every_message_comes_once_in_order(
    stored: list[tuple[int, int, int]], asks: list[int]
) -> None:
    partitions, last = Partitions(), [0, 0, 0]
    expected: list[int] = []
    for partition, count, gap in stored:
        base = last[partition] + gap
        partitions.add(partition, base, *["a"] * count)
        last[partition] = base + count - 1
        expected += range(base, base + count)
    scan = scanner(0, 1, 2)

    async def run() -> list[int]:
        found: list[int] = []
        for ask in [*asks, len(expected) + 1]:
            taken = await scan.take(ask, partitions.read)
            assert len(taken) <= ask
            found += [message.number for message in taken]
        return found

    assert trio.run(run) == sorted(expected)


def test_an_error_before_anything_was_taken_is_raised() -> None:
    partitions = Partitions()
    partitions.lost.add(0)
    with pytest.raises(HootError):
        take(partitions, scanner(0), 1)
