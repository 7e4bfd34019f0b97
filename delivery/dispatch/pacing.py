"""Replays on the host: a partition that ends early, and gives its messages no faster than at the replay's pace.

`Pace` and `cut` decide; `ReplaySource` stands between a partition and the scanner, waits and reads. Time is measured
from where a worker begins: what a subscriber that was away did not get does not come in a rush when it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from delivery.batch import Header, open_batch, peek
from delivery.batch.pick import pick
from delivery.batch.select import Refuses
from delivery.dispatch.scanner import Source
from delivery.dispatch.through import Through
from delivery.errors import CorruptRecord
from delivery.ids import ID_MAX, SEQUENCES_PER_MS, MessageId
from delivery.metastore.replays import MAX, Replay
from delivery.storage.base import Chunk


class Pace:
    """When messages are due, by the times of their ids. Times are in seconds of a clock that runs evenly."""

    def __init__(self, speed: float, after: int) -> None:
        """At `speed` times that of their publishing, from the id `after` on; see metastore.replays for MAX."""
        self._speed, self._first = speed, after and after + 1
        self._since: float | None = None

    def due(self, first: int, now: float) -> int:
        """All up to this id are due. `first` is the next one there is: without `after`, time runs from it."""
        if self._speed == MAX:
            return ID_MAX
        if self._since is None:
            self._since = now
            self._first = self._first or first
        passed_ms = int((now - self._since) * 1000 * self._speed)
        return min(_end_of_ms(self._first + passed_ms * SEQUENCES_PER_MS), ID_MAX)

    def wait(self, first: int, now: float) -> float:
        """How long until the message `first` is due, in seconds."""
        due = self.due(first, now)
        if due >= first:
            return 0.0
        return (MessageId(first).timestamp_ms - MessageId(due).timestamp_ms) / 1000 / self._speed


def _end_of_ms(number: int) -> int:
    """The last id of the same millisecond."""
    return number | SEQUENCES_PER_MS - 1


def next_id(chunk: Chunk, after: int) -> int | None:
    """The id of the first message of `chunk` above `after`, None without any."""
    at = 0
    for header in chunk.headers:
        if header.base_id > after:
            return header.base_id
        if header.last_id > after:
            ids = _ids(chunk.data[at : at + header.length], header)
            if (found := next((number for number in ids if number > after), None)) is not None:
                return found
        at += header.length
    return None


def cut(chunk: Chunk, after: int, last: int) -> Chunk:
    """What of `chunk` lies above `after` and not beyond `last`; with nothing there, that it covers all up to `last`.

    A batch that cannot be opened stays whole: its listener says what is wrong with it.
    """
    kept: list[Header] = []
    parts: list[bytes] = []
    at = 0
    for header in chunk.headers:
        data = chunk.data[at : at + header.length]
        at += header.length
        if header.base_id > last or header.last_id <= after:
            continue
        part = data if after < header.base_id and header.last_id <= last else _between(data, header, after, last)
        if part and (own := header if part is data else peek(part)) is not None:
            parts.append(part)
            kept.append(own)
    return Chunk(b"".join(parts), tuple(kept), None if kept else min(last, chunk.last_id))


def _between(data: bytes, header: Header, after: int, last: int) -> bytes:
    wanted = [number for number in _ids(data, header) if after < number <= last]
    try:
        return pick(open_batch(data, header), wanted) if wanted else b""
    except CorruptRecord:
        return data


def _ids(data: bytes, header: Header) -> Sequence[int]:
    try:
        return open_batch(data, header).ids()
    except CorruptRecord:
        return range(header.base_id, header.last_id + 1)


def replayed(source: Source, replay: Replay | None, partition: int, after: int) -> Source:
    """The source for a worker that begins behind `after`: a replay's ends, and has its pace."""
    return source if replay is None else ReplaySource(source, replay.end(partition), Pace(replay.speed, after))


class ReplaySource(Through[Source]):
    """A partition as the scanner of a replay sees it."""

    def __init__(
        self, source: Source, until: int, pace: Pace, clock: Callable[[], float] = trio.current_time
    ) -> None:  # fmt: skip
        """Nothing behind `until` is given, up to which the partition was complete when the replay was made."""
        super().__init__(source)
        self._until, self._pace, self._clock = until, pace, clock
        self._read: tuple[int, Chunk] | None = None
        """What was read last, and after which id: it is given bit by bit."""

    async def read(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """See scanner.Source; returns when the first of the messages is due."""
        if after >= self._until:
            self._read = None
            return None
        chunk = await self._chunk(after, bytes_max, refuses)
        if chunk is None:  # retention dropped the rest
            return Chunk(b"", (), self._until)
        first = next_id(chunk, after)
        if first is None or first > self._until:
            return Chunk(b"", (), min(chunk.last_id, self._until))
        await trio.sleep(self._pace.wait(first, self._clock()))
        due = max(self._pace.due(first, self._clock()), _end_of_ms(first))
        return cut(chunk, after, min(due, self._until))

    async def _chunk(self, after: int, bytes_max: int, refuses: Refuses | None) -> Chunk | None:
        if self._read is not None and self._read[0] <= after < self._read[1].last_id:
            return self._read[1]
        chunk = await self._source.read(after, bytes_max, refuses)
        self._read = None if chunk is None else (after, chunk)
        return chunk

    def newest(self, after: int, bytes_max: int) -> Chunk | None:  # noqa: ARG002 - as all sources
        """Nothing: all has its time."""
        return None

    def has_news(self, after: int) -> bool:
        """See scanner.Source."""
        return after < self._until
