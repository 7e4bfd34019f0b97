"""The answer to a poll, sent while it is being read: in memory is one block, and what it is being made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from delivery.errors import HootError
from delivery.messaging.polling import Given

BLOCK_BYTES: Final = 60_000
"""A block ends with the message that brings ids, payloads and 8 bytes for each to so many."""
_PER_MESSAGE: Final = 28


class Blocks(ABC):
    """Makes an answer out of messages, a block at a time."""

    content_type: str

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = self._size = 0
        self._first = True

    def add(self, given: Given) -> bytes:
        """Take one more message; gives the block before it where that is full, else nothing."""
        full = self._cut(last=False) if self._size >= BLOCK_BYTES else b""
        self._parts += self._item(given)
        self._count += 1
        self._size += len(given.payload) + _PER_MESSAGE
        return full

    def end(self) -> bytes:
        """The last block with the end of the answer, which come together."""
        return self._cut(last=True)

    def _cut(self, *, last: bool) -> bytes:
        block = self._block(self._parts, self._count, first=self._first, last=last)
        self._parts, self._count, self._size, self._first = [], 0, 0, False
        return block

    @abstractmethod
    def _item(self, given: Given) -> list[bytes]:
        """The pieces of one message."""

    @abstractmethod
    def _block(self, parts: list[bytes], count: int, *, first: bool, last: bool) -> bytes:
        """A block of `count` messages, perhaps none; with what begins and ends an answer."""


async def encoded(messages: AsyncIterator[Given], blocks: Blocks) -> AsyncIterator[bytes]:
    """The blocks of an answer, at least one."""
    async for given in messages:
        if block := blocks.add(given):
            yield block
    yield blocks.end()


class StreamResponse(Response):
    """Sends pieces as they come; each is a chunk of the answer.

    The first one is there already, so that what fails before it gets an answer of its own. When a later one fails, the
    connection is cut, and the client finds the answer unfinished.
    """

    def __init__(self, first: bytes, rest: AsyncIterator[bytes], content_type: str, done: Callable[[], None]) -> None:
        """`done` is called in the end, however that comes."""
        super().__init__(media_type=content_type)
        del self.headers["content-length"]
        self._first, self._rest, self._done = first, rest, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, unless the client goes away."""
        del scope
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
                await self._send(send)
                nursery.cancel_scope.cancel()
        finally:
            self._done()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async with aclosing(self._rest) as rest:  # type: ignore[type-var]
            try:
                async for piece in rest:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except HootError:
                return  # without the last message of all the server cuts the connection
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
