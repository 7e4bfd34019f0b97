"""From kazoo's threads to the trio thread: hints and news of the connection are handed over and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import trio


class Doorbell:
    """Rung from any thread, heard on the trio thread it was made on. Ringing twice before it is heard counts once."""

    def __init__(self) -> None:
        """Call on the trio thread."""
        self._token = trio.lowlevel.current_trio_token()
        self._rung = trio.Event()

    def ring(self) -> None:
        """Wake whoever waits. Thread-safe, returns at once; does nothing when the trio program is over."""
        self.post(self._set)

    def post(self, call: Callable[[], None]) -> None:
        """Run a short synchronous `call` on the trio thread, soon; dropped when the trio program is over."""
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            return

    async def wait(self) -> None:
        """Return when it was rung since the last return."""
        await self._rung.wait()
        self._rung = trio.Event()

    def _set(self) -> None:
        self._rung.set()
