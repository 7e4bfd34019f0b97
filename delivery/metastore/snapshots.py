"""The catalog's snapshots of subscriptions: where they stand, kept under a name, to go back to."""

from __future__ import annotations

from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.managers.snapshots import SavedPosition, Snapshot
from delivery.metastore.positions import Positions


class Snapshots(Positions):
    """Taking, reading and deleting snapshots."""

    def look(self, queue: str, name: str, now_ms: int) -> Snapshot:
        """Where a subscription stands now, as it was saved last. Raises UnknownQueue, UnknownSubscription."""
        found = self._preferences(queue, name).value
        states = self.managers.subscriptions.read_states(found)
        positions = {
            number: _saved(states[number].value) if number in states else SavedPosition(start)
            for number, start in found.starts.items()
        }
        return Snapshot(found.generation, found.created_ms, now_ms, positions)

    def add_snapshot(self, queue: str, name: str, snapshot_name: str, snapshot: Snapshot) -> None:
        """Keep what `look` gave. Raises SnapshotExists, InvalidRequest when there is no room, and as `look`."""
        found = self._preferences(queue, name).value
        self.managers.subscriptions.snapshots.add_snapshot(found, snapshot_name, snapshot)

    def snapshots(self, queue: str, name: str) -> dict[str, Snapshot]:
        """A subscription's snapshots by name, the oldest first. Raises CorruptRecord, and as `look`."""
        return self.managers.subscriptions.snapshots.read_snapshots(self._preferences(queue, name).value)

    def delete_snapshot(self, queue: str, name: str, snapshot_name: str) -> None:
        """Forget a snapshot. Raises UnknownSnapshot, and as `look`."""
        self.managers.subscriptions.snapshots.delete_snapshot(self._preferences(queue, name).value, snapshot_name)


def _saved(state: SubscriptionState) -> SavedPosition:
    whole = state.without_shares()
    return SavedPosition(whole.position, whole.parked)
