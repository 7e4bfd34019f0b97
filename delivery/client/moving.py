"""Subscriptions that go along when their queue is copied: preferences, positions, what is parked, and snapshots."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial

import msgspec

from delivery.errors import HootError, SnapshotExists, SubscriptionBusy, SubscriptionExists
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.changes import MoveState
from delivery.metastore.records import QueueRecord, SubscriptionRecord


class SubscriptionCopies:
    """The subscriptions of a queue, to be brought to its copy. Brought again, they are put right."""

    def __init__(self, source: Catalog, queue: QueueRecord, target: Catalog) -> None:
        self._source, self._queue, self._target = source, queue, target

    def names(self) -> list[str]:
        """Those that there are now."""
        return [record.name for record in self._records()]

    def check(self, target: QueueRecord, *, force: bool) -> None:
        """Raise SubscriptionBusy while one is attached, unless forced; SubscriptionExists for another of its name."""
        for record in self._records():
            holder = None if force else next(iter(self._source.members(record.queue, record.name)), None)
            if holder is not None:
                raise SubscriptionBusy(
                    f"subscription {record.name!r} of queue {record.queue!r} is attached, by the subscriber at"
                    f" {holder.host_port}: stop it, so that its last position is brought along, or force",
                    address=holder.host_port,
                )
            there = self._target.subscription(target.name, record.name)
            if there is not None and not _is_copy(there, record, target):
                raise SubscriptionExists(f"queue {target.name!r} has a subscription {record.name!r} of its own already")

    def bring(self, target: QueueRecord, ends: Mapping[int, int]) -> None:
        """Bring all of them; `ends` are the last ids in the target, by partition.

        No position is beyond these: what lies between was not stored any more, and what comes may have such ids.
        Failures begin to count anew, and members who share partitions by key begin where the last of them was.
        """
        for record in self._records():
            wanted = msgspec.structs.replace(
                record, queue=target.name, generation=target.generation, holders={}, replayed_ms=0,
                starts={number: min(start, ends[number]) for number, start in record.starts.items()},
            )  # fmt: skip
            if self._target.subscription(target.name, record.name) is None:
                self._target.create_subscription(wanted)
            else:
                self._target.change_subscription(target.name, record.name, partial(_instead, wanted))
            self._bring_states(record, wanted, ends)
            self._bring_snapshots(record, wanted)

    def _bring_states(self, record: SubscriptionRecord, wanted: SubscriptionRecord, ends: Mapping[int, int]) -> None:
        moves = []
        for number, found in self._source.states(record.queue, record.name).items():
            state = found.without_shares()
            if number in wanted.starts:
                position = min(state.position, ends[number])
                moves.append(MoveState(wanted, number, position, state.moves, state.parked, anyhow=True))
        for outcome in self._target.managers.subscriptions.move_states(moves):
            if isinstance(outcome, HootError):
                raise outcome

    def _bring_snapshots(self, record: SubscriptionRecord, wanted: SubscriptionRecord) -> None:
        for name, snapshot in self._source.snapshots(record.queue, record.name).items():
            mine = msgspec.structs.replace(snapshot, generation=wanted.generation)
            with contextlib.suppress(SnapshotExists):  # of an earlier try
                self._target.add_snapshot(wanted.queue, wanted.name, name, mine)

    def _records(self) -> list[SubscriptionRecord]:
        names = self._source.subscriptions(self._queue.name)
        found = [self._source.subscription(self._queue.name, name) for name in names]
        return [one for one in found if one is not None and one.generation == self._queue.generation]


def _is_copy(there: SubscriptionRecord, record: SubscriptionRecord, target: QueueRecord) -> bool:
    return (there.created_ms, there.generation) == (record.created_ms, target.generation)


def _instead(wanted: SubscriptionRecord, _: SubscriptionRecord) -> SubscriptionRecord:
    return wanted
