"""Dead letters: messages that were given up, as they are kept in a queue of the subscription's own.

A dead letter is the message as it was, with headers that tell where it comes from and why. It is stored before the
position moves past the message: what is lost in between is the knowledge of it, and the message is given up once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from delivery import wall
from delivery.errors import MessageTooLarge
from delivery.messaging.marks import HEADER, pointer_in
from delivery.metastore.managers.records import Attempts
from delivery.model import Message, encode_headers, tolerant_headers

PREFIX: Final = "hoot-dlq-"
"""Of all headers that a dead letter has beside its own."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that a subscription gave up."""

    subscription: str
    message: Message
    reason: str
    attempts: Attempts


class DeadLetters(Protocol):
    """Where dead letters are kept (client.deadletters.DeadLetterStore)."""

    async def store(self, letters: Sequence[DeadLetter]) -> None:
        """Return when all are stored. Raises HootError: some may be. Cancelled: the same."""


def headers_of(letter: DeadLetter) -> Mapping[str, bytes]:
    """The headers of a dead letter: the message's own and what became of it.

    The message's own are left out where all together would be more than a message can have.
    """
    message, attempts = letter.message, letter.attempts
    told = {
        "reason": letter.reason, "failures": str(attempts.failures), "crashes": str(attempts.suspected),
        "first-error": attempts.first_error,
        "last-error": attempts.last_error, "id": str(message.id), "queue": message.queue,
        "partition": str(message.partition), "time": f"{wall.seconds():.3f}",
    }  # fmt: skip
    if (pointer := pointer_in(message.header_block)) is not None:
        told["transaction"] = str(pointer)  # the letter itself is of none
    ours = {PREFIX + name: text.encode(errors="replace") for name, text in told.items()}
    own = {name: value for name, value in tolerant_headers(message.header_block).items() if name not in (*ours, HEADER)}
    try:
        encode_headers({**own, **ours})
    except MessageTooLarge:
        return {**ours, PREFIX + "headers": b"left out"}
    return {**own, **ours}
