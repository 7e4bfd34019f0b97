"""The messages that a marker makes visible, as all readers but polls get them: ordinary ones, with ids of their own.

A marker's batch covers an id for itself and, behind it, one for each of its messages, in the order in which their
bodies were stored. So a place within a group is a number like any other. The bodies stay where they were stored; a
batch of them becomes one of messages by another dictionary and another base id, without a look at what is in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import google_crc32c
import msgspec

from delivery.batch import HEADER_BYTES, Header, open_batch
from delivery.batch.layout import OWN, check_payload
from delivery.batch.select import Refuses
from delivery.messaging.marks import MARKER, STORED, Range, read_marker

_MARKER: Final = bytes((len(MARKER),)) + MARKER.encode()
_STORED: Final = bytes((len(STORED),)) + STORED.encode()
_NO_TOPIC: Final = b"\0"


class Group:
    """One marker and where the bodies of its messages are."""

    def __init__(self, marker: Header, ranges: Sequence[Range]) -> None:
        self.last_id = marker.last_id
        """That of its last message."""
        self.last_body = ranges[-1].last if ranges else 0
        """The number of that one's body."""
        self._ranges = ranges
        self._firsts = [one.first for one in ranges]
        self._ids = list(accumulate((one.messages for one in ranges), initial=marker.base_id + 1))
        """That of the first message of each range, and the one behind the last."""

    def body_behind(self, after: int) -> int | None:
        """The number of the body of the first message above `after`, which is the marker's id or a later one.

        None behind the last; always for a marker that covers no ids but its own, as they did once.
        """
        if after >= self.last_id:
            return None
        place = bisect_right(self._ids, after + 1) - 1
        return self._firsts[place] + after + 1 - self._ids[place]

    def id_of(self, number: int) -> int | None:
        """The id of the message with the body of that number; None when that is not of this group."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0 or number > self._ranges[place].last:
            return None
        return self._ids[place] + number - self._firsts[place]


def group_of(header: Header, data: bytes) -> Group:
    """The group of a marker's batch. Raises CorruptRecord."""
    return Group(header, read_marker(open_batch(data, header).bodies()[0]))


def span_of(ranges: Sequence[Range]) -> int:
    """How many ids the marker of a group covers."""
    return 1 + sum(one.messages for one in ranges)


def is_marker(header: Header, data: bytes, at: int = 0) -> bool:
    """Whether the batch that begins at `at` is a marker's."""
    return data.startswith(_MARKER, at + HEADER_BYTES) and header.topic_count == 1


def has_markers(data: bytes, headers: Sequence[Header]) -> bool:
    """Whether one of the batches of a string, each with its header, stands for messages elsewhere."""
    at = 0
    for header in headers:
        if is_marker(header, data, at):
            return True
        at += header.length
    return False


def but_markers(refuses: Refuses) -> Refuses:
    """What refuses the same, but for markers: these may stand for what is wanted."""
    return lambda header, dictionary: dictionary != _MARKER and refuses(header, dictionary)


def holds_no_bodies(_: Header, dictionary: bytes) -> bool:
    """For reading stored bodies alone: what is refused."""
    return dictionary != _STORED


def as_messages(header: Header, data: bytes, base_id: int) -> tuple[Header, bytes]:
    """A batch of stored bodies as the messages with ids from `base_id` on. Raises CorruptRecord."""
    check_payload(header, data)
    payload = _NO_TOPIC + data[HEADER_BYTES + len(_STORED) :]
    made = msgspec.structs.replace(
        header, flags=header.flags & ~OWN, base_id=base_id, length=HEADER_BYTES + len(payload),
        payload_crc=google_crc32c.value(payload),
    )  # fmt: skip
    return made, made.pack() + payload
