"""The answer to a poll, sent while it is being read: in memory are two blocks, and what the next one is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from delivery.errors import HootError
from delivery.messaging.polling import Stretch

BLOCK_BYTES: Final = 60_000
"""A block ends with the message that brings ids, payloads and 8 bytes for each to so many."""
_PER_MESSAGE: Final = 28


class Blocks(ABC):
    """Makes an answer out of messages, a block at a time."""

    content_type: str

    def __init__(self) -> None:
        self._ids: list[bytes] = []
        self._payloads: list[bytes] = []
        self._size = 0
        self._first = True

    def add(self, stretch: Stretch) -> list[bytes]:
        """Take more messages; gives the blocks that are full and have a message behind them."""
        blocks: list[bytes] = []
        begin = 0
        for place, length in enumerate(map(len, stretch.payloads)):
            if self._size >= BLOCK_BYTES:
                self._keep(stretch, begin, place)
                blocks.append(self._cut(last=False))
                begin = place
            self._size += length + _PER_MESSAGE
        self._keep(stretch, begin, len(stretch.payloads))
        return blocks

    def end(self) -> bytes:
        """The last block with the end of the answer, which come together."""
        return self._cut(last=True)

    def _keep(self, stretch: Stretch, begin: int, end: int) -> None:
        self._ids += stretch.ids[begin:end]
        self._payloads += stretch.payloads[begin:end]

    def _cut(self, *, last: bool) -> bytes:
        block = self._block(self._ids, self._payloads, first=self._first, last=last)
        self._ids, self._payloads, self._size, self._first = [], [], 0, False
        return block

    @abstractmethod
    def _block(self, ids: Sequence[bytes], payloads: Sequence[bytes], *, first: bool, last: bool) -> bytes:
        """A block of messages, perhaps none; with what begins and ends an answer."""


async def encoded(first: Stretch | None, rest: AsyncIterator[Stretch], blocks: Blocks) -> AsyncIterator[bytes]:
    """The blocks of an answer, at least one; `first` was read already, None if there is nothing at all."""
    if first is not None:
        for block in blocks.add(first):
            yield block
        async for stretch in rest:
            for block in blocks.add(stretch):
                yield block
    yield blocks.end()


class StreamResponse(Response):
    """Sends pieces as they come; each is a chunk of the answer.

    The first one is there already, so that what fails before it gets an answer of its own. When a later one fails, the
    connection is cut, and the client finds the answer unfinished.
    """

    def __init__(self, first: bytes, rest: AsyncIterator[bytes], content_type: str, done: Callable[[], object]) -> None:
        """`done` is called in the end, however that comes."""
        super().__init__(media_type=content_type)
        del self.headers["content-length"]
        self._first, self._rest, self._done = first, rest, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything. A client that has gone away is noticed by sending."""
        del scope, receive
        try:
            await self._send(send)
        finally:
            self._done()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        ready = self._first
        async with aclosing(self._rest) as rest:  # type: ignore[type-var]
            try:
                async for piece in rest:
                    await send({"type": "http.response.body", "body": ready, "more_body": True})
                    ready = piece
            except HootError:
                return  # without the last message of all the server cuts the connection
        await send({"type": "http.response.body", "body": ready, "more_body": False})
