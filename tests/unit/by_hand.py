"""Messages that are acknowledged by hand: a real worker and a real subscriber's service, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from delivery.dispatch.worker import Begin
from delivery.metastore.policy import Order, RetryPolicy
from subscriber import ManualMessage
from tests.dispatch import simulated
from tests.unit.by_key import Site

LIMIT = 30.0


def policy(order: Order = "partition", **more: Any) -> RetryPolicy:
    given = {"order": order, "first_seconds": 10, "jitter": 0, "ack_timeout_seconds": LIMIT, **more}
    return RetryPolicy(**given)


class Desk:
    """A partition whose messages are acknowledged by hand, and what its listener got."""

    def __init__(self, batches: list[bytes], retry: RetryPolicy) -> None:
        self.got: list[ManualMessage] = []
        self.times: list[float] = []
        self.site = Site(batches, self._take, Begin(0, 1, retry), manual=True)

    def _take(self, message: Any) -> None:
        self.got.append(message)
        self.times.append(trio.current_time())

    @property
    def parked(self) -> list[tuple[tuple[int, ...], int]]:
        """By key the messages, and how often the first one failed."""
        return [(key.ids, key.failures) for key in self.site.ledger.parked]

    @property
    def numbers(self) -> list[int]:
        return [one.number for one in self.got]

    def last(self, number: int) -> ManualMessage:
        return next(one for one in reversed(self.got) if one.number == number)

    def play(self, story: Callable[[], Any], seconds: float = 10_000) -> None:
        """Tell the story while the worker works."""

        async def run() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.site.run, seconds)
                await trio.sleep(1)
                await story()
                nursery.cancel_scope.cancel()

        simulated(run)
