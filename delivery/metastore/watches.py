"""Watches that stay: a hint after each change and after each reconnect, for as long as somebody wants it.

ZooKeeper's watches fire once and die with the connection. A `Watch` is set again when it fires and when the connection
is back. It gives its hint only after it is set again, so a reader that reads in full after each hint misses nothing: a
change before the reading is read, a later one fires. How often something changed between two hints is not known.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, Protocol, get_args

from delivery import logs

Hint = Callable[[], None]
Kind = Literal["children", "value"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

IN_FLIGHT_MAX: Final = 64
"""kazoo wakes its connection thread through a pipe that holds 278 requests; a full pipe blocks, past every deadline."""

log = logs.logger(__name__)


class Event(Protocol):
    """What ZooKeeper says when a watch fires."""

    @property
    def type(self) -> str:
        """`NONE` when it is about the connection, not about the znode."""
        ...


class Setter(Protocol):
    """Asks ZooKeeper for one watch; never waits, never raises."""

    def __call__(self, kind: Kind, path: str, fired: Callable[[Event], None], done: Callable[[bool], None]) -> None:
        """Call `done` once: with True when ZooKeeper answered, with False when there is no connection."""
        ...


class Watch:
    """One watched thing and those who want hints about it."""

    __slots__ = ("_owner", "fired", "hints", "kind", "path")

    def __init__(self, owner: Watches, kind: Kind, path: str) -> None:
        self.kind = kind
        self.path = path
        self.hints: list[Hint] = []
        self._owner = owner
        # One object for good: the client drops equal callbacks of one path, so setting a watch twice fires it once.
        self.fired: Callable[[Event], None] = self._fired

    def _fired(self, event: Event) -> None:
        if event.type != "NONE":  # a lost connection: `set_all` follows when it is back
            self._owner.set_again(self)

    def give_hints(self) -> None:
        """Call everybody; one that raises is logged and does not keep the others from being called."""
        for hint in tuple(self.hints):
            try:
                hint()
            except Exception:
                log.exception("the hint about %s failed", self.path)


class Watches:
    """All watches of one client. Thread-safe. Calls hints from the client's threads, never while holding its lock."""

    def __init__(self, setter: Setter) -> None:
        self._setter = setter
        self._lock = threading.Lock()
        self._watches: dict[tuple[Kind, str], Watch] = {}
        self._waiting: deque[Watch] = deque()
        self._setting = 0
        """How many of this round are on their way."""
        self._round = 0
        """A new one begins with each connection. What was on its way over the one before may be heard of only later."""

    def add(self, kind: Kind, path: str, hint: Hint) -> None:
        """From now on `hint` after each change of `path`; the first one as soon as the watch is set."""
        with self._lock:
            watch = self._watches.setdefault((kind, path), Watch(self, kind, path))
            watch.hints.append(hint)
        self.set_again(watch)

    def remove(self, path: str, hint: Hint | None = None) -> None:
        """No more calls of `hint`, or of any, about `path`, but for those under way. Fine when there are none."""
        with self._lock:
            for kind in KINDS:
                if (watch := self._watches.get((kind, path))) is not None:
                    watch.hints = [other for other in watch.hints if hint is not None and other != hint]

    def set_again(self, watch: Watch) -> None:
        """Set a watch that fired or is new. One that nobody wants any more is forgotten here, when it fired."""
        with self._lock:
            if not watch.hints:
                if self._watches.get((watch.kind, watch.path)) is watch:
                    del self._watches[watch.kind, watch.path]
                return
            self._waiting.append(watch)
        self._set_waiting()

    def set_all(self) -> None:
        """Set all of them on a new connection; each gives its hint."""
        with self._lock:
            self._watches = {key: watch for key, watch in self._watches.items() if watch.hints}
            self._waiting = deque(self._watches.values())
            self._setting, self._round = 0, self._round + 1
        self._set_waiting()

    def _set_waiting(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._setting >= IN_FLIGHT_MAX:
                    return
                watch = self._waiting.popleft()
                self._setting += 1
                done = partial(self._done, watch, self._round)
            self._setter(watch.kind, watch.path, watch.fired, done)

    def _done(self, watch: Watch, number: int, is_set: bool) -> None:
        with self._lock:
            self._setting -= number == self._round
        if is_set:  # otherwise `set_all` follows when the connection is back
            watch.give_hints()
            self._set_waiting()
