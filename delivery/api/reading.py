"""The packed reads: whole batches behind a position, at once or as soon as there are some."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import trio

from delivery.api.rest.ledgers import Ledgers
from delivery.batch import Header, select_each, without_asides
from delivery.batch.layout import BATCH_BYTES_MAX, HEADERS
from delivery.batch.select import Refuses, Wanted
from delivery.cluster.ownership import Ownership
from delivery.cluster.partition import OwnedPartition
from delivery.dispatch.committed import unless_transactional, visible
from delivery.errors import InvalidRequest
from delivery.filters import TOPICS_MAX, Filter, filter_of
from delivery.ids import ID_MAX, first_id_at
from delivery.messaging.committed import Committed
from delivery.messaging.transactions import Snapshot, read_snapshot
from delivery.model import check_name
from delivery.rpc.protocol import load_idl
from delivery.storage.base import Chunk
from delivery.transactions.pointers import began_ms

WAIT_MS_MAX: Final = 30_000
READ_BYTES_MAX: Final = 8 * 1024 * 1024
"""What one read gives at most, unless a single batch is larger."""
LOCATED_MAX: Final = 1000
DECIDED_BYTES: Final = 1024 * 1024
"""Looked at at once, to find where a reader stops."""
CLOCKS_MS: Final = 600_000
"""How far the clock of a partition's owner may be behind that of the host that began a transaction."""
STOPPED_SECONDS: Final = 0.05
"""How long a read that waits, and that a transaction in progress stops, waits: then a later view may see its end."""


