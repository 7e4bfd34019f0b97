"""Moving a subscription to another place in its queue: backwards to hear messages again, forwards to skip them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from delivery import wall
from delivery.client.calls import Calls, count_messages, partition_info
from delivery.errors import InvalidRequest, UnknownPartition, UnknownSubscription
from delivery.ids import EARLIEST, LATEST, MessageId, Start, check_start, first_id_at, is_message_id
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.snapshots import SavedPosition
from delivery.metastore.records import SubscriptionRecord

ASK_SECONDS = 10.0
"""How long one partition is asked where it begins and ends."""


class Move(msgspec.Struct, frozen=True):
    """Where a subscription goes on in one partition: after these ids."""

    partition: int
    before: MessageId
    after: MessageId
    messages: int
    """How many lie between the two: to be delivered again when it went back, skipped when it went ahead."""
    parked: int = 0
    """Messages up to `after` that are parked then."""


class Positions:
    """Over one catalog and the region hosts. Thread-safe; closes nothing."""

    def __init__(self, catalog: Catalog, calls: Calls) -> None:
        self._catalog, self._calls = catalog, calls

    def record(self, queue: str, name: str) -> SubscriptionRecord:
        """A subscription's record. Raises UnknownQueue, UnknownSubscription."""
        record = self._catalog.subscription(queue, name)
        if record is None:
            self._catalog.queue(queue)
            raise UnknownSubscription(f"queue {queue!r} has no subscription {name!r}")
        return record

    def seek(
        self, record: SubscriptionRecord, to: Start, partitions: Iterable[int] | None, *, force: bool, dry_run: bool
    ) -> list[Move]:
        """See Client.seek."""
        queue, name, wanted = record.queue, record.name, check_start(to)
        chosen = sorted(record.starts if partitions is None else set(partitions))
        if not chosen:
            raise InvalidRequest("name at least one partition to seek in, or None for all")
        for number in chosen:
            if number not in record.starts:
                raise UnknownPartition(f"subscription {name!r} of queue {queue!r} does not read partition {number}")
        after = self._resolve(queue, chosen, wanted, to)
        return self.put(
            record, {one: SavedPosition(place) for one, place in after.items()}, force=force, dry_run=dry_run
        )

    def bounds(self, queue: str, partition: int) -> tuple[int, int]:
        """The first and the last id of a partition; the first is 0 while it holds nothing."""
        info = partition_info(self._calls.call, queue, partition, timeout=ASK_SECONDS)
        return info.firstId, info.lastId

    def put(
        self, record: SubscriptionRecord, places: Mapping[int, SavedPosition], *, force: bool, dry_run: bool
    ) -> list[Move]:
        """Put a subscription to these places, by partition; gives the moves. Raises as Client.seek.

        Partitions that it does not read stay out of it; InvalidRequest when it reads none of them.
        """
        queue, name = record.queue, record.name
        known = {number: one for number, one in sorted(places.items()) if number in record.starts}
        if not known:
            raise InvalidRequest(f"subscription {name!r} of queue {queue!r} reads other partitions now")
        states = self._catalog.states(queue, name)
        before = {number: states[number].position if number in states else record.starts[number] for number in known}
        moves = [self._move(queue, number, before[number], one) for number, one in known.items()]
        if not dry_run:
            self._catalog.move_positions(queue, name, known, force=force)
        return moves

    def _resolve(self, queue: str, partitions: list[int], wanted: int, to: Start) -> dict[int, int]:
        """Per partition the id to go on after: never beyond its end. Raises InvalidRequest as `_check_within`."""
        bounds = {number: self.bounds(queue, number) for number in partitions}
        if wanted not in (LATEST, EARLIEST):
            _check_within(queue, list(bounds.values()), wanted, to)
        return {number: last if wanted == LATEST else min(wanted, last) for number, (_, last) in bounds.items()}

    def _move(self, queue: str, partition: int, before: int, to: SavedPosition) -> Move:
        low, high = sorted((before, to.position))
        messages = 0
        if low < high:
            messages = count_messages(self._calls.call, queue, partition, low, high, timeout=ASK_SECONDS)
        parked = sum(len(one.ids) for one in to.parked)
        return Move(partition, MessageId(before), MessageId(to.position), messages, parked)


def _check_within(queue: str, bounds: Sequence[tuple[int, int]], after: int, to: Start) -> None:
    """Raise InvalidRequest for an id beyond the ends of all partitions, and for a time that has not come yet.

    A time before the first message means the first one, and one behind the last means that nothing came since.
    """
    last = max((last for _, last in bounds), default=0)
    first = min((first for first, last in bounds if first and last), default=0)
    wanted = MessageId(after + 1)
    if not is_message_id(to):
        if after > last and wanted > first_id_at(wall.ms()):
            raise InvalidRequest(f"{wanted.time:%Y-%m-%d %H:%M:%S} UTC has not come yet: `latest` is the place for now")
    elif after > last:
        raise InvalidRequest(
            f"{wanted} is beyond the last message of queue {queue!r}"
            f"{f', which is {MessageId(last)}' if last else ', which is empty'}: `latest` is the place behind it"
        )
    elif wanted < first:
        raise InvalidRequest(
            f"{wanted} is before the first message of queue {queue!r}, which is {MessageId(first)}: it was never"
            " stored, or is older than what the queue keeps; `earliest` is the place before that"
        )
