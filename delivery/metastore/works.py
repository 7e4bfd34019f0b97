"""Work on the metadata that only one may be at, such as a compaction of a queue in its place.

/hoot/works                       persistent, empty; made by the first work
/hoot/works/<what>                Work, ephemeral: who is at it
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from delivery.errors import HootError, InvalidRequest
from delivery.metastore import records
from delivery.metastore.access import Access
from delivery.metastore.ops import Create, NodeExists, NoNode
from delivery.model import check_name

WORKS: Final = f"{records.ROOT}/works"
WAIT_SECONDS: Final = 15.0
"""For whoever is at it: longer than the session of one that was killed lasts."""
_AGAIN_SECONDS: Final = 0.5


class Work(msgspec.Struct, frozen=True):
    """Who is at it."""

    token: str
    who: str
    """For people: process and machine."""


class Works(Access):
    """Taking turns at work that is not to be done twice at once."""

    @contextlib.contextmanager
    def alone(self, work: str, queue: str, seconds: float = WAIT_SECONDS) -> Iterator[Callable[[], None]]:
        """Nobody else is at that work on a queue meanwhile. Raises InvalidRequest if somebody is for so long.

        That holds as long as the ZooKeeper session does. What is given is to be called before each step that another
        one could undo: after a session that was lost it takes the turn again, and raises InvalidRequest where it is
        another's now. Whoever calls it then looks anew at what is there.
        """
        path, what = f"{WORKS}/{work}@{check_name('queue', queue)}", f"{work} of queue {queue!r}"
        mine = Work(secrets.token_hex(8), f"process {os.getpid()} on {socket.gethostname()}")

        def still_alone() -> None:
            if (found := self._work(path, mine)) != mine:
                raise InvalidRequest(f"{found.who} is at the {what} now, since this one's ZooKeeper session had ended")

        end = time.monotonic() + seconds
        while (found := self._work(path, mine)) != mine:
            if time.monotonic() > end:
                raise InvalidRequest(f"{found.who} is at the {what}: wait for its end, and run it again")
            time.sleep(_AGAIN_SECONDS)
        try:
            yield still_alone
        finally:
            with contextlib.suppress(HootError):  # it goes with the session at any rate
                if self._get(path, Work) == mine:
                    self._zk.delete(path)

    def _work(self, path: str, mine: Work) -> Work:
        """Who is at it: `mine`, if it was nobody."""
        while (found := self._get(path, Work)) is None:
            value = records.encode(mine)
            refused = self._apply([Create(path, value, ephemeral=True)], path, value)
            if refused is None:
                return mine
            if isinstance(refused.error, NoNode):
                with contextlib.suppress(NodeExists):
                    self._zk.create(WORKS)
            elif not isinstance(refused.error, NodeExists):
                raise refused.error
        return found
