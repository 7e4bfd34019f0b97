"""One-shot watches (seed 001, `get` with a watcher) on top of hints that something may have changed.

A hint comes on a thread that must not wait, says nothing but a path, and may be for nothing: after a reconnect, say. So
one thread per store looks at what is hinted at, and tells the watcher only when the entry is another than it had seen.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final, Protocol

from delivery.errors import HootError, Throttled
from delivery.metastore.tables.base import WATCHES_MAX, Found, Watcher, WatchEvent
from delivery.metastore.watches import Hint

RETRY_SECONDS: Final = 1.0
"""After a look that failed while the connection was thought to be fine."""

log = logging.getLogger(__name__)


class ValueWatches(Protocol):
    """Standing watches, as `ZooKeeperClient` has them."""

    def watch_value(self, path: str, hint: Hint) -> None:
        """Call `hint` once soon, and whenever the value of `path` may have changed."""
        ...

    def unwatch(self, path: str, hint: Hint | None = None) -> None:
        """No more of this hint."""
        ...


class _OneShot:
    """One watcher, what it has seen, and how to look again."""

    def __init__(self, owner: OneShots, path: str, seen: Found, look: Callable[[], Found], watcher: Watcher) -> None:
        self.path = path
        self.watcher = watcher
        self._owner = owner
        self._seen = seen
        self._look = look
        self.hint: Hint = self._hinted  # one object for good, so that it can be taken off again

    def event(self) -> WatchEvent | None:
        """What has happened since, None when nothing has."""
        now = self._look()
        return None if now == self._seen else event_between(self._seen, now)

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

    def add(self, path: str, seen: Found, look: Callable[[], Found], watcher: Watcher) -> None:
        """Call `watcher` once when what `look` finds at `path` is no longer what was `seen`. Raises Throttled."""
        shot = _OneShot(self, path, seen, look, watcher)
        with self._lock:
            if len(self._armed) >= WATCHES_MAX:
                raise Throttled(f"more than {WATCHES_MAX} keys are watched")
            self._armed.add(shot)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="metastore-watches", daemon=True)
                self._thread.start()
        self._watches.watch_value(path, shot.hint)

    def close(self) -> None:
        """Call nobody any more. Does not wait for a watcher that is being called."""
        with self._lock:
            armed, self._armed = self._armed, set()
        for shot in armed:
            self._watches.unwatch(shot.path, shot.hint)
        self.hinted.put(None)

    def _run(self) -> None:
        failed: set[_OneShot] = set()
        while True:
            try:
                shot = self.hinted.get(timeout=RETRY_SECONDS if failed else None)
            except queue.Empty:
                again, failed = failed, set()
                for one in again:
                    self._look_at(one, failed)
                continue
            if shot is None:
                return
            self._look_at(shot, failed)

    def _look_at(self, shot: _OneShot, failed: set[_OneShot]) -> None:
        if shot not in self._armed:
            return
        try:
            event = shot.event()
        except HootError as error:
            log.debug("the watched %s could not be read: %s", shot.path, error)
            failed.add(shot)
            return
        with self._lock:
            if event is None or shot not in self._armed:
                return
            self._armed.discard(shot)
        self._watches.unwatch(shot.path, shot.hint)
        tell(shot.watcher, event)


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
