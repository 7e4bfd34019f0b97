"""The Gate: what all senders of a subscription on a host pass before they push. `pace` decides, here is the waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from delivery.dispatch.bell import Bell
from delivery.dispatch.guarding import tell_safely
from delivery.dispatch.pace import Pace
from delivery.metastore.flow import Flow

Tell = Callable[[], None]
StartSoon = Callable[[Callable[[], Awaitable[None]]], object]
"""Has something done in a task."""


class Gate:
    """Open, unless somebody regulates it. Those who wait hear that it opened once somebody lets it `serve` them."""

    def __init__(self) -> None:
        self._pace = Pace()
        self.flow = Flow()
        """What is asked for; its limits on windows are the senders' business."""
        self._waiting: dict[Tell, None] = {}
        self._changed = Bell()
        self._start_soon: StartSoon | None = None
        self._telling = False

    def pause(self, seconds: float | None) -> None:
        """See Pace.pause."""
        self._pace.pause(seconds, trio.current_time())
        self._changed.ring()

    def limit(self, flow: Flow, share: float) -> None:
        """See Pace.limit."""
        self.flow = flow
        self._pace.limit(flow, share)
        self._changed.ring()

    @property
    def largest(self) -> tuple[float, float]:
        """Messages and bytes of a push."""
        return self._pace.largest

    def sent(self, messages: int, size: int) -> None:
        """A push went out."""
        if self._pace.regulates:
            self._pace.sent(messages, size, trio.current_time())

    def is_open(self, tell: Tell) -> bool:
        """Whether a push may go out now. If not, `tell` is called once when one may, in the order of asking."""
        if not self._pace.regulates or not self._pace.delay(trio.current_time()):
            return True
        if not self._waiting:
            self._changed.ring()
        self._waiting.setdefault(tell)
        self._tell_soon()
        return False

    def holds(self, tell: Tell) -> bool:
        """Whether it waits to be told that the gate is open."""
        return tell in self._waiting

    def forget(self, tell: Tell) -> None:
        """Tell it no more."""
        self._waiting.pop(tell, None)

    def serve(self, start_soon: StartSoon) -> None:
        """From now on those who wait are told, by a task that is there only while somebody does."""
        self._start_soon = start_soon
        self._tell_soon()

    def end(self) -> None:
        """Nobody waits any more, or is told."""
        self._start_soon = None
        self._waiting.clear()
        self._changed.ring()

    def _tell_soon(self) -> None:
        if self._waiting and self._start_soon is not None and not self._telling:
            self._telling = True
            self._start_soon(self._tell)

    async def _tell(self) -> None:
        while self._waiting:
            delay = self._pace.delay(trio.current_time())
            if delay:
                with trio.move_on_after(delay):
                    await self._changed.wait()
            else:
                tell = next(iter(self._waiting))
                del self._waiting[tell]
                tell_safely(tell, "the gate is open")
                await trio.lowlevel.checkpoint()
        self._telling = False
