"""Moving a subscription to another place in its queue: backwards to hear messages again, forwards to skip them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from delivery.client.calls import Calls
from delivery.errors import InvalidRequest, UnknownPartition
from delivery.ids import LATEST, MessageId, Start, check_start
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.records import ParkedKey
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

    def seek(
        self, record: SubscriptionRecord, to: Start, partitions: Iterable[int] | None, *, force: bool, dry_run: bool
    ) -> list[Move]:
        """See Client.seek."""
        queue, name, wanted = record.queue, record.name, check_start(to)
        chosen = sorted(record.starts if partitions is None else set(partitions))
        for number in chosen:
            if number not in record.starts:
                raise UnknownPartition(f"subscription {name!r} of queue {queue!r} does not read partition {number}")
        return self.put(record, self._resolve(queue, chosen, wanted, to), force=force, dry_run=dry_run)

    def put(
        self, record: SubscriptionRecord, after: Mapping[int, int], *, force: bool, dry_run: bool,
        parked: Mapping[int, tuple[ParkedKey, ...]] | None = None,
    ) -> list[Move]:  # fmt: skip
        """Put a subscription behind these ids, by partition, with what is to be parked then; gives the moves.

        Raises as Client.seek.
        """
        queue, name, held = record.queue, record.name, parked or {}
        states = self._catalog.states(queue, name)
        moves = []
        for number, wanted in sorted(after.items()):
            before = states[number].position if number in states else record.starts[number]
            kept = sum(len(one.ids) for one in held.get(number, ()))
            moves.append(self._move(queue, number, before, wanted, kept))
        if not dry_run:
            self._catalog.move_positions(queue, name, after, force=force, parked=held)
        return moves

    def _resolve(self, queue: str, partitions: list[int], wanted: int, to: Start) -> dict[int, int]:
        """Per partition the id to go on after: never beyond its end. Raises InvalidRequest for an id beyond all."""
        ends = {}
        for number in partitions:
            info = self._calls.call(queue, number, "partitionInfo", queue, number, timeout=ASK_SECONDS)
            ends[number] = info.lastId
        last = max(ends.values(), default=0)
        if wanted != LATEST and wanted > last and isinstance(to, int | str):
            raise InvalidRequest(
                f"{MessageId(wanted + 1)} is beyond the last message of queue {queue!r}"
                f"{f', which is {MessageId(last)}' if last else ', which is empty'}: `latest` is the place behind it"
            )
        return {number: end if wanted == LATEST else min(wanted, end) for number, end in ends.items()}

    def _move(self, queue: str, partition: int, before: int, after: int, parked: int) -> Move:
        low, high = sorted((before, after))
        messages = 0
        if low < high:
            count = self._calls.call(
                queue, partition, "countMessages", queue, partition, low, high, timeout=ASK_SECONDS
            )
            messages = int(count)
        return Move(partition, MessageId(before), MessageId(after), messages, parked)
