"""Answering polls: so many at once, and those that may wait as soon as there is something to answer with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import trio
from starlette.responses import Response
from starlette.types import Receive

from delivery.api.rest.codecs import Codec
from delivery.api.rest.reading import Reading
from delivery.api.rest.streams import StreamResponse, encoded
from delivery.api.rest.waits import Waits
from delivery.errors import Throttled
from delivery.messaging.polling import Stretch

POLLS_MAX: Final = 256
"""Answers on their way at once; each holds two blocks and what the next is made of."""


class Polls:
    """For the trio thread."""

    def __init__(self, waits: Waits) -> None:
        self.waits = waits
        self._answering = trio.Semaphore(POLLS_MAX)

    async def begin(self, *, patient: bool = False) -> Slot:
        """Room for an answer. Raises Throttled, unless the client is `patient` and waits for it."""
        try:
            self._answering.acquire_nowait()
        except trio.WouldBlock:
            if not patient:
                raise Throttled(f"{POLLS_MAX} polls are being answered at this moment") from None
            await self._answering.acquire()
        return Slot(self._answering)

    async def answer(self, slot: Slot, reading: Reading, codec: Codec, seconds: float, receive: Receive) -> Response:
        """What there is for a reading, at the latest after `seconds`; gives the slot back when all of it is sent."""
        stretches = reading.stretches()
        first = await anext(stretches, None)
        if first is None and seconds:
            first, stretches = await self._awaited(slot, reading, trio.current_time() + seconds, receive)
        blocks = encoded(first, stretches, codec.blocks())
        return StreamResponse(await anext(blocks), blocks, codec.content_type, slot.give_back)

    async def _awaited(
        self, slot: Slot, reading: Reading, deadline: float, receive: Receive
    ) -> tuple[Stretch | None, AsyncIterator[Stretch]]:  # fmt: skip
        """What comes first of what was not there yet, if anything comes, and what follows it."""
        with self.waits.one():
            while True:
                slot.give_back()
                news = await self.waits.for_news(reading, deadline, receive)
                await slot.take_again()
                if news:
                    await reading.renew()
                stretches = reading.stretches()
                first = await anext(stretches, None)
                if first is not None or not news:
                    return first, stretches


class Slot:
    """One of the answers that are on their way at once."""

    def __init__(self, answering: trio.Semaphore) -> None:
        """It has been acquired."""
        self._answering, self._held = answering, True

    def give_back(self) -> None:
        """Twice is fine."""
        if self._held:
            self._held = False
            self._answering.release()

    async def take_again(self) -> None:
        """Wait for room: whoever has waited is not refused."""
        await self._answering.acquire()
        self._held = True
