"""Telling an application of events: those of a subscription one after another, in the order in which they happened.

What a push comes to is told on the thread that handles it, which waits for that. A change of state is noticed by the
loop, which waits for nobody: it is told by the next job of the subscription's strand. So a callback that hangs holds up
its own subscription, as one for messages does, and no other one; and as of one for messages, the subscription's verdict
tells where it hangs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from delivery import logs
from subscriber.strands import Job
from subscriber.subscription import Event

EVENTS_MAX: Final = 100
"""Changes of state of a subscription that wait to be told. Of more than that only the last ones are told."""

log = logs.logger(__name__)

Call = Callable[[Event], object]
Submit = Callable[[Hashable, Job], None]
"""Has a job done after those of its strand before it."""
Looked = Callable[[str, int], AbstractContextManager[None]]
"""To be entered while the application is called for a partition of a queue (looking.Lookout.at)."""

_NO_PARTITION: Final = -1


class Teller:
    """Tells of one subscription. Thread-safe."""

    def __init__(self, call: Call) -> None:
        """`call` must not raise."""
        self._call = call
        self._turn = threading.RLock()
        """Held by whoever tells."""
        self._waiting: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.users = 0
        """Who tells by it, or is about to."""
        self.is_over = False
        """The subscription has ended, and none of its name has come since."""

    def add(self, event: Event) -> bool:
        """Keep an event for the next `tell`; whether it is the first, so that somebody has to be asked for that."""
        if len(self._waiting) == EVENTS_MAX:
            log.warning("the callbacks for events of queue %s take so long that %r is not told of", event.queue,
                        self._waiting[0].kind)  # fmt: skip
        self._waiting.append(event)
        return len(self._waiting) == 1

    def tell(self, event: Event | None = None) -> None:
        """Tell of what is kept, then of `event`; returns when that is done."""
        with self._turn:
            while self._waiting:
                self._call(self._waiting.popleft())
            if event is not None:
                self._call(event)


class Telling:
    """Tells of all subscriptions of a started subscriber."""

    def __init__(
        self, call: Call, submit: Submit, looked: Looked, on_end: Callable[[BaseException], object]
    ) -> None:  # fmt: skip
        """`on_end` hears of what comes out of a callback without being an Exception, as SystemExit does."""
        self._call, self._submit, self._looked, self._on_end = call, submit, looked, on_end
        self._tellers: dict[str, Teller] = {}
        """By queue."""
        self._lock = threading.Lock()
        """For the tellers' users and ends; held while nobody is called."""

    def tell(self, event: Event) -> None:
        """Tell of it now, behind what is kept, on a thread that calls listeners."""
        self._tell(event.queue, self._use(event.queue), event)

    def tell_soon(self, event: Event, strand: Hashable) -> None:
        """Have it told as a job of `strand`, behind the callbacks for messages there. On the trio thread."""
        teller = self._use(event.queue)
        teller.is_over = False
        if teller.add(event):
            self._submit(strand, partial(self._tell, event.queue, teller))
        else:
            self._let_go(event.queue, teller)

    def forget(self, queue: str) -> None:
        """Nothing more happens to a subscription, but for what is told already.

        What waits still is told before anything of another one that comes in its place.
        """
        teller = self._use(queue)
        teller.is_over = True
        self._let_go(queue, teller)

    def _tell(self, queue: str, teller: Teller, event: Event | None = None) -> None:
        try:
            teller.tell(event)
        finally:
            self._let_go(queue, teller)

    def _use(self, queue: str) -> Teller:
        with self._lock:
            found = self._tellers.get(queue)
            if found is None:
                found = self._tellers[queue] = Teller(self._call_safely)
            found.users += 1
            return found

    def _let_go(self, queue: str, teller: Teller) -> None:
        with self._lock:
            teller.users -= 1
            if teller.is_over and not teller.users:
                del self._tellers[queue]

    def _call_safely(self, event: Event) -> None:
        partition = _NO_PARTITION if event.partition is None else event.partition
        try:
            with self._looked(event.queue, partition):
                self._call(event)
        except Exception:
            log.exception("a callback for events failed")
        except BaseException as error:  # noqa: BLE001 - what ends a program ends the subscriber, not its thread
            self._on_end(error)
