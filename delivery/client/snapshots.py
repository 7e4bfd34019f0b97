"""Named snapshots of where a subscription stands, and going back to one."""

from __future__ import annotations

import time

from delivery.client.positions import Move, Positions
from delivery.errors import InvalidRequest
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.snapshots import Snapshot, check_snapshot_name, unknown_snapshot
from delivery.metastore.records import SubscriptionRecord


class Snapshots:
    """Over one catalog and the region hosts. Thread-safe; closes nothing."""

    def __init__(self, catalog: Catalog, positions: Positions) -> None:
        self._catalog, self._positions = catalog, positions

    def create(self, queue: str, name: str, snapshot: str, *, dry_run: bool) -> Snapshot:
        """See Client.create_snapshot."""
        check_snapshot_name(snapshot)
        found = self._catalog.look(queue, name, time.time_ns() // 1_000_000)
        if not dry_run:
            self._catalog.add_snapshot(queue, name, snapshot, found)
        return found

    def all(self, queue: str, name: str) -> dict[str, Snapshot]:
        """See Client.snapshots."""
        return self._catalog.snapshots(queue, name)

    def one(self, record: SubscriptionRecord, snapshot: str) -> Snapshot:
        """See Client.snapshot."""
        known = self.all(record.queue, record.name)
        if check_snapshot_name(snapshot) not in known:
            raise unknown_snapshot(record, snapshot, known)
        return known[snapshot]

    def delete(self, queue: str, name: str, snapshot: str) -> None:
        """See Client.delete_snapshot."""
        self._catalog.delete_snapshot(queue, name, check_snapshot_name(snapshot))

    def restore(self, record: SubscriptionRecord, snapshot: str, *, force: bool, dry_run: bool) -> list[Move]:
        """See Client.restore_snapshot."""
        kept = self.one(record, snapshot).positions
        saved = {number: one for number, one in kept.items() if number in record.starts}
        if not saved:
            raise InvalidRequest(
                f"snapshot {snapshot!r} is of other partitions than subscription {record.name!r} reads now"
            )
        return self._positions.put(
            record, {number: one.position for number, one in saved.items()},
            parked={number: one.parked for number, one in saved.items()}, force=force, dry_run=dry_run,
        )  # fmt: skip
