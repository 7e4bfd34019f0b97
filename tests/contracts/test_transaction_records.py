"""What is kept of transactions, over any MetaStore: by version, the manager's name by itself, and never half."""

from __future__ import annotations

import pytest

from delivery.errors import BadVersion, CorruptRecord, InvalidRequest
from delivery.metastore.managers import transactions
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.managers.transactions import Managed, TransactionRecords
from delivery.metastore.tables.base import MetaStore
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.transactions.limits import IN_PROGRESS_MAX
from delivery.transactions.state import State
from tests.metastore_tables import NEW, StartStore, refused

FIRST = Managed(OwnerInfo("h1", 7, 1), State(next_pointer=10, leased=20))
FULL = Managed(
    OwnerInfo("h2", 8, 2),
    State(21, 30, 9, {8: 100, 3: 90}, [1, 5], {2**55: 30}, 4, {9: True, 7: False}),
)


@pytest.fixture
def records(metastore: MetaStore) -> TransactionRecords:
    return TransactionRecords(metastore)


def test_what_is_kept_comes_back_with_its_version(records: TransactionRecords) -> None:
    assert records.read() is None
    assert records.read_manager() is None
    first = records.write(FIRST, NEW)
    assert records.read() == Versioned(FIRST, first)
    second = records.write(FULL, first)
    assert records.read() == Versioned(FULL, second)
    assert records.read_manager() == FULL.manager
    found = records.read()
    assert found is not None
    assert list(found.value.state.finished) == [9, 7], "the order tells which ended first"


def test_of_two_managers_one_goes_on(start_metastore: StartStore) -> None:
    one, other = (TransactionRecords(start_metastore()) for _ in range(2))
    version = one.write(FIRST, NEW)
    assert refused(other.write, FULL, NEW) is BadVersion
    taken = other.write(FULL, version)
    assert refused(one.write, FIRST, version) is BadVersion
    assert refused(one.write, FIRST, Version(taken.number + 1)) is BadVersion
    assert one.read() == Versioned(FULL, taken)


def test_what_was_wiped_is_not_written_over(records: TransactionRecords, metastore: MetaStore) -> None:
    version = records.write(FIRST, NEW)
    metastore.create_table(transactions.TABLE).remove("all", version)
    assert refused(records.write, FULL, version) is BadVersion


def test_as_much_as_there_may_be_is_kept(records: TransactionRecords) -> None:
    high = 1_700_000_000_000_000_000
    many = State(high, high, high, {high - number: high // 10**6 for number in range(IN_PROGRESS_MAX)}, [], {}, 0, {})
    version = records.write(Managed(FIRST.manager, many), NEW)
    assert records.read() == Versioned(Managed(FIRST.manager, many), version)


@pytest.mark.parametrize(
    "state", [State(invalid=[2, 1]), State(next_pointer=9, leased=3), State(in_progress={-1: 0}), State(leased=2**63)]
)
def test_what_cannot_be_is_refused_and_found(records: TransactionRecords, metastore: MetaStore, state: State) -> None:
    assert refused(records.write, Managed(FIRST.manager, state), NEW) is InvalidRequest
    records.write(FIRST, NEW)
    metastore.create_table(transactions.TABLE).put("all", Value({"state": b"[]"}), Version.ANY)
    assert refused(records.read) is CorruptRecord
    assert records.read_manager() == FIRST.manager
