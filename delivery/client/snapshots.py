"""Named snapshots of where a subscription stands, and going back to one."""

from __future__ import annotations

from delivery import wall
from delivery.client.positions import Move, Positions
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.snapshots import Snapshot, check_snapshot_name, unknown_snapshot


class Snapshots:
    """Over one catalog and the region hosts. Thread-safe; closes nothing."""

    def __init__(self, catalog: Catalog, positions: Positions) -> None:
        self._catalog, self._positions = catalog, positions

    def create(self, queue: str, name: str, snapshot: str, *, dry_run: bool) -> Snapshot:
        """See Client.create_snapshot."""
        check_snapshot_name(snapshot)
        found = self._catalog.look(queue, name, wall.ms())
        if not dry_run:
            self._catalog.add_snapshot(queue, name, snapshot, found)
        return found

    def all(self, queue: str, name: str) -> dict[str, Snapshot]:
        """See Client.snapshots."""
        return self._catalog.snapshots(queue, name)

    def one(self, queue: str, name: str, snapshot: str) -> Snapshot:
        """See Client.snapshot."""
        record = self._positions.record(queue, name)
        known = self.all(queue, name)
        if check_snapshot_name(snapshot) not in known:
            raise unknown_snapshot(record, snapshot, known)
        return known[snapshot]

    def delete(self, queue: str, name: str, snapshot: str) -> None:
        """See Client.delete_snapshot."""
        self._catalog.delete_snapshot(queue, name, check_snapshot_name(snapshot))

    def restore(self, queue: str, name: str, snapshot: str, *, force: bool, dry_run: bool) -> list[Move]:
        """See Client.restore_snapshot."""
        record, kept = self._positions.record(queue, name), self.one(queue, name, snapshot)
        return self._positions.put(record, kept.positions, force=force, dry_run=dry_run)