class Reading:
    """Answers `read`, `partitionInfo`, `countMessages`, `locateMessages` and `decidedUpTo`."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self.ledgers = Ledgers()
        self._idl = load_idl("delivery")

    async def read(self, request: Any) -> Any:
        """A ReadReply: batches behind `after`, or an empty one when there are none in time."""
        if request is None:
            raise InvalidRequest("a read needs a request")
        after, until = _id(request.after), _id(request.upTo) or ID_MAX
        wait_seconds = min(max(request.waitMs or 0, 0), WAIT_MS_MAX) / 1000
        wanted = asked_filter(request.topics or (), request.filter)
        bytes_max = min(max(request.bytesMax or 0, 1), READ_BYTES_MAX)
        snapshot = None if request.transaction is None else read_snapshot(request.transaction)
        asides = bool(request.asides)
        if asides and (wanted is not None or snapshot is not None):
            raise InvalidRequest("a read with asides is one of everything, without topics, filter and transaction")
        refuses: Refuses | None = None if wanted is None else wanted.refuses
        if refuses is not None and snapshot is not None:
            refuses = unless_transactional(refuses)
        owned = await self._acquire(request.queue, request.partition)
        deadline = trio.current_time() + wait_seconds
        data = b""
        while not data and after < until:
            seen: Wanted | None = wanted
            if snapshot is not None:
                seen = Committed(snapshot, await self.ledgers.caught_up(owned), after, wanted)
            position, data = await _read_once(owned, after, until, bytes_max, refuses, seen, asides=asides)
            if isinstance(seen, Committed) and seen.stopped_at is not None:
                after = max(after, seen.stopped_at - 1)
                if not data:
                    await trio.sleep_until(min(deadline, trio.current_time() + STOPPED_SECONDS))
                break
            if position == after and not await _more(owned, after, deadline):
                break
            after = max(after, position)
            if trio.current_time() >= deadline:
                break
        return self._idl.ReadReply(batches=data, position=after, watermark=max(after, owned.watermark))

    async def info(self, queue: str, partition: int) -> Any:
        """A PartitionInfo."""
        owned = await self._acquire(queue, partition)
        # Before the bounds are read: what is on its way now may be stored by then.
        closed = owned.settings.closed and owned.ids.last == owned.watermark
        bounds = await owned.bounds()
        return self._idl.PartitionInfo(
            partition=partition, firstId=bounds.first_id, lastId=bounds.last_id, messages=bounds.messages,
            bytes=bounds.bytes, epoch=owned.epoch, closed=closed, backlog=self._backlog(owned),
        )  # fmt: skip

    def _backlog(self, owned: OwnedPartition) -> Any:
        backlog, settings = owned.backlog, owned.settings
        if not (settings.has_backlog_limit and backlog.is_known):
            return None
        amount, name = backlog.amount, "" if backlog.floor is None else backlog.floor.subscription
        return self._idl.Backlog(
            messages=amount.messages, bytes=amount.bytes, subscription=name, full=backlog.is_full(settings)
        )

    async def count(self, queue: str, partition: int, after: int | None, until: int | None) -> int:
        """How many messages are above `after` and up to `until` (0: no end)."""
        owned = await self._acquire(queue, partition)
        return await owned.count(_id(after), _id(until) or ID_MAX)

    async def locate(
        self, queue: str, partition: int, after: int | None, until: int | None, counts: Sequence[int]
    ) -> list[int]:  # fmt: skip
        """For each of the rising `counts` the id up to which so many messages lie above `after`, `until` at most."""
        if len(counts) > LOCATED_MAX or any(a >= b for a, b in pairwise(counts)) or (counts and counts[0] < 1):
            raise InvalidRequest(f"at most {LOCATED_MAX} rising counts above 0 can be located at once")
        owned = await self._acquire(queue, partition)
        end = min(_id(until) or ID_MAX, owned.watermark)
        return await owned.locate(min(_id(after), end), end, counts)

    async def decided(
        self, queue: str, partition: int | None, after: int | None, until: int | None, transaction: bytes | None
    ) -> int:  # fmt: skip
        """See decidedUpTo in the IDL."""
        snapshot = read_snapshot(transaction or b"")
        owned = await self._acquire(queue, partition)
        end, position = min(_id(until) or ID_MAX, owned.watermark), max(_id(after), _before_all_in(snapshot))
        ledger = await self.ledgers.caught_up(owned)
        while position < end:
            chunk = await owned.read(position, DECIDED_BYTES, _has_no_headers)
            if chunk is None:
                break
            seen = Committed(snapshot, ledger, position)
            visible(chunk, seen)
            if seen.stopped_at is not None:
                return min(seen.stopped_at - 1, end)
            position = chunk.last_id
            await trio.lowlevel.checkpoint()  # the tail cache answers without one
        return end

    async def _acquire(self, queue: str | None, partition: int | None) -> OwnedPartition:
        return await self._ownership.acquire(check_name("queue", queue), check_number(partition))


def _before_all_in(snapshot: Snapshot) -> int:
    """An id below all messages of transactions in progress, or begun since: a pointer tells when its own began."""
    oldest = min(snapshot.in_progress, default=snapshot.read_pointer)
    return first_id_at(began_ms(oldest) - CLOCKS_MS)


def _has_no_headers(header: Header, _: bytes) -> bool:
    return not header.flags & HEADERS


def check_number(partition: int | None) -> int:
    """The partition, which a call must name."""
    if partition is None:
        raise InvalidRequest("the call names no partition")
    return partition


async def _read_once(
    owned: OwnedPartition, after: int, until: int, bytes_max: int, refuses: Refuses | None, wanted: Wanted | None,
    *, asides: bool,
) -> tuple[int, bytes]:  # fmt: skip
    """(everything up to here was looked at, the batches wanted of it)."""
    complete = owned.watermark
    chunk = await (owned.read_stored if asides else owned.read)(after, bytes_max, refuses)
    if chunk is None:
        return max(after, min(complete, until)), b""
    headers = [header for header in chunk.headers if header.base_id <= until]
    position = until if len(headers) < len(chunk.headers) else min(chunk.last_id, until)
    return position, _filtered(chunk, headers, wanted, asides=asides)


def _filtered(chunk: Chunk, headers: Sequence[Header], wanted: Wanted | None, *, asides: bool) -> bytes:
    if wanted is None:
        data = chunk.data if len(headers) == len(chunk.headers) else chunk.data[: sum(h.length for h in headers)]
        return data if asides else without_asides(data, headers)[0]
    return select_each(chunk.data, headers, wanted)


async def _more(owned: OwnedPartition, after: int, deadline: float) -> bool:
    """Wait for something above `after`; False when nothing came by the deadline."""
    if trio.current_time() >= deadline:
        return False
    with trio.move_on_at(deadline):
        await owned.wait_beyond(after)
        return True
    return False


def _id(number: int | None) -> int:
    if number is None:
        return 0
    if not 0 <= number <= ID_MAX:
        raise InvalidRequest(f"{number} is no message id")
    return number


def asked_filter(topics: Sequence[str], rule: str | None = None) -> Filter | None:
    """The filter of the topics, patterns and rule that a call asks for, None for all. Raises InvalidRequest."""
    if len(topics) > TOPICS_MAX:
        raise InvalidRequest(f"at most {TOPICS_MAX} topics can be asked for at once, not {len(topics)}")
    return filter_of(tuple(topics), rule or None)


assert READ_BYTES_MAX <= BATCH_BYTES_MAX, "what fits a batch fits a frame"
