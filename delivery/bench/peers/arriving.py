"""Bodies that come slowly, for publishers in an asyncio loop: its own sleeps are a millisecond late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable


async def arriving(bodies: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Each of them, as soon as a thread got it."""
    loop = asyncio.get_running_loop()
    come: asyncio.Queue[bytes | None] = asyncio.Queue()

    def work() -> None:
        for body in bodies:
            loop.call_soon_threadsafe(come.put_nowait, body)
        loop.call_soon_threadsafe(come.put_nowait, None)

    threading.Thread(target=work, name="arriving", daemon=True).start()
    while (body := await come.get()) is not None:
        yield body
