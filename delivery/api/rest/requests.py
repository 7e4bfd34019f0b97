"""What is asked for and answered, whatever the encoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from delivery.errors import InvalidRequest
from delivery.ids import ID_MAX, SEQUENCES_PER_MS
from delivery.messaging.ids import number_of
from delivery.messaging.marks import Rollback

_PLACES: Final = 1 << 16
"""The first sequence id of a record has the partition above its own 16 bits, so that a rollback names none."""


class PublishRequest(msgspec.Struct, frozen=True):
    """Messages for a topic, or a call for those that were stored."""

    pointer: int | None
    """The transaction's write pointer."""
    messages: Sequence[bytes]


class ConsumeRequest(msgspec.Struct, frozen=True):
    """What a poll wants."""

    start_from: bytes | int | None
    inclusive: bool
    limit: int | None
    transaction: bytes | None


class Published(msgspec.Struct, frozen=True, rename="camel"):
    """The range that a publish in a transaction took: what a client sends back to undo it, whatever it means.

    Its fields are those of the seed, on the wire as well.
    """

    transaction_write_pointer: int | None
    start_timestamp: int
    start_sequence_id: int
    end_timestamp: int
    end_sequence_id: int


class Undo(NamedTuple):
    """What is to be taken back, and in which partition."""

    partition: int
    what: Rollback


def published(pointer: int, partition: int, first: int, last: int) -> Published:
    """The record of a range of numbers in the log of a partition."""
    start_ms, start = divmod(first, SEQUENCES_PER_MS)
    return Published(pointer, start_ms, partition * _PLACES + start, *divmod(last, SEQUENCES_PER_MS))


def undo_of(record: Published) -> Undo:
    """What a record means. Raises InvalidRequest for one that no publish gave."""
    pointer = record.transaction_write_pointer
    partition, sequence = divmod(record.start_sequence_id, _PLACES)
    first = number_of(record.start_timestamp, sequence)
    last = number_of(record.end_timestamp, record.end_sequence_id)
    if pointer is None or not (0 <= first <= last <= ID_MAX and -(2**63) <= pointer < 2**63):
        raise InvalidRequest("send the answer of a publish in a transaction, as it was")
    return Undo(partition, Rollback(pointer, first, last))
