"""Tasks that the deliveries of a host have now and then: none keeps one, or a nursery, while nothing happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from delivery import logs

log = logs.logger(__name__)


class Background:
    """Runs tasks while `run` runs. An unexpected error of one costs no other anything."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run what is to be done, until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None

    def start_soon(self, work: Callable[[], Awaitable[object]]) -> None:
        """Have `work` done in a task; not at all when the host ends."""
        if self._nursery is not None:
            self._nursery.start_soon(_guarded, work)


async def _guarded(work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()
    except Exception:
        log.exception("a task of the deliveries ended unexpectedly")
