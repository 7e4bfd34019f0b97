"""Reading batches from a segment, every checksum looked at on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Lock
from typing import Final

import google_crc32c

from delivery.batch import HEADER_BYTES, Header, peek
from delivery.batch.select import Refuses, dictionary_in
from delivery.errors import CorruptRecord
from delivery.storage.base import NOTHING, Amount, Chunk
from delivery.storage.log.index import STRETCH_BYTES
from delivery.storage.log.segment import ClosedFiles, LogFile, Segment

BEGINNING_BYTES: Final = 1024
"""Enough for a header and the topics of most batches."""
BEGINNINGS_MAX: Final = 2048
"""One read looks at so many batches, and takes some milliseconds, where all of them are refused."""
PLACES_MAX: Final = 64
"""Readers of one partition whose places are remembered; one more than that looks its place up in the index."""
PROVED_MAX: Final = 1024
"""Dictionaries of a partition that are believed."""


class Reader:
    """Reads the segments of one partition; remembers behind which id, and so in which segment, readers stopped.

    Thread-safe.
    """

    def __init__(self, files: ClosedFiles) -> None:
        self._files = files
        self._places: dict[int, int] = {}
        self._proved: set[bytes] = set()
        """Dictionaries under which a checksum was right. It is that of the whole payload; so only these are believed in
        a batch that is not read, and one in which a bit has fallen over is not among them.
        """
        self._lock = Lock()

    def read(self, segment: Segment, after: int, bytes_max: int) -> Chunk:
        """The whole batches of a segment that holds ids above `after`, at most `bytes_max` but at least one.

        Raises CorruptRecord, OSError.
        """
        file = self._files.open(segment)
        end = segment.extent.end
        at = self._place(segment, after, end)
        data = pread(file, min(max(bytes_max, HEADER_BYTES), end - at), at)
        first = _header(data, 0)
        if first.length > len(data):
            data = pread(file, min(first.length, end - at), at)
        headers, size = checked(data, after)
        chunk = Chunk(data if size == len(data) else data[:size], headers)
        self._remember(chunk.last_id, at + size)
        return chunk

    def read_wanted(self, segment: Segment, after: int, bytes_max: int, refuses: Refuses) -> Chunk:
        """As `read`, without the batches that are refused, of which only the beginnings are read. May be empty.

        The first one with its dictionary is read as a whole all the same.
        """
        file, end = self._files.open(segment), segment.extent.end
        headers: list[Header] = []
        parts: list[bytes] = []
        stop, room = self._place(segment, after, end), bytes_max
        for seen, (at, header, dictionary) in enumerate(beginnings(file, stop, end), start=1):
            refused = dictionary is not None and refuses(header, dictionary)
            room -= 0 if refused else header.length
            if room < 0 and parts:
                break
            if not refused or dictionary not in self._proved:
                data = pread(file, min(header.length, end - at), at)
                found, _ = checked(data, after)
                self._prove(dictionary)
                parts += [] if refused else [data]
                headers += () if refused else found
            after, stop = header.last_id, at + header.length
            if seen == BEGINNINGS_MAX:
                break
        self._remember(after, stop)
        return Chunk(parts[0] if len(parts) == 1 else b"".join(parts), tuple(headers), after)

    def rank(self, segment: Segment, message_id: int) -> Amount:
        """What of the segment has an id up to `message_id`; reads one stretch of headers at most."""
        end, last_id, messages = segment.extent
        if message_id >= last_id:
            return Amount(messages, end)
        if message_id < segment.base_id:
            return NOTHING
        at, before = self._files.index(segment).find(message_id)
        for start, header in walk(self._files.open(segment), at, end):
            if header.last_id >= message_id:
                return Amount(before + header.shown_up_to(message_id), start + header.length_up_to(message_id))
            before += header.shown
        raise CorruptRecord(f"{segment.log_path.name} ends below id {message_id}")

    def _place(self, segment: Segment, after: int, end: int) -> int:
        """Where the first batch with an id above `after` starts."""
        if after < segment.base_id:
            return 0
        if (known := self._places.get(after)) is not None:
            return known
        start, _ = self._files.index(segment).find(after)
        for at, header in walk(self._files.open(segment), start, end):
            if header.last_id > after:
                return at
        raise CorruptRecord(f"{segment.log_path.name} ends before the batch after id {after}")

    def _prove(self, dictionary: bytes | None) -> None:
        if dictionary is not None and len(self._proved) < PROVED_MAX:
            self._proved.add(dictionary)

    def _remember(self, last_id: int, at: int) -> None:
        with self._lock:
            self._places.pop(last_id, None)
            self._places[last_id] = at
            if len(self._places) > PLACES_MAX:
                del self._places[next(iter(self._places))]


def pread(file: LogFile, size: int, at: int) -> bytes:
    """Exactly `size` bytes at `at`. Raises CorruptRecord when the file ends before, OSError."""
    data = os.pread(file.fd, size, at)
    while len(data) < size:
        more = os.pread(file.fd, size - len(data), at + len(data))
        if not more:
            raise CorruptRecord(f"a segment was cut at {at + len(data)} inside stored data")
        data += more
    return data


def walk(file: LogFile, at: int, end: int) -> Iterator[tuple[int, Header]]:
    """(offset, header) of each batch from `at` up to `end`, a stretch of the file in memory at a time."""
    start, window = at, b""
    while at < end:
        if at + HEADER_BYTES > start + len(window):
            start, window = at, pread(file, min(STRETCH_BYTES, end - at), at)
        header = _header(window, at - start)
        yield at, header
        at += header.length


def beginnings(file: LogFile, at: int, end: int) -> Iterator[tuple[int, Header, bytes | None]]:
    """(offset, header, topic dictionary) of each batch from `at` up to `end`; None for a long dictionary.

    Of large batches little more than that is read; where several are in a stretch of the file, the stretch.
    """
    start, window = at, b""
    while at < end:
        if at + BEGINNING_BYTES > start + len(window) < end:
            small = bool(window) and at <= start + STRETCH_BYTES
            start, window = at, pread(file, min(STRETCH_BYTES if small else BEGINNING_BYTES, end - at), at)
        header = _header(window, at - start)
        try:
            yield at, header, dictionary_in(header, window, at - start)
        except IndexError:
            yield at, header, None
        at += header.length


def checked(data: bytes, after: int) -> tuple[tuple[Header, ...], int]:
    """The headers of the whole batches at the front of `data` and the bytes that they take.

    Raises CorruptRecord when a checksum is wrong, the ids do not rise above `after`, or not even one is whole.
    """
    headers: list[Header] = []
    at, size = 0, len(data)
    while (header := peek(data, at)) is not None and (end := at + header.length) <= size:
        # The checksum takes bytes objects only, hence a copy of the payload; it stays in the processor's cache.
        if google_crc32c.value(data[at + HEADER_BYTES : end]) != header.payload_crc:
            raise CorruptRecord(f"the checksum of the batch at id {header.base_id} is wrong")
        if header.last_id <= after or (headers and header.base_id <= after):
            raise CorruptRecord(f"the batch at id {header.base_id} comes after id {after}")
        headers.append(header)
        at, after = end, header.last_id
    if not headers:
        raise CorruptRecord("a segment ends in the middle of a batch")
    return tuple(headers), at


def _header(data: bytes, at: int) -> Header:
    header = peek(data, at)
    if header is None:
        raise CorruptRecord("a segment ends in the middle of a batch header")
    return header
