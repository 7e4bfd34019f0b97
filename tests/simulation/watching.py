"""The one-shot watches of a MetaStore, which looks in a strand of the machine instead of in a thread of its own."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from delivery.metastore.tables.watching import RETRY_SECONDS, OneShots, ValueWatches
from tests.simulation.machine import Machine, here


class _Strands:
    """Takes hints as the queue to the thread does."""

    def __init__(self, shots: StrandShots) -> None:
        self._shots = shots

    def put(self, shot: Any) -> None:
        """Look at what a watch hints at."""
        machine = here.get()
        machine.start_strand(partial(self._look, machine, shot), lambda _: None)

    def _look(self, machine: Machine, shot: Any) -> None:
        failed: set[Any] = set()
        self._shots._look_at([shot], failed)
        if failed:
            machine.act_later(RETRY_SECONDS, partial(self.put, shot))


class StrandShots(OneShots):
    """See OneShots."""

    def __init__(self, watches: ValueWatches) -> None:
        super().__init__(watches)
        self.hinted = cast("Any", _Strands(self))
        self._thread = cast("Any", self)  # so that none is started
