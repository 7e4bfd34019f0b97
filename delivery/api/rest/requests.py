"""What is asked for and answered, whatever the encoding."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from delivery.errors import InvalidRequest
from delivery.ids import ID_MAX, SEQUENCES_PER_MS
from delivery.messaging.ids import number_of
from delivery.messaging.marks import Rollback


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


def published(pointer: int, first: int, last: int) -> Published:
    """The record of a range of numbers in the log."""
    return Published(pointer, *divmod(first, SEQUENCES_PER_MS), *divmod(last, SEQUENCES_PER_MS))


def rollback_of(record: Published) -> Rollback:
    """What a record means. Raises InvalidRequest for one that no publish gave."""
    pointer = record.transaction_write_pointer
    first = number_of(record.start_timestamp, record.start_sequence_id)
    last = number_of(record.end_timestamp, record.end_sequence_id)
    if pointer is None or not 0 <= first <= last <= ID_MAX:
        raise InvalidRequest("send the answer of a publish in a transaction, as it was")
    return Rollback(pointer, first, last)
