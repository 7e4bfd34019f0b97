"""trio's loop without an outside: no sockets, no selector, no instruments. In a simulation nothing comes from there.

The loop looks outside once a turn, and is woken by a byte through a pair of sockets: together a tenth of a run.
"""

from __future__ import annotations

from typing import Any

import trio


class _NoOutside:
    """In the place of trio's I/O manager."""

    def get_events(self, _seconds: float) -> tuple[()]:
        """Nothing has happened."""
        return ()

    def process_events(self, _events: tuple[()]) -> None:
        """Nothing to do about it."""

    def force_wakeup(self) -> None:
        """It never sleeps."""

    def close(self) -> None:
        """Nothing is open."""


class _Wakeup:
    """In the place of the sockets by which others wake the task that makes the calls of `TrioToken.run_sync_soon`.

    That task has looked for calls when it falls asleep, and without threads no call comes in between.
    """

    def __init__(self) -> None:
        self._sleeper: Any = None

    def wakeup_thread_and_signal_safe(self) -> None:
        """Wake it if it sleeps."""
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None:
            trio.lowlevel.reschedule(sleeper)

    async def wait_woken(self) -> None:
        """Until then."""
        self._sleeper = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def close(self) -> None:
        """Nothing is open."""

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._sleeper = None
        return trio.lowlevel.Abort.SUCCEEDED


def shut_off(runner: Any) -> None:
    """Take the outside, and the instruments, for which it asks several times a turn, from a loop that is to begin."""
    runner.io_manager.close()
    runner.entry_queue.wakeup.close()
    runner.io_manager, runner.entry_queue.wakeup, runner.instruments = _NoOutside(), _Wakeup(), {}
