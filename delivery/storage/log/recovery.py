"""Finding out what a partition's folder holds when a new owner takes it, and sealing it.

Only the one segment that has no index yet is read; the closed ones state their ends and need a look at their sizes.
What a crash leaves behind the last whole batch of the open segment is cut: zeros that were reserved for what was to
come, and what was never acknowledged. That is known for sure up to the end that the last owner noted in shared memory
(see `epochs`): a batch below it that is not whole is damage to acknowledged data, and the partition stops. After a
power cut the note may be old; then a bad batch with a whole one behind it counts as damage, too, and only the very last
batch cannot be told from a torn tail. The price: if a disk brought a group's later batches but not its earlier ones
through a power cut, a person has to look at it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c

from delivery.batch import HEADER_BYTES, Header, peek
from delivery.batch.layout import MAGIC
from delivery.errors import CorruptRecord, Fenced
from delivery.storage.log.disk import Disk
from delivery.storage.log.epochs import Epochs
from delivery.storage.log.index import Extent, Index, encode, read_index, read_trailer
from delivery.storage.log.reader import pread
from delivery.storage.log.segment import LogFile, Segment, find_segments
from delivery.storage.producers import Producers

_SCAN_BYTES: Final = 1 << 20
_log = logging.getLogger(__name__)


class Found(NamedTuple):
    """What a partition holds, all of it closed."""

    segments: tuple[Segment, ...]
    last_id: int
    producers: Producers
    relic: Path | None
    """The last index when the batches it belongs to were trimmed: it keeps the last id and the producers."""


def recover(folder: Path, epochs: Epochs, partition: int, epoch: int, disk: Disk) -> Found:
    """Close what older epochs left open and load what is there. Call it under the partition's lock, epoch raised.

    Raises CorruptRecord when acknowledged data is damaged or missing, Fenced when a newer epoch's segments are there,
    OSError.
    """
    logs, indexes, drafts = find_segments(folder)
    for draft in drafts:
        draft.unlink()
    names = sorted(logs.keys() | indexes)
    if names and names[-1][0] > epoch:
        raise Fenced(f"epoch {names[-1][0]} has stored in {folder.name} already; {epoch} is too old")
    opened = names.pop() if names and names[-1] not in indexes else None
    trimmed = next((place for place, name in enumerate(names) if name in logs), len(names))
    relics = [Segment(folder, *name, Extent(0, 0, 0)) for name in names[:trimmed]]
    closed = [_closed(folder, name, logs.get(name)) for name in names[trimmed:]]
    newest = closed[-1] if closed else relics[-1] if relics else None
    producers = Producers(read_index(newest.index_path)[1] if newest is not None else ())
    last_id = read_trailer(newest.index_path).extent.last_id if newest is not None else 0
    if opened is not None:
        tail = Segment(folder, *opened, Extent(0, last_id, 0))
        if _seal(tail, producers, partition, epochs, disk):
            closed.append(tail)
    for relic in relics if closed else relics[:-1]:
        relic.index_path.unlink()
    _check_rising(closed)
    kept = relics[-1].index_path if relics and not closed else None
    return Found(tuple(closed), closed[-1].extent.last_id if closed else last_id, producers, kept)


def _closed(folder: Path, name: tuple[int, int], log: os.stat_result | None) -> Segment:
    segment = Segment(folder, *name, Extent(0, 0, 0))
    try:
        segment.extent = read_trailer(segment.index_path).extent
    except FileNotFoundError as error:
        raise CorruptRecord(f"the index of closed segment {segment.log_path.name} is missing") from error
    size = log.st_size if log else 0
    if size < segment.extent.end:
        raise CorruptRecord(f"closed segment {segment.log_path.name} has {size} of its {segment.extent.end} bytes")
    return segment


def _check_rising(closed: list[Segment]) -> None:
    for older, newer in pairwise(closed):
        if newer.base_id <= older.extent.last_id or newer.epoch < older.epoch:
            raise CorruptRecord(f"segment {newer.log_path.name} begins inside the one before it")


def _seal(tail: Segment, producers: Producers, partition: int, epochs: Epochs, disk: Disk) -> bool:
    """Close the segment that its owner left open, at its last whole batch; False when it has none and was removed."""
    file, index = LogFile(tail.log_path, os.O_RDWR), Index()
    size = os.fstat(file.fd).st_size
    for at, header in _whole_batches(file, size, tail, partition):
        end, _, messages = tail.extent
        index.note(header.base_id, at, messages)
        producers.note(header)
        tail.extent = Extent(end + header.length, header.last_id, messages + header.shown)
    end, acknowledged = tail.extent.end, epochs.noted(partition, tail.base_id)
    rest = pread(file, size - end, end) if end < size else b""
    torn = rest.rstrip(b"\0")
    if end < acknowledged or (torn and _batch_beyond(rest, tail, partition)):
        known = max(end + len(torn), acknowledged)
        raise CorruptRecord(f"segment {tail.log_path.name} is damaged at {end} of {known} bytes")
    if torn:
        _log.warning("cut %d bytes of an unfinished write off %s of %s", len(torn), tail.log_path.name, tail.folder)
    if not end:
        tail.log_path.unlink()
        return False
    if end < size:
        os.ftruncate(file.fd, end)
    if end > acknowledged:
        disk.sync(file.fd)
    disk.write_file(tail.index_path, encode(index, producers.snapshot(), tail.extent))
    return True


def _whole_batches(file: LogFile, size: int, tail: Segment, partition: int) -> Iterator[tuple[int, Header]]:
    """(offset, header) of the batches at the front of the segment that are whole and in order."""
    at, start, window, last_id = 0, 0, b"", tail.extent.last_id
    while at < size:
        if at + HEADER_BYTES > start + len(window):
            start, window = at, pread(file, min(_SCAN_BYTES, size - at), at)
        header = _header(window, at - start)
        if header is None or at + header.length > size or not _follows(header, tail, partition, last_id):
            return
        if at + header.length > start + len(window):
            start, window = at, pread(file, min(max(_SCAN_BYTES, header.length), size - at), at)
        if not _payload_is_right(header, window, at - start):
            return
        yield at, header
        at, last_id = at + header.length, header.last_id


def _batch_beyond(rest: bytes, tail: Segment, partition: int) -> bool:
    """Whether a whole batch lies in what is behind the whole ones, so that what is between is damage."""
    broken = _header(rest, 0)
    # Inside a payload whatever looks like a batch is a message's own; only a damaged header leaves no other way.
    at = broken.length if broken is not None else 1
    while (at := rest.find(MAGIC, at)) >= 0:
        header = _header(rest, at)
        follows = header is not None and _follows(header, tail, partition, tail.extent.last_id)
        if header is not None and follows and _payload_is_right(header, rest, at):
            return True
        at += 1
    return False


def _follows(header: Header, tail: Segment, partition: int, last_id: int) -> bool:
    return header.epoch == tail.epoch and header.partition == partition and header.base_id > last_id


def _header(data: bytes, at: int) -> Header | None:
    """The batch header at `at`, None when no right one is there."""
    try:
        return peek(data, at)
    except CorruptRecord:
        return None


def _payload_is_right(header: Header, data: bytes, at: int) -> bool:
    payload = data[at + HEADER_BYTES : at + header.length]
    return len(payload) == header.length - HEADER_BYTES and google_crc32c.value(payload) == header.payload_crc
