"""Pushing to a listener in another language: one struct per message, one call at a time (idl: PlainListener).

The only place in a host that opens every message on its way out; it serves compatibility, not speed.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from delivery.batch import headers_in, open_batch
from delivery.dispatch.sender import STATUS_OK, Answer, Stream
from delivery.errors import HootError
from delivery.model import Message
from delivery.rpc.connection import Connection
from delivery.rpc.protocol import load_idl


class PlainAnswer(msgspec.Struct):
    """What a plain listener's status means as the answer to a push: all of it was handled, or none."""

    status: int
    position: int
    error: str | None = None


class PlainTarget:
    """A connection to a plain listener."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kind = load_idl("subscriber").PlainMessage

    async def push(
        self, stream: Stream, _run: int, after: int, data: bytes, on_answer: Callable[[Answer | HootError], None]
    ) -> None:
        """Send the messages above `after` and wait for the status; raises HootError when the connection is broken."""
        messages = _messages(stream.queue, data, after)
        structs = [self._struct(message) for message in messages]
        status = await self._connection.call("PlainListener", "onMessages", stream.queue, stream.subscription, structs)
        handled = messages[-1].number if messages and status == STATUS_OK else after
        on_answer(PlainAnswer(status, handled))

    def _struct(self, message: Message) -> object:
        return self._kind(
            id=message.number, partition=message.partition, topic=message.topic, key=message.key,
            headers=message.headers, body=message.body,
        )  # fmt: skip


def _messages(queue: str, data: bytes, after: int) -> list[Message]:
    return [
        message
        for at, header in headers_in(data)
        for message in open_batch(data[at : at + header.length]).messages(queue, after)
    ]
