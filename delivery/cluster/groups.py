"""Reading a partition as its readers see it: with the messages of a group in place of the marker that shows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import trio

from delivery.batch import Header, is_aside
from delivery.batch.select import Refuses
from delivery.messaging.groups import Group, as_messages, group_of, holds_no_bodies, is_marker
from delivery.storage.base import Chunk

Read = Callable[[int, int, Refuses], Awaitable[Chunk | None]]
"""Reads what is stored: (after, bytes_max, what is refused)."""


async def unfolded(chunk: Chunk, after: int, bytes_max: int, read: Read) -> Chunk:
    """A chunk that was read behind `after`, with the messages of its markers; it may end earlier then.

    It has at most `bytes_max`, but at least one batch. Bodies that retention has dropped are missing. Raises what
    reading does, and CorruptRecord.
    """
    taken = _Taken(bytes_max)
    for header, data in batches_in(chunk):
        if is_marker(header, data):
            end = await _take_group(taken, group_of(header, data), max(after, header.base_id), read)
            if end < header.last_id:
                return taken.chunk(end)
        elif not is_aside(header) and not taken.add(header, data):
            return taken.chunk(header.base_id - 1)
    return taken.chunk(chunk.last_id)


def batches_in(chunk: Chunk) -> Iterator[tuple[Header, bytes]]:
    """The batches of a chunk."""
    at = 0
    for header in chunk.headers:
        yield header, chunk.data if header.length == len(chunk.data) else chunk.data[at : at + header.length]
        at += header.length


class _Taken:
    """What becomes a chunk."""

    def __init__(self, bytes_max: int) -> None:
        self._headers: list[Header] = []
        self._parts: list[bytes] = []
        self.room = bytes_max

    def add(self, header: Header, data: bytes) -> bool:
        """Take a batch, unless it is too much."""
        if self._parts and len(data) > self.room:
            return False
        self._headers.append(header)
        self._parts.append(data)
        self.room -= len(data)
        return True

    def chunk(self, end: int) -> Chunk:
        """All of it, by which everything up to `end` was looked at."""
        return Chunk(b"".join(self._parts), tuple(self._headers), end)


async def _take_group(taken: _Taken, group: Group, after: int, read: Read) -> int:
    """Take what fits of a group's messages above `after`; the id up to which that is all of them."""
    position = -1
    while (wanted := group.body_behind(after)) is not None:
        position = max(position, wanted - 1)
        chunk = await read(position, max(taken.room, 1), holds_no_bodies)
        if chunk is None:
            break
        for header, data in batches_in(chunk):
            number = group.id_of(header.base_id)
            if number is None:
                continue
            made, messages = as_messages(header, data, number)
            if not taken.add(made, messages):
                return after
            after = made.last_id
        position = chunk.last_id
        if position >= group.last_body:
            break
        await trio.lowlevel.checkpoint()  # the tail cache answers without one
    return group.last_id
