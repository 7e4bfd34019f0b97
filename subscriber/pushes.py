"""A push as it arrived, and the messages in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from delivery.batch import headers_in, open_batch
from delivery.errors import CorruptRecord
from delivery.model import Message


class Push(Protocol):
    """The struct of the IDL, once it is known to be complete."""

    queue: str
    subscription: str
    partition: int
    epoch: int
    run: int
    after: int
    batches: bytes
    moves: int | None
    parked: Sequence[Any] | None
    again: bool | None
    settled: Sequence[int] | None


class Reply(Protocol):
    """A PushReply of the IDL."""

    status: int
    position: int
    failures: Sequence[Any] | None


def last_id_of(push: Push) -> int:
    """The last id that the push itself covers, however far the inbox is."""
    return max((header.last_id for _, header in headers_in(push.batches)), default=push.after)


def messages_in(push: Push) -> int:
    """How many messages it holds, wanted or not."""
    return sum(header.count for _, header in headers_in(push.batches))


def pieces(push: Push, after: int, *, whole: bool) -> Iterator[tuple[int, Iterator[Message] | list[Message]]]:
    """(last id covered, messages above `after`): per batch, or with `whole` all of the push together.

    Raises CorruptRecord in the place of the first batch that is damaged.
    """
    if not whole:
        yield from batches(push, after)
        return
    messages: list[Message] = []
    reached = after
    damage: CorruptRecord | None = None
    try:
        for last, part in batches(push, after):
            messages += part
            reached = last
    except CorruptRecord as error:
        damage = error
    yield reached, messages
    if damage is not None:
        raise damage


def batches(push: Push, after: int) -> Iterator[tuple[int, Iterator[Message]]]:
    """(last id covered, messages above `after`) per batch. Raises CorruptRecord in the place of what is damaged."""
    data, end = push.batches, 0
    for at, header in headers_in(data):
        end = at + header.length
        if header.partition != push.partition:
            raise CorruptRecord(f"a push of partition {push.partition} holds a batch of partition {header.partition}")
        if header.last_id > after:
            yield header.last_id, open_batch(data[at:end], header).messages(push.queue, after)
    if end != len(data):
        raise CorruptRecord(f"a push ends with {len(data) - end} bytes that are no whole batch")
