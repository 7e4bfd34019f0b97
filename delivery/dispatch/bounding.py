"""A subscription to which only the newest messages matter: what lies before them is passed over (Hedwig's bound)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from delivery.batch.select import Refuses
from delivery.dispatch.pacing import cut
from delivery.dispatch.scanner import Source
from delivery.dispatch.through import Through
from delivery.storage.base import Chunk


class Counted(Source, Protocol):
    """A partition that can count its messages."""

    @property
    def watermark(self) -> int:
        """The last id that is complete."""

    async def count(self, after: int, until: int, /) -> int:
        """How many messages have an id above `after` and up to `until`."""

    async def locate(self, after: int, until: int, counts: Sequence[int], /) -> list[int]:
        """For each of the rising `counts` the id up to which so many messages lie above `after`."""


class BoundedSource(Through[Counted]):
    """A partition as a scanner sees it that wants no more than the newest `bound` messages of it."""

    def __init__(self, source: Counted, bound: int) -> None:
        super().__init__(source)
        self._bound = bound

    async def read(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """See scanner.Source."""
        chunk = await self._source.read(after, bytes_max, refuses)
        if chunk is None or (chunk.covered is None and self._is_all(chunk)):
            return chunk
        first = await self._before_newest(after)
        if first <= after:
            return chunk
        chunk = await self._source.read(first, bytes_max, refuses)
        return None if chunk is None else cut(chunk, first, chunk.last_id)

    def newest(self, after: int, bytes_max: int) -> Chunk | None:
        """See scanner.Source; not where something of it has to be left out."""
        chunk = self._source.newest(after, bytes_max)
        return chunk if chunk is not None and self._is_all(chunk) else None

    def _is_all(self, chunk: Chunk) -> bool:
        """Whether nothing lies behind it, and it is within the bound: the usual case, in which nothing is counted."""
        return not self._source.has_news(chunk.last_id) and sum(one.count for one in chunk.headers) <= self._bound

    async def _before_newest(self, after: int) -> int:
        """The id behind which the newest messages lie; `after` when all behind that are among them."""
        until = self._source.watermark
        surplus = await self._source.count(after, until) - self._bound
        return (await self._source.locate(after, until, [surplus]))[0] if surplus > 0 else after
