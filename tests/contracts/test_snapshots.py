"""Named snapshots of where a subscription stands, over every MetaStore."""

from __future__ import annotations

import pytest

from delivery.errors import CorruptRecord, InvalidRequest, SnapshotExists, UnknownSnapshot
from delivery.metastore.managers.changes import MoveState
from delivery.metastore.managers.records import ParkedKey
from delivery.metastore.managers.snapshots import (
    SNAPSHOTS_MAX,
    SavedPosition,
    Snapshot,
    SubscriptionSnapshots,
)
from delivery.metastore.managers.subscriptions import SubscriptionDataManager
from delivery.metastore.tables.base import MetaStore
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned
from tests.metastore_managers import preferences
from tests.metastore_tables import StartStore, refused

PARKED = (ParkedKey(b"k", (7, 9), failures=2, due_ms=5, last_error="no"),)


@pytest.fixture
def snapshots(metastore: MetaStore) -> SubscriptionSnapshots:
    return SubscriptionSnapshots(metastore)


def taken(position: int = 10, *, created_ms: int = 5, at: int = 1, parked: tuple[ParkedKey, ...] = ()) -> Snapshot:
    return Snapshot("g", created_ms, at, {0: SavedPosition(position, parked), 3: SavedPosition(position + 1)})


def test_a_snapshot_is_kept_under_its_name_until_it_is_deleted(snapshots: SubscriptionSnapshots) -> None:
    mine = preferences()
    late, early = taken(20, at=9, parked=PARKED), taken(10, at=3)
    snapshots.add_snapshot(mine, "a", late)
    snapshots.add_snapshot(mine, "b", early)
    assert list(snapshots.read_snapshots(mine).items()) == [("b", early), ("a", late)], "the oldest comes first"
    assert refused(snapshots.add_snapshot, mine, "a", early) is SnapshotExists
    assert snapshots.read_snapshots(preferences("other")) == {}
    snapshots.delete_snapshot(mine, "b")
    assert snapshots.read_snapshots(mine) == {"a": late}
    assert refused(snapshots.delete_snapshot, mine, "b") is UnknownSnapshot
    snapshots.delete_snapshot(mine, "a")
    assert snapshots.read_snapshots(mine) == {}


def test_two_who_take_snapshots_at_once_both_keep_theirs(
    start_metastore: StartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = SubscriptionSnapshots(start_metastore()), SubscriptionSnapshots(start_metastore())
    read = one._read

    def read_too_early(queue: str, name: str) -> Versioned[Value]:
        found = read(queue, name)
        monkeypatch.undo()
        other.add_snapshot(preferences(), "theirs", taken(1))
        return found

    monkeypatch.setattr(one, "_read", read_too_early)
    one.add_snapshot(preferences(), "mine", taken(2))
    assert set(other.read_snapshots(preferences())) == {"mine", "theirs"}


def test_a_subscription_has_so_many_snapshots_and_so_much_room_for_them(snapshots: SubscriptionSnapshots) -> None:
    mine = preferences()
    for number in range(SNAPSHOTS_MAX):
        snapshots.add_snapshot(mine, f"s{number}", taken(number, at=number))
    with pytest.raises(InvalidRequest, match="delete one, such as 's0'"):
        snapshots.add_snapshot(mine, "more", taken())
    large = taken(parked=tuple(ParkedKey(b"x" * 30_000, (number,)) for number in range(5)))
    other = preferences("t")
    snapshots.add_snapshot(other, "first", large)
    snapshots.add_snapshot(other, "second", large)
    with pytest.raises(InvalidRequest, match="512 KiB of snapshots"):
        snapshots.add_snapshot(other, "third", large)
    assert set(snapshots.read_snapshots(other)) == {"first", "second"}


@pytest.mark.parametrize("name", ["", "a/b", "x" * 65, "a\x01b", None])
def test_names_that_cannot_be_are_refused(snapshots: SubscriptionSnapshots, name: str) -> None:
    assert refused(snapshots.add_snapshot, preferences(), name, taken()) is InvalidRequest


def test_snapshots_of_an_earlier_subscription_count_for_no_later_one_and_make_room(
    snapshots: SubscriptionSnapshots,
) -> None:
    for number in range(SNAPSHOTS_MAX):
        snapshots.add_snapshot(preferences(), f"s{number}", taken(number))
    again = preferences(created_ms=9)
    assert snapshots.read_snapshots(again) == {}
    snapshots.add_snapshot(again, "s0", taken(created_ms=9))
    assert set(snapshots.read_snapshots(again)) == {"s0"}
    snapshots.drop_snapshots("q", "s", preferences())
    assert set(snapshots.read_snapshots(again)) == {"s0"}, "who deletes the earlier one late deletes nothing of this"


def test_snapshots_go_with_their_subscription_and_with_its_queue(metastore: MetaStore) -> None:
    manager = SubscriptionDataManager(metastore)
    versions = {name: manager.create_subscription_data(preferences(name)) for name in ("s", "t")}
    for name in versions:
        manager.snapshots.add_snapshot(preferences(name), "kept", taken())
    manager.delete_subscription_data("q", "s", versions["s"])
    assert manager.snapshots.read_snapshots(preferences("s")) == {}
    assert set(manager.snapshots.read_snapshots(preferences("t"))) == {"kept"}
    manager.delete_all_subscription_data("q", lambda: None)
    assert list(metastore.create_scannable_table("snapshots").open_cursor().read_entries(9)) == []


def test_damaged_snapshots_are_told_and_keep_no_subscription_from_being_deleted(metastore: MetaStore) -> None:
    manager = SubscriptionDataManager(metastore)
    version = manager.create_subscription_data(preferences())
    table = metastore.create_scannable_table("snapshots")
    table.put("q\x01s", Value({"kept": b'{"generation":"g","created_ms":5,"taken_ms":1,"positions":{}}'}), Version.NEW)
    assert refused(manager.snapshots.read_snapshots, preferences()) is CorruptRecord
    manager.delete_subscription_data("q", "s", version)
    assert manager.snapshots.read_snapshots(preferences()) == {}


def test_a_state_that_goes_back_to_a_snapshot_has_what_was_parked_then(metastore: MetaStore) -> None:
    manager = SubscriptionDataManager(metastore)
    manager.take_state(preferences(), 0, 3)
    [moved] = manager.move_states([MoveState(preferences(), 0, 10, 1, PARKED)])
    assert isinstance(moved, Versioned)
    again = manager.take_state(preferences(), 0, 4).value
    assert (again.position, again.parked, again.moves, again.epoch) == (10, PARKED, 1, 4)
