"""Replays: a shadow of a subscription that delivers a stretch of the queue again, and the promotion of one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from delivery import wall
from delivery.client.calls import Calls, count_messages
from delivery.client.positions import ASK_SECONDS, Move, Positions
from delivery.errors import InvalidRequest, SubscriptionBusy, SubscriptionExists, UnknownSubscription
from delivery.filters import FilterGiven, filter_asked, kept
from delivery.ids import EARLIEST, LATEST, MessageId, Start, check_start
from delivery.metastore.catalog import Catalog
from delivery.metastore.policy import dead_letter_queue
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.replays import Replay, Speed, check_speed
from delivery.metastore.request import check_own_name


class Stretch(msgspec.Struct, frozen=True):
    """What a replay delivers of one partition: the messages above `after` and up to `until`."""

    partition: int
    after: MessageId
    until: MessageId
    messages: int
    """How many lie between the two, whatever their topic."""


class Replays:
    """Over one catalog and the region hosts. Thread-safe; closes nothing."""

    def __init__(self, catalog: Catalog, calls: Calls, positions: Positions) -> None:
        self._catalog, self._calls, self._positions = catalog, calls, positions

    def replay(
        self, queue: str, name: str, into: str, *, start: Start, end: Start, speed: Speed, filter_: FilterGiven,
        dry_run: bool,
    ) -> list[Stretch]:  # fmt: skip
        """See Client.replay."""
        record = self._positions.record(queue, name)
        self._check(record, into)
        first, last, pace = check_start(start), check_start(end), check_speed(speed)
        stretches = self._stretches(record, first, last)
        if not any(one.messages for one in stretches):
            raise InvalidRequest(f"there is nothing to replay: queue {record.queue!r} holds no message in between")
        shadow = shadow_of(record, into, stretches, pace, filter_, wall.ms())
        if not dry_run:
            if self._catalog.subscription(record.queue, into) is not None:  # of an earlier queue of this name
                self._catalog.delete_subscription(record.queue, into)
            self._catalog.create_subscription(shadow)
        return stretches

    def promote(self, queue: str, name: str, *, force: bool, dry_run: bool) -> tuple[str, list[Move]]:
        """See Client.promote."""
        record = self._positions.record(queue, name)
        if record.replay is None:
            raise InvalidRequest(f"subscription {name!r} of queue {queue!r} is no replay: there is nothing to promote")
        holder = next(iter(self._catalog.members(queue, name)), None)
        if holder is not None and not (force or dry_run):
            raise SubscriptionBusy(
                f"the replay {name!r} of queue {queue!r} is attached, by the subscriber at {holder.host_port}: stop"
                " that one, or force",
                address=holder.host_port,
            )
        real = self._catalog.subscription(queue, record.replay.of)
        if real is None:
            raise UnknownSubscription(f"queue {queue!r} has no subscription {record.replay.of!r} any more")
        places = self._catalog.look(queue, name, 0).positions
        moves = self._positions.put(real, places, force=force, dry_run=dry_run)
        if not dry_run:
            self._catalog.delete_subscription(queue, name)
        return real.name, moves

    def _check(self, record: SubscriptionRecord, into: str) -> None:
        """Raises what keeps `into` from being made, as far as that can be known before."""
        if record.replay is not None:
            raise InvalidRequest(f"subscription {record.name!r} is a replay itself: replay {record.replay.of!r}")
        check_own_name(into)
        if record.retry.dead_letters:
            dead_letter_queue(record.queue, into)
        found = self._catalog.subscription(record.queue, into)
        if found is not None and found.generation == record.generation:
            raise SubscriptionExists(f"queue {record.queue!r} has a subscription {into!r} already")

    def _stretches(self, record: SubscriptionRecord, first: int, last: int) -> list[Stretch]:
        bounds = {number: self._positions.bounds(record.queue, number) for number in sorted(record.starts)}
        if first == EARLIEST:  # one beginning for all, for they keep the pace together
            first = min((begin for begin, end in bounds.values() if end), default=1) - 1
        stretches = []
        for number, (_, end) in bounds.items():
            after = end if first == LATEST else min(first, end)
            until = end if last == LATEST else max(min(last, end), after)
            messages = self._count(record.queue, number, after, until)
            stretches.append(Stretch(number, MessageId(after), MessageId(until), messages))
        return stretches

    def _count(self, queue: str, partition: int, after: int, until: int) -> int:
        if after == until:
            return 0
        return count_messages(self._calls.call, queue, partition, after, until, timeout=ASK_SECONDS)


def shadow_of(
    record: SubscriptionRecord, into: str, stretches: Sequence[Stretch], speed: float, filter_: FilterGiven,
    now_ms: int,
) -> SubscriptionRecord:  # fmt: skip
    """The subscription `into` that replays these stretches: all else as `record` has it, but for the filter.

    A bound counts from the end of the partition, before which a replay ends: the shadow has none.
    """
    replay = Replay(record.name, {one.partition: int(one.until) for one in stretches}, speed)
    wanted = kept(filter_asked(filter_), record.filter)
    return msgspec.structs.replace(
        record, name=into, created_ms=now_ms, starts={one.partition: int(one.after) for one in stretches},
        filter=wanted, newest={}, holders={}, bound=0, moves=0, released_ms=0, replay=replay, pause=None, replayed_ms=0,
    )  # fmt: skip
