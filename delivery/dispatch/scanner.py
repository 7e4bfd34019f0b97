"""The MessageScanner: reads what is new in a partition into the buffer (seed 004, section 3.5.3).

It rests when there is nothing new, and the partition tells it of news: no polling, no scan that finds nothing.
Batches pass unopened; a filter looks at each batch's header and dictionary, and opens it only when they do not decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from delivery import hop
from delivery.batch import peek, select, without_asides
from delivery.batch.select import Refuses, Wanted
from delivery.dispatch.buffer import Buffer, Piece
from delivery.storage.base import Chunk

_FEW: Final = 8
"""Where topics leave no more than one byte of so many, so many times as much is read at once."""


class Source(Protocol):
    """A partition to read from, as the worker sees it."""

    async def read(self, after: int, bytes_max: int, refuses: Refuses | None = None, /) -> Chunk | None:
        """The next whole batches above `after`, None when there are none; those that are refused may be left out.

        Raises when the partition is not ours.
        """

    def newest(self, after: int, bytes_max: int) -> Chunk | None:
        """What `read` would give, if that takes no waiting."""

    def has_news(self, after: int) -> bool:
        """Whether `read` would find something, or raise."""

    def follow(self, tell: Callable[[], None], /) -> None:
        """Call `tell` whenever there is news."""

    def unfollow(self, tell: Callable[[], None], /) -> None:
        """Call it no more."""


class Judge(Wanted, Protocol):
    """What is wanted, and what that tells of batches that are not read yet (filters.Filter)."""

    @property
    def looks_inside(self) -> bool:
        """Whether messages may be looked at one by one, which takes microseconds for each."""

    @property
    def refuses(self) -> Refuses | None:
        """For batches of which only header and dictionary are known; None when these tell nothing."""


class MessageScanner:
    """Scans one partition for one subscription."""

    def __init__(self, source: Source, wanted: Judge | None, push_bytes: int) -> None:
        """`wanted` None takes all; `push_bytes` bounds what is read at once."""
        self._source, self._wanted, self._push_bytes = source, wanted, push_bytes
        self._after = 0
        self._reach = push_bytes
        """How much is read at once: more while little of it is wanted."""
        self._refuses = None if wanted is None else wanted.refuses
        self.reading_since: float | None = None
        """By the monotonic clock, while the partition is being read."""
        self._resting: trio.lowlevel.Task | None = None
        """Which rests at the partition's end, to be woken; None when the scanner does not rest. Most scanners of a host
        may rest, and an event each takes more memory.
        """

    @property
    def after(self) -> int:
        """Everything up to here was looked at."""
        return self._after

    async def run(self, buffer: Buffer, after: int) -> None:
        """Scan from behind `after` for ever, until cancelled or the partition is lost (its error is raised)."""
        self._after = after
        follow = partial(self._follow, buffer)
        self._source.follow(follow)
        try:
            while True:
                self.reading_since = time.monotonic()
                chunk = await self._source.read(self._after, self._reach, self._refuses)
                self.reading_since = None
                if chunk is None:
                    await self._rest()
                    continue
                pieces = await self._judged(chunk)
                for piece in pieces:
                    await buffer.put(piece)
                self._after, self._reach = chunk.last_id, self._next_reach(chunk, pieces)
                await trio.lowlevel.checkpoint()  # else the tail cache and a quick listener could keep the loop to it
        finally:
            self._source.unfollow(follow)
            self.reading_since = None

    async def _judged(self, chunk: Chunk) -> list[Piece]:
        """A chunk's pieces. Where messages are evaluated one by one they are made in a thread.

        A chunk of thousands takes tens of milliseconds then, and other deliveries go on meanwhile.
        """
        if self._wanted is not None and self._wanted.looks_inside:
            return await hop.run_sync(self._pieces, chunk)
        return self._pieces(chunk)

    def _next_reach(self, chunk: Chunk, pieces: Sequence[Piece]) -> int:
        """A read takes a hop to a thread, however little comes of it.

        Where messages are evaluated one by one that is nothing beside the rest.
        """
        if self._wanted is None or self._wanted.looks_inside:
            return self._push_bytes
        few = sum(len(piece.data) for piece in pieces) * _FEW <= len(chunk.data)
        return self._push_bytes * _FEW if few else self._push_bytes

    async def _rest(self) -> None:
        if self._source.has_news(self._after):
            return
        self._resting = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._rest_no_more)

    def _rest_no_more(self, _: object) -> trio.lowlevel.Abort:
        """A rest that is cancelled ends at once, and nobody is to wake it then."""
        self._resting = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _follow(self, buffer: Buffer) -> None:
        """There is news. While the scanner rests, the newest batch goes on at once, in the turn of who stored it."""
        if self._resting is None:
            return
        if self._wanted is None and not buffer.is_full:
            chunk = self._source.newest(self._after, self._push_bytes)
            if chunk is not None:
                self._after = chunk.last_id
                for piece in self._pieces(chunk):
                    buffer.add(piece)
        if self._source.has_news(self._after) and self._resting is not None:
            resting, self._resting = self._resting, None
            trio.lowlevel.reschedule(resting)

    def _pieces(self, chunk: Chunk) -> list[Piece]:
        """What is wanted of a chunk, and what was left out behind it: no push tells the listener of that."""
        if (wanted := self._wanted) is None:
            data, headers = without_asides(chunk.data, chunk.headers)
            return _laid_out(chunk, [data], sum(header.count for header in headers), headers[-1].last_id if data else 0)
        kept, messages, at, end = [], 0, 0, 0
        for header in chunk.headers:
            data = chunk.data if len(chunk.headers) == 1 else chunk.data[at : at + header.length]
            at += header.length
            if (part := select(header, data, wanted)) is not None:
                kept.append(part)
                messages += header.count if part is data else _count(part)
                end = header.last_id
        return _laid_out(chunk, kept, messages, end)


def _laid_out(chunk: Chunk, kept: Sequence[bytes], messages: int, end: int) -> list[Piece]:
    """The batches of a chunk that were kept, up to id `end`, and its end, if that is another."""
    pieces = [Piece(end, messages, kept[0] if len(kept) == 1 else b"".join(kept))] if messages else []
    return pieces if end == chunk.last_id else [*pieces, Piece(chunk.last_id, 0, b"")]


def _count(batch: bytes) -> int:
    header = peek(batch)
    assert header is not None
    return header.count
