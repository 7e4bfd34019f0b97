"""Where groups go to be stored: a thread of its own, which takes a group over in less time than `trio.to_thread`.

What the store can do at once need not go there (see `haste`).

The Committer knows it as a CommitLane: groups go in on the trio thread, one at a time, and their answers come back
there. So what a host decides about its groups can also be run without threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol, TypeVar

import trio

from delivery import logs
from delivery.errors import HootError, StorageUnavailable
from delivery.storage.base import Append, MessageStore

log = logs.logger(__name__)

A = TypeVar("A")
B = TypeVar("B")
Answers = list[HootError | None]
Settle = Callable[[Answers, float], None]
"""Takes the answers to a group, and the seconds that storing it took."""


class CommitLane(Protocol):
    """Stores groups somewhere else than on the trio thread, from which it is used."""

    def open(self, settle: Settle) -> None:
        """Begin; `settle` is called on the trio thread, once for each group that was put."""

    def put(self, group: Sequence[Append]) -> None:
        """Store a group. The one before has been settled."""

    def at_once(self, item: Append, /) -> Answers | None:
        """Store a group of one batch here and now; None, with nothing done, where that could take long: `put` it."""

    def close(self) -> None:
        """No group will follow. One that is under way is settled all the same."""


class CommitThread:
    """The lane of a real host. `open` starts the thread, which ends after `close`."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._groups: SimpleQueue[Sequence[Append] | None] = SimpleQueue()

    def open(self, settle: Settle) -> None:
        """See `CommitLane.open`."""
        token = trio.lowlevel.current_trio_token()
        threading.Thread(target=self._work, args=(token, settle), name="hoot-commit", daemon=True).start()

    def put(self, group: Sequence[Append]) -> None:
        """See `CommitLane.put`."""
        self._groups.put(group)

    def at_once(self, item: Append, /) -> Answers | None:
        """See `CommitLane.at_once`."""
        return _answered(1, self._store.append_at_once, item)

    def close(self) -> None:
        """See `CommitLane.close`."""
        self._groups.put(None)

    def _work(self, token: trio.lowlevel.TrioToken, settle: Settle) -> None:
        while (group := self._groups.get()) is not None:
            begun = time.monotonic()
            answers = append_all(self._store, group)
            token.run_sync_soon(settle, answers, time.monotonic() - begun)


def append_all(store: MessageStore, group: Sequence[Append]) -> Answers:
    """The store's answers to a group. Blocks."""
    return _answered(len(group), store.append, group)


def _answered(count: int, work: Callable[[A], B], argument: A) -> B | Answers:
    """What the store says; never raises, because a group without answers would stop all others."""
    try:
        return work(argument)
    except HootError as error:
        return [error] * count
    except Exception as error:
        log.exception("the store failed in a way nobody foresaw")
        return [StorageUnavailable(f"the store failed: {type(error).__name__}: {error}")] * count
