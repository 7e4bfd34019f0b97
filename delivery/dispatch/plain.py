"""Pushing to a listener in another language: one struct per message, one call at a time (idl: PlainListener).

The only place in a host that opens every message on its way out; it serves compatibility, not speed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import trio

from delivery.batch import headers_in, open_batch
from delivery.dispatch.target import STATUS_FAILED, STATUS_OK, Answer, More, Stream
from delivery.errors import HootError, ProtocolError, SubscriberUnreachable
from delivery.model import Message
from delivery.rpc.connection import Connection
from delivery.rpc.messages import plain_bytes, plain_struct
from delivery.rpc.protocol import load_idl

_CALL_BYTES: Final = 1 << 20
"""Messages of one call, or one message: many small ones are far larger as structs than packed, and Apache Thrift takes
frames of 16,384,000 bytes."""


_ENDED: Final = "the connection to a plain listener has ended"


class PlainAnswer(msgspec.Struct):
    """What the statuses of a plain listener mean as the answer to a push: all up to `position` was handled."""

    status: int
    position: int
    failures: Sequence[Any] | None = None
    abreast: int | None = None


class _Push(NamedTuple):
    stream: Stream
    after: int
    data: bytes
    on_answer: Callable[[Answer | HootError], None]


class PlainTarget:
    """A connection to a plain listener. `run` makes the calls, one push after another."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._idl = load_idl("subscriber")
        self._pushes: deque[_Push] = deque()
        self._pushed = trio.lowlevel.ParkingLot()
        self._ended = False
        self._scope = trio.CancelScope()

    @property
    def ready(self) -> bool:
        """Always: the senders' windows bound what waits here."""
        return True

    def when_ready(self, tell: Callable[[], None]) -> None:
        """Call `tell` now."""
        tell()

    def push(
        self, stream: Stream, _run: int, after: int, data: bytes, on_answer: Callable[[Answer | HootError], None],
        more: More | None = None,
    ) -> None:  # fmt: skip
        """Send the messages above `after`, call after call, until all are handled or one call is not.

        Raises SubscriberUnreachable when the connection is broken. A listener that answers with Thrift's general
        exception, into which generated code turns whatever its handler raises, has failed.
        """
        if self._ended:
            raise SubscriberUnreachable(_ENDED)
        repeated = more is not None and more.again
        self._pushes.append(_Push(stream, -1 if repeated else after, data, on_answer))
        self._pushed.unpark()

    async def run(self) -> None:
        """Work until `end`; what was not begun then is told so."""
        try:
            with self._scope:
                while True:
                    while not self._pushes:
                        await self._pushed.park()
                    push = self._pushes[0]
                    try:
                        answer = await self._answer(push)
                    except HootError as error:  # what it pushes cannot be read
                        answer = error
                    self._pushes.popleft()
                    push.on_answer(answer)
        finally:
            self._ended = True
            for push in self._pushes:
                push.on_answer(SubscriberUnreachable(_ENDED))

    def end(self) -> None:
        """The connection is gone, or nobody waits for answers any more."""
        self._ended = True
        self._scope.cancel()

    async def _answer(self, push: _Push) -> Answer | HootError:
        answer, why = PlainAnswer(STATUS_OK, push.after), "it answered that it failed"
        for part in _parts(_messages(push.stream.queue, push.data, push.after)):
            structs = [plain_struct(self._idl.PlainMessage, message) for message in part]
            try:
                answer.status = await self._connection.call(
                    "PlainListener", "onMessages", push.stream.queue, push.stream.subscription, structs
                )
            except ProtocolError as error:
                answer.status, why = STATUS_FAILED, error.message
            except HootError as error:
                return error
            if answer.status != STATUS_OK:
                failed = self._idl.Failure(id=part[0].number, last=part[-1].number, kind=self._idl.RAISED, error=why)
                answer.failures = [failed]
                break
            answer.position = part[-1].number
        return answer


def _messages(queue: str, data: bytes, after: int) -> Iterator[Message]:
    for at, header in headers_in(data):
        yield from open_batch(data[at : at + header.length], header).messages(queue, after)


def _parts(messages: Iterator[Message]) -> Iterator[list[Message]]:
    """The messages in lists that a call can hold."""
    part: list[Message] = []
    size = 0
    for message in messages:
        size += plain_bytes(message)
        if part and size > _CALL_BYTES:
            yield part
            part, size = [], plain_bytes(message)
        part.append(message)
    if part:
        yield part
