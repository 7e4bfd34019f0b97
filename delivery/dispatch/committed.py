"""A partition as a subscription with isolation="committed" reads it.

What was rolled back or is invalid is left out, and a read that meets a transaction in progress waits for its end: so
nothing passes its first message. Transactions are looked at only where a batch holds messages of some.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from delivery.batch import Header, open_batch, peek, select
from delivery.batch.layout import HEADERS
from delivery.batch.pick import pick_places
from delivery.batch.select import Refuses
from delivery.dispatch.scanner import Source
from delivery.dispatch.through import Through
from delivery.messaging.committed import Committed
from delivery.messaging.ledger import Ledger
from delivery.messaging.marks import may_be_of_transactions
from delivery.messaging.transactions import Snapshot
from delivery.storage.base import Chunk


class Transactions(Protocol):
    """What of transactions is visible (api.visibility.Visibility)."""

    @property
    def trouble(self) -> str:
        """Why nobody tells it at this moment; empty when somebody does."""

    async def view(self) -> Snapshot:
        """What is visible: the view that was taken last."""

    async def ended(self, pointer: int) -> None:
        """Return when a view was taken by which the transaction is in progress no more."""

    async def ledger(self, partition: Source) -> Ledger:
        """What was rolled back of a partition up to now. Raises the partition's error."""


class Waiting(msgspec.Struct, frozen=True):
    """What a read waits for."""

    pointer: int
    """The transaction; 0 while nobody tells what is committed."""
    since: float
    """By the monotonic clock."""


class CommittedSource(Through[Source]):
    """Between a partition and a scanner. A batch without messages of transactions passes unopened."""

    def __init__(
        self, source: Source, partition: Source, transactions: Transactions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`source` is read, `partition` is where it comes from."""
        super().__init__(source)
        self._partition, self._transactions, self._clock = partition, transactions, clock
        self.waiting: Waiting | None = None

    @property
    def trouble(self) -> str:
        """See Transactions."""
        return self._transactions.trouble

    async def read(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """See scanner.Source; returns when something of it is decided."""
        told = None if refuses is None else unless_transactional(refuses)
        try:
            while (chunk := await self._source.read(after, bytes_max, told)) is not None and _is_mixed(chunk):
                self._wait_for(0)
                view = await self._transactions.view()  # first: whatever ended by it had been rolled back before
                seen = Committed(view, await self._transactions.ledger(self._partition), after)
                found = visible(chunk, seen)
                if found.last_id > after:
                    return found
                self._wait_for(seen.waits_for)
                await self._transactions.ended(seen.waits_for)
            return chunk
        finally:
            self.waiting = None

    def newest(self, after: int, bytes_max: int) -> Chunk | None:
        """See scanner.Source; only where nothing has to be asked."""
        chunk = self._source.newest(after, bytes_max)
        return None if chunk is None or _is_mixed(chunk) else chunk

    def _wait_for(self, pointer: int) -> None:
        if self.waiting is None or (pointer and self.waiting.pointer != pointer):
            since = self._clock() if self.waiting is None or self.waiting.pointer else self.waiting.since
            self.waiting = Waiting(pointer, since)


def unless_transactional(refuses: Refuses) -> Refuses:
    """A batch that may hold a message in progress has to be seen, whatever is wanted of it."""
    return lambda header, dictionary: not header.flags & HEADERS and refuses(header, dictionary)


def _is_mixed(chunk: Chunk) -> bool:
    """Whether any message of the chunk can be of a transaction."""
    at = 0
    for header in chunk.headers:
        if may_be_of_transactions(header, chunk.data, at):
            return True
        at += header.length
    return False


def visible(chunk: Chunk, seen: Committed) -> Chunk:
    """What of a chunk is committed, up to the first message that is in progress."""
    kept: list[Header] = []
    parts: list[bytes] = []
    at = 0
    for header in chunk.headers:
        part = _part(header, chunk.data[at : at + header.length], seen)
        at += header.length
        if part is not None and (own := peek(part)) is not None:
            parts.append(part)
            kept.append(own)
        if seen.stopped_at is not None:
            return Chunk(b"".join(parts), tuple(kept), seen.stopped_at - 1)
    return Chunk(b"".join(parts), tuple(kept), chunk.last_id)


def _part(header: Header, data: bytes, seen: Committed) -> bytes | None:
    if not may_be_of_transactions(header, data):
        return data
    part = select(header, data, seen)
    if part is None or seen.stopped_at is None:
        return part
    batch = open_batch(part)  # which covers what is in progress, too
    return pick_places(batch, range(batch.header.count))
