"""The MessageScanner: reads what is new in a partition into the buffer (seed 004, section 3.5.3).

It sleeps on the partition's feed when there is nothing new: no polling, no scan that finds nothing. Batches pass
unopened; a topic filter looks at each batch's dictionary and opens only a batch that holds both kinds.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Protocol

from delivery.batch import peek, select
from delivery.dispatch.buffer import Buffer, Piece
from delivery.storage.base import Chunk


class Source(Protocol):
    """A partition to read from, as the worker sees it."""

    async def read(self, after: int, bytes_max: int) -> Chunk | None:
        """The next whole batches above `after`, None when there are none. Raises when the partition is not ours."""

    async def wait_beyond(self, after: int) -> None:
        """Return when an id above `after` may be read. Raises when the partition is lost."""


class MessageScanner:
    """Scans one partition for one subscription."""

    def __init__(self, source: Source, topics: AbstractSet[str], push_bytes: int) -> None:
        """`topics` empty takes all; `push_bytes` bounds what is read at once."""
        self._source, self._topics, self._push_bytes = source, topics, push_bytes

    async def run(self, buffer: Buffer, after: int) -> None:
        """Scan from behind `after` for ever, until cancelled or the partition is lost (its error is raised)."""
        while True:
            chunk = await self._source.read(after, self._push_bytes)
            if chunk is None:
                await self._source.wait_beyond(after)
                continue
            await buffer.put(self._piece(chunk))
            after = chunk.last_id

    def _piece(self, chunk: Chunk) -> Piece:
        if not self._topics:
            return Piece(chunk.last_id, sum(header.count for header in chunk.headers), chunk.data)
        kept, messages, at = [], 0, 0
        for header in chunk.headers:
            data = chunk.data if len(chunk.headers) == 1 else chunk.data[at : at + header.length]
            at += header.length
            if (part := select(header, data, self._topics)) is not None:
                kept.append(part)
                messages += header.count if part is data else _count(part)
        return Piece(chunk.last_id, messages, kept[0] if len(kept) == 1 else b"".join(kept))


def _count(batch: bytes) -> int:
    header = peek(batch)
    assert header is not None
    return header.count
