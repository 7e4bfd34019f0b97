"""The ids of messages in a topic (seed 003): 20 bytes, and where a poll begins.

    i64  publish time, ms since 1970     of the message, or of the marker that made stored bodies visible
    u16  sequence under that time
    i64  time the body was stored, ms    0 for a message that was published with its body
    u16  sequence under that time        0 as well

Big-endian. Each half is one of the engine's own ids (`delivery.ids`), whose sequence ends at 32767. The order of ids is
that of their numbers, field by field. An id carries no generation: it is a place, and need not be that of a message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from delivery.errors import InvalidRequest
from delivery.ids import ID_MAX, SEQUENCES_PER_MS

ID_BYTES: Final = 20
_LAYOUT: Final = struct.Struct(">qHqH")


class TopicId(NamedTuple):
    """One id; compares as a place in the topic."""

    publish_ms: int
    sequence: int
    stored_ms: int = 0
    stored_sequence: int = 0

    def pack(self) -> bytes:
        """The 20 bytes."""
        return _LAYOUT.pack(*self)


class Start(NamedTuple):
    """Where a poll begins."""

    place: TopicId
    inclusive: bool

    def takes(self, found: TopicId) -> bool:
        """Whether the poll gives what is at that place."""
        return found > self.place or (self.inclusive and found == self.place)

    @property
    def after(self) -> int:
        """The id in the log behind which everything is that the poll may give."""
        return max(0, min(number_of(self.place.publish_ms, self.place.sequence), ID_MAX) - 1)


def id_of(number: int, stored: int = 0) -> TopicId:
    """The id of the message with that number in the log; `stored` is the number of its body, if that was apart."""
    return TopicId(*divmod(number, SEQUENCES_PER_MS), *divmod(stored, SEQUENCES_PER_MS))


def inline_ids(numbers: Iterable[int]) -> list[bytes]:
    """The packed ids of messages that were published with their bodies."""
    pack = _LAYOUT.pack
    return [pack(number // SEQUENCES_PER_MS, number % SEQUENCES_PER_MS, 0, 0) for number in numbers]


def number_of(publish_ms: int, sequence: int) -> int:
    """The number in the log of the first half of an id; at most that of a later message for one that none has."""
    return publish_ms * SEQUENCES_PER_MS + min(sequence, SEQUENCES_PER_MS - 1)


def read_id(data: bytes) -> TopicId:
    """The id in the first 20 bytes. Raises InvalidRequest when there are fewer."""
    if len(data) < ID_BYTES:
        raise InvalidRequest(f"a message id has {ID_BYTES} bytes, not {len(data)}")
    return TopicId(*_LAYOUT.unpack_from(data))


def read_start(start_from: bytes | int | None, inclusive: bool, ttl_seconds: int, now_ms: int) -> Start:
    """Where a poll begins that asks for an id, a time or nothing: never at what is older than the topic's ttl.

    A time is always taken inclusively. Raises InvalidRequest for times before 1970 and ids that are none.
    """
    oldest = TopicId(now_ms - ttl_seconds * 1000, 0)
    if isinstance(start_from, bytes):
        wanted = read_id(start_from)
        return Start(oldest, inclusive=True) if wanted.publish_ms < oldest.publish_ms else Start(wanted, inclusive)
    if start_from is not None and start_from < 0:
        raise InvalidRequest(f"a poll cannot start at the time {start_from}: times are milliseconds since 1970")
    return Start(max(oldest, TopicId(start_from or 0, 0)), inclusive=True)
