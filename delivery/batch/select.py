"""The part of a batch that a filter leaves: a sparse batch with the same ids, epoch and span."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

from delivery.batch.decode import Batch
from delivery.batch.encode import assemble
from delivery.batch.layout import HEADER_BYTES, OWN, Header

Refuses = Callable[[Header, bytes], bool]
"""Whether nothing is wanted of a batch with this header and topic dictionary, for sure.

Asked with a part of a batch's dictionary it tells of the messages with these topics. The dictionary is given as read:
whoever asks before the batch's checksum was looked at sees to it that it is right.
"""


class Wanted(Protocol):
    """What messages are wanted (filters.Filter)."""

    def decide(self, header: Header, dictionary: bytes) -> bool | None:
        """Whether all messages or none of a batch are, by its header and topic dictionary; None when it must be opened.

        The dictionary is in its bytes, the same for most batches of a queue: see `topics_in`.
        """

    def choose(self, batch: Batch) -> Sequence[int]:
        """The places of those that are, rising."""


def is_aside(header: Header) -> bool:
    """Whether a batch is one of the engine's own (`model.ASIDE`), which nobody reads as messages."""
    return bool(header.flags & OWN)


def without_asides(data: bytes, headers: Sequence[Header]) -> tuple[bytes, Sequence[Header]]:
    """The batches of a string, each with its header, that are for readers: all of them, most of the time."""
    starts = list(accumulate((header.length for header in headers), initial=0))
    kept = [(header, at) for header, at in zip(headers, starts, strict=False) if not is_aside(header)]
    if len(kept) == len(headers):
        return data, headers
    return b"".join(data[at : at + header.length] for header, at in kept), [header for header, _ in kept]


def select(header: Header, data: bytes, wanted: Wanted, at: int = 0) -> bytes | None:
    """The messages of the batch that begins at `at` that are wanted: as they are if all are, None if none is.

    The header and the dictionary behind it decide for most batches; only one that holds both kinds is opened and
    packed anew. Its checksum is not looked at again: whoever gave it has, when it was read or published.
    """
    if is_aside(header):
        return None
    decided = wanted.decide(header, dictionary_in(header, data, at))
    if decided is None:
        batch = Batch(header, data, at)
        places = wanted.choose(batch)
        decided = len(places) == header.count
        if places and not decided:
            return _repack(batch, places)
    if not decided:
        return None
    return data if len(data) == header.length else data[at : at + header.length]


def select_each(data: bytes, headers: Sequence[Header], wanted: Wanted) -> bytes:
    """`select` of the batches of a string, each with its header."""
    kept, at = [], 0
    for header in headers:
        if (part := select(header, data, wanted, at)) is not None:
            kept.append(part)
        at += header.length
    return b"".join(kept)


def topics_in(dictionary: bytes) -> list[str]:
    """The topics of a dictionary."""
    found, at = [], 0
    while at < len(dictionary):
        end = at + 1 + dictionary[at]
        found.append(dictionary[at + 1 : end].decode("ascii"))
        at = end
    return found


def dictionary_in(header: Header, data: bytes, at: int = 0) -> bytes:
    """The dictionary of the batch that begins at `at`. Raises IndexError when it is not all there."""
    first = place = at + HEADER_BYTES
    for _ in range(header.topic_count):
        place += 1 + data[place]
    if place > len(data):
        raise IndexError
    return data[first:place]


def _repack(batch: Batch, places: Sequence[int]) -> bytes:
    header = batch.header
    return assemble(
        batch.columns(places), header.partition, base_id=header.base_id, epoch=header.epoch,
        producer_id=header.producer_id, producer_sequence=header.producer_sequence, span=header.span,
    )  # fmt: skip
