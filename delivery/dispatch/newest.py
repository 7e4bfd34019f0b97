"""The start "latest-per-key": of what was stored when a subscription was made, only the newest message of each key.

Before a stretch is delivered it is surveyed: read once, to learn which message of each key is its last. A stretch is
all there is, or ends where more keys than fit have been seen: what is delivered then is still the newest message of
each key and, of keys that come again in a later stretch, an older one before it. Nothing of a survey is saved: a worker
that begins in the middle surveys the rest, which has the same newest messages.
"""

from __future__ import annotations

from typing import Final

from delivery import hop
from delivery.batch import Header, open_batch, peek, select
from delivery.batch.pick import pick
from delivery.batch.select import Refuses, Wanted
from delivery.dispatch.pacing import cut
from delivery.dispatch.scanner import Source
from delivery.dispatch.through import Through
from delivery.errors import CorruptRecord
from delivery.storage.base import Chunk

KEYS_MAX: Final = 500_000
KEY_BYTES_MAX: Final = 32 << 20
READ_BYTES: Final = 1 << 20


class Survey:
    """The newest message of each key in a stretch `(after, end]`, which grows by `note`."""

    def __init__(
        self, after: int, wanted: Wanted | None, keys_max: int = KEYS_MAX, key_bytes_max: int = KEY_BYTES_MAX
    ) -> None:  # fmt: skip
        """Messages that are not `wanted` count for nothing."""
        self.after = self.end = after
        self._wanted, self._limits = wanted, (keys_max, key_bytes_max)
        self._newest: dict[bytes, int] = {}
        self._key_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the stretch has to end here."""
        return len(self._newest) >= self._limits[0] or self._key_bytes >= self._limits[1]

    def note(self, chunk: Chunk, until: int) -> None:
        """The next batches, of which nothing beyond `until` counts; not those behind the one that fills it."""
        part = cut(chunk, self.end, until)
        at = 0
        for header in part.headers:
            self._note_batch(part.data[at : at + header.length], header)
            self.end = header.last_id
            at += header.length
            if self.is_full:
                return
        self.end = max(self.end, min(chunk.last_id, until))

    def _note_batch(self, data: bytes, header: Header) -> None:
        try:
            kept = select(header, data, self._wanted) if self._wanted is not None else data
            own = None if kept is None else peek(kept)
            if kept is None or own is None:
                return
            batch = open_batch(kept, own)
        except CorruptRecord:
            return  # it is delivered whole, and its listener says what is wrong with it
        for key, number in zip(batch.columns().keys, batch.ids(), strict=True):
            if key is not None:
                if key not in self._newest:
                    self._key_bytes += len(key)
                self._newest[key] = number

    def newest(self, chunk: Chunk, after: int) -> Chunk:
        """What of `chunk` above `after` is the newest of its key, or has none, as far as the stretch goes."""
        part = cut(chunk, after, self.end)
        parts: list[bytes] = []
        at = 0
        for header in part.headers:
            if found := self._newest_in(part.data[at : at + header.length], header):
                parts.append(found)
            at += header.length
        kept = tuple(header for header in map(peek, parts) if header is not None)
        return Chunk(b"".join(parts), kept, None if kept else part.last_id)

    def _newest_in(self, data: bytes, header: Header) -> bytes:
        try:
            batch = open_batch(data, header)
            pairs = zip(batch.columns().keys, batch.ids(), strict=True)
            there = [number for key, number in pairs if key is None or self._newest.get(key) == number]
        except CorruptRecord:
            return data
        if len(there) == header.count:
            return data
        return pick(batch, there) if there else b""


class NewestSource(Through[Source]):
    """A partition as the scanner of such a subscription sees it: up to an id the newest of each key, then all."""

    def __init__(self, source: Source, wanted: Wanted | None, until: int) -> None:
        super().__init__(source)
        self._wanted, self._until = wanted, until
        self._survey: Survey | None = None
        self._read: tuple[int, Chunk] | None = None
        """What was read last, and after which id."""

    async def read(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """See scanner.Source."""
        if after >= self._until:
            self._survey = self._read = None
            return await self._source.read(after, bytes_max, refuses)
        survey = await self._surveyed(after)
        if self._read is None or not self._read[0] <= after < self._read[1].last_id:
            chunk = await self._source.read(after, bytes_max, refuses)
            self._read = None if chunk is None else (after, chunk)
        if self._read is None:
            return Chunk(b"", (), survey.end)
        return await hop.run_sync(survey.newest, self._read[1], after)

    async def _surveyed(self, after: int) -> Survey:
        """The survey of the stretch that `after` is in."""
        survey = self._survey
        if survey is not None and survey.after <= after < survey.end:
            return survey
        survey = Survey(after, self._wanted)
        while survey.end < self._until and not survey.is_full:
            chunk = await self._source.read(survey.end, READ_BYTES)
            if chunk is None:  # retention dropped the rest
                survey.end = self._until
            else:
                await hop.run_sync(survey.note, chunk, self._until)
        self._survey = survey
        return survey

    def newest(self, after: int, bytes_max: int) -> Chunk | None:
        """See scanner.Source."""
        return self._source.newest(after, bytes_max) if after >= self._until else None

    def has_news(self, after: int) -> bool:
        """See scanner.Source."""
        return after < self._until or super().has_news(after)
