"""One-shot watches (seed 001, `get` with a watcher) on top of hints that something may have changed.

A hint comes on a thread that must not wait, says nothing but a path, and may be for nothing: after a reconnect, say. So
one thread per store looks at what is hinted at, and tells the watcher only when the entry is another than it had seen.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from delivery import logs
from delivery.errors import HootError, MetadataUnavailable, Throttled
from delivery.metastore.tables.base import WATCHES_MAX, Found, ToWatch, Watcher, WatchEvent
from delivery.metastore.watches import Hint

RETRY_SECONDS: Final = 1.0
"""After a look that failed while the connection was thought to be fine."""

LOOKS_AT_ONCE: Final = 1000
"""As many as are hinted at when the connection is back, or when thousands were added, are read together."""

POLL_SECONDS: Final = 1.0
"""Between two looks at all that is watched where nobody gives hints; so much longer again for each LOOKS_AT_ONCE."""

log = logs.logger(__name__)

Look = Callable[[Sequence[str]], list[Found]]
"""What is under these keys of a table now."""


class ValueWatches(Protocol):
    """Standing watches, as `ZooKeeperClient` has them."""

    def watch_value(self, path: str, hint: Hint) -> None:
        """Call `hint` once soon, and whenever the value of `path` may have changed."""
        ...

    def unwatch(self, path: str, hint: Hint | None = None) -> None:
        """No more of this hint."""
        ...


class _OneShot:
    """One watcher, what it has seen, and how to look again. There may be thousands."""

    __slots__ = ("_owner", "hint", "key", "look", "path", "seen", "watcher")

    def __init__(self, owner: OneShots, path: str, look: Look, to_watch: ToWatch) -> None:
        self.path, self.look = path, look
        self.key, self.seen, self.watcher = to_watch
        self._owner = owner
        self.hint: Hint = self._hinted  # one object for good, so that it can be taken off again

    def _hinted(self) -> None:
        self._owner.hinted.put(self)


class OneShots:
    """The one-shot watches of one store. Thread-safe. Its thread begins with the first watch and ends with `close`."""

    def __init__(self, watches: ValueWatches) -> None:
        self.hinted: queue.SimpleQueue[_OneShot | None] = queue.SimpleQueue()
        self._watches = watches
        self._lock = threading.Lock()
        self._armed: set[_OneShot] = set()
        self._thread: threading.Thread | None = None

    def add(self, watches: Sequence[ToWatch], path: Callable[[str], str], look: Look) -> None:
        """Call each watcher once when what `look` finds under its key, at its `path`, is no longer what was seen.

        Raises Throttled when they would be too many; none of them is called then.
        """
        shots = [_OneShot(self, path(one[0]), look, one) for one in watches]
        with self._lock:
            if len(self._armed) + len(shots) > WATCHES_MAX:
                raise Throttled(f"more than {WATCHES_MAX} keys would be watched")
            self._armed.update(shots)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="metastore-watches", daemon=True)
                self._thread.start()
        for shot in shots:
            self._watches.watch_value(shot.path, shot.hint)

    def close(self) -> None:
        """Call nobody any more. Does not wait for a watcher that is being called."""
        with self._lock:
            armed, self._armed = self._armed, set()
        for shot in armed:
            self._watches.unwatch(shot.path, shot.hint)
        self.hinted.put(None)

    def _run(self) -> None:
        failed: set[_OneShot] = set()
        due = math.inf  # however many hints there are about others meanwhile
        while True:
            try:
                shots = self._next(max(0.0, due - time.monotonic()) if failed else None)
            except queue.Empty:
                shots, due = [], -math.inf
            if shots is None:
                return
            if time.monotonic() >= due:
                shots, failed, due = [*shots, *failed], set(), math.inf
            try:
                self._look_at(shots, failed)
            except Exception:
                log.exception("what is watched could not be looked at; it is looked at again")
                failed.update(shots)
            due = min(due, time.monotonic() + RETRY_SECONDS) if failed else math.inf

    def _next(self, timeout: float | None) -> list[_OneShot] | None:
        """All that is hinted at by now, after waiting for the first; None at the end. Raises queue.Empty."""
        shots: list[_OneShot] = []
        shot = self.hinted.get(timeout=timeout)
        while shot is not None:
            shots.append(shot)
            if len(shots) == LOOKS_AT_ONCE or self.hinted.empty():
                return shots
            shot = self.hinted.get()
        return None

    def _look_at(self, shots: Iterable[_OneShot], failed: set[_OneShot]) -> None:
        looks: dict[Look, list[_OneShot]] = {}
        for shot in dict.fromkeys(shots):
            if shot in self._armed:
                looks.setdefault(shot.look, []).append(shot)
        for look, those in looks.items():
            try:
                found = look([shot.key for shot in those])
            except HootError as error:
                log.debug("the watched %s and %d more could not be read: %s", those[0].path, len(those) - 1, error)
                if len(those) == 1 or isinstance(error, MetadataUnavailable):
                    failed.update(those)
                else:  # it may be the fault of one
                    for shot in those:
                        self._look_at([shot], failed)
                continue
            for shot, now in zip(those, found, strict=True):
                self._tell(shot, now)

    def _tell(self, shot: _OneShot, now: Found) -> None:
        with self._lock:
            if now == shot.seen or shot not in self._armed:
                return
            self._armed.discard(shot)
        self._watches.unwatch(shot.path, shot.hint)
        tell(shot.watcher, event_between(shot.seen, now))


class PolledShots(OneShots):
    """The one-shot watches of a store that gives no hints: every entry is looked at again and again.

    A change is told up to a second late, and a second more for each thousand that are watched.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(_NoHints())
        self._seconds = seconds
        self._turn: list[_OneShot] = []
        """Those of this round that were not looked at yet."""

    def _next(self, timeout: float | None) -> list[_OneShot] | None:
        """Those to be looked at now, None at the end. Raises queue.Empty when what failed is due again."""
        pause = 0.0 if self._turn else self._seconds * (1 + len(self._armed) / LOOKS_AT_ONCE)
        with contextlib.suppress(queue.Empty):
            if self.hinted.get(timeout=pause) is None:
                return None
        if not self._turn:
            if timeout is not None:
                raise queue.Empty
            with self._lock:
                self._turn = list(self._armed)
        now, self._turn = self._turn[:LOOKS_AT_ONCE], self._turn[LOOKS_AT_ONCE:]
        return now


class _NoHints:
    """Where no hint comes from."""

    def watch_value(self, path: str, hint: Hint) -> None:
        """See ValueWatches."""

    def unwatch(self, path: str, hint: Hint | None = None) -> None:
        """See ValueWatches."""


def event_between(seen: Found, now: Found) -> WatchEvent:
    """What happened to an entry that was `seen` and is another `now`."""
    if now is None:
        return WatchEvent.DELETED
    return WatchEvent.CREATED if seen is None else WatchEvent.CHANGED


def tell(watcher: Watcher, event: WatchEvent) -> None:
    """Call a watcher; one that raises is logged."""
    try:
        watcher(event)
    except Exception:
        log.exception("the watcher of an entry failed")
