"""For publishers in an asyncio loop: their life, bodies that come slowly, and counting what is not acknowledged yet."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from delivery.bench.peers.base import Send


class Publishing(Protocol):
    """A publisher of which everything is awaited."""

    async def open(self, address: str) -> None:
        """Connect."""

    async def send(self, bodies: Iterable[bytes]) -> None:
        """See base.Send."""

    async def close(self) -> None:
        """End the connection."""


@contextmanager
def awaited(publishing: Publishing, address: str) -> Iterator[Send]:
    """Publishes in a loop of its own."""
    with asyncio.Runner() as runner:
        runner.run(publishing.open(address))
        yield lambda bodies: runner.run(publishing.send(bodies))
        runner.run(publishing.close())


async def arriving(bodies: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Each of them, as soon as a thread got it: the loop's own sleeps are a millisecond late."""
    loop = asyncio.get_running_loop()
    come: asyncio.Queue[bytes | None] = asyncio.Queue()

    def work() -> None:
        try:
            for body in bodies:
                loop.call_soon_threadsafe(come.put_nowait, body)
        finally:
            loop.call_soon_threadsafe(come.put_nowait, None)

    threading.Thread(target=work, name="arriving", daemon=True).start()
    while (body := await come.get()) is not None:
        yield body


class UnderWay:
    """How many messages are published and not acknowledged."""

    def __init__(self) -> None:
        self.count = 0
        self._fewer = asyncio.Event()

    def acknowledged(self) -> None:
        """One of them is."""
        self.count -= 1
        self._fewer.set()

    async def until(self, most: int) -> None:
        """Wait until there are at most so many."""
        while self.count > most:
            self._fewer.clear()
            await self._fewer.wait()
