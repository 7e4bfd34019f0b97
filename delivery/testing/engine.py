"""The Engine: Hoot in the memory of a test, on a clock that the test moves."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, Self

from delivery import wall
from delivery.client.client import Client
from delivery.errors import InvalidRequest
from delivery.metastore.catalog import Catalog
from delivery.metastore.tables.memory import MemoryData, MemoryMetaStore
from delivery.testing.checks import Checks
from delivery.testing.client import LocalClient
from delivery.testing.history import History
from delivery.testing.host import LocalHost
from delivery.testing.loop import THREAD_SECONDS, Outcome, StillLoop
from delivery.testing.partitions import LocalPartitions
from delivery.testing.receiving import LocalSubscriber
from delivery.testing.wire import Wire
from delivery.testing.znodes import MemorySession, Tree
from subscriber.listeners import AsyncCall
from subscriber.strands import Job
from subscriber.subscriber import Subscriber

LISTENER_SECONDS: Final = 86_400.0
"""Of virtual time: who waits longer in an async listener waits for something else than time."""


class Engine(Checks):
    """Queues, a region host and subscribers in this process, without ZooKeeper, sockets or a clock of its own.

        with Engine() as engine:
            client, billing = engine.connect(), engine.subscriber("billing")

    Nothing is delivered, and no time passes, but in `settle` and `advance`: these call the listeners, on the thread
    that calls them. Close it, or use it as a context manager; one engine at a time in a process.
    """

    def __init__(self, start: datetime | None = None) -> None:
        """`start` is what the clock says at first, with a time zone; by default what the machine's says."""
        if start is not None and start.tzinfo is None:
            raise InvalidRequest(f"the start {start} has no time zone: use datetime(…, tzinfo=UTC)")
        self._origin = wall.seconds() if start is None else start.timestamp()
        self._loop = StillLoop()
        self._wall = wall.use(self._seconds)
        self._tree, self._data = Tree(), MemoryData()
        self._jobs: deque[Job] = deque()
        self._working: int | None = None
        """The thread that is in a listener."""
        self._adopted: list[tuple[Subscriber, type[Subscriber]]] = []
        self._clients: list[Client] = []
        self._closed = False
        self._history = History(lambda: self._loop.now)
        self.wire = Wire(self._history)
        session = self.session()
        self._catalog = self.catalog_of(session)
        self._catalog.ensure_layout()
        self._partitions = LocalPartitions(self._catalog, wall.ms)
        self._host = self._loop.call(lambda: LocalHost(session, self._catalog, self._partitions, self.wire))
        self._serving = self._loop.start(lambda: self._host.run(wall.ms()))
        self._loop.turn()
        super().__init__(self._history, self.connect)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything that belongs to it. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        for subscriber, kind in self._adopted:
            subscriber.stop()
            subscriber.__class__ = kind
            for subscription in subscriber.subscriptions.values():
                subscription.state, subscription.error = "new", None
        for client in self._clients:
            client.close()
        self._loop.close()
        wall.use(self._wall)

    # -- what an application works with

    def connect(self, zookeeper: str = "", **_: float) -> Client:
        """A client, as delivery.connect gives one; its arguments are taken, and mean nothing here."""
        session = self.session()
        made = LocalClient(session, self.catalog_of(session), self._loop, self._partitions)
        self._clients.append(made)
        return made

    def subscriber(self, name: str, zookeeper: str = "127.0.0.1:2181", **settings: Any) -> Subscriber:
        """A subscriber, as subscriber.Subscriber with these arguments: `start` it, use `with`, or `run` it."""
        made = LocalSubscriber(name, zookeeper, **settings)
        made._world = self  # noqa: SLF001 - its own part of this package
        return made

    def adopt(self, subscriber: Subscriber) -> Subscriber:
        """Have a subscriber that an application made run here, until the engine is closed; gives it back.

        For those that a module makes when it is imported. It must not run yet.
        """
        subscriber._check_startable()  # noqa: SLF001 - as `start` would
        self._adopted.append((subscriber, type(subscriber)))
        subscriber.__class__ = (
            LocalSubscriber  # it has to be this very object: the application has its own names for it
        )
        subscriber._world = self  # type: ignore[attr-defined] # noqa: SLF001
        return subscriber

    # -- time

    @property
    def now(self) -> datetime:
        """What the engine's clock says."""
        return datetime.fromtimestamp(self._seconds(), UTC)

    def settle(self) -> None:
        """Deliver everything that is due, and what becomes due by that, until nothing happens any more.

        No time passes, unless an async listener sleeps: then as much as it does. Raises Restless where it has no end.
        """
        self._check_caller()
        self._happen(self._loop.now)

    def advance(self, seconds: float) -> None:
        """Let so much time pass, with everything that falls into it: retries, timeouts, and what follows of them."""
        self._check_caller()
        if not 0 <= seconds < math.inf:
            raise InvalidRequest(f"time goes forward by a number of seconds, not by {seconds}")
        until = self._loop.now + seconds
        self._happen(until)

    # -- what its parts need (receiving.World)

    def session(self) -> MemorySession:
        """A new session."""
        return MemorySession(self._tree)

    def catalog_of(self, session: MemorySession) -> Catalog:
        """The metadata, by a session."""
        return Catalog(session, MemoryMetaStore(self._data))

    def submit(self, job: Job) -> None:
        """Have a job done by who drives the engine."""
        self._jobs.append(job)

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made in the loop."""
        self._loop.post(call)

    def start(self, work: Callable[[], Awaitable[None]]) -> Outcome[None]:
        """Begin a task in the loop."""
        return self._loop.start(work)

    def last_id(self, queue: str, partition: int) -> int:
        """Of a partition."""
        return self._loop.call(lambda: self._partitions.writer(queue, partition).owned.watermark)

    def clock(self) -> float:
        """Virtual seconds since the start."""
        return self._loop.now

    @property
    def in_listener(self) -> bool:
        """Whether the calling thread is in a callback."""
        return self._working == threading.get_ident() or self._loop.is_here

    def drive(self, done: Callable[[], bool]) -> None:
        """Let things happen until that is so, time included."""
        while not done():
            self._loop.turn()
            if not done() and not self._do_a_job() and not self._wait_or_jump(math.inf):
                raise AssertionError("the engine waits for something that will never happen")

    def hop(self, call: AsyncCall, argument: object) -> None:
        """Await a call in the loop, from a job. Time passes where it waits for some."""
        outcome = self._loop.start(lambda: call(argument))
        until, patience = self._loop.now + LISTENER_SECONDS, monotonic() + THREAD_SECONDS
        while True:
            self._loop.turn()
            if outcome.done:
                outcome.get()
                return
            if not self._wait_or_jump(until) or monotonic() > patience:
                self._loop.post(outcome.scope.cancel)
                raise TimeoutError("the async listener waits for something that nothing brings in a test")

    # -- inside

    def _seconds(self) -> float:
        return self._origin + self._loop.now

    def _happen(self, until: float) -> None:
        while True:
            while self._do_a_job():
                self._history.check_restless()
            self._loop.turn()
            if self._serving.done:
                self._serving.get()
            if not self._jobs and not self._hand_over() and not self._wait_or_jump(until):
                break
        self._loop.now = max(self._loop.now, until)
        self._loop.start(self._host.keeper.flush)
        self._loop.turn()

    def _hand_over(self) -> bool:
        """Give a listener the next push; False when there is none."""
        push = self.wire.next()
        if push is not None:
            self._loop.call(push)
        return push is not None

    def _do_a_job(self) -> bool:
        """Call listeners; False when nobody is to be called."""
        if not self._jobs:
            return False
        before, self._working = self._working, threading.get_ident()
        try:
            self._jobs.popleft()()
        finally:
            self._working = before
        return True

    def _wait_or_jump(self, until: float) -> bool:
        """Go to the next moment at which something happens; False when that is after `until`, or never."""
        if self._loop.has_threads:
            self._loop.wait_for_threads()
            return True
        if self._loop.next_at > until or self._loop.next_at == math.inf:
            return False
        self._loop.now = max(self._loop.now, self._loop.next_at)
        return True

    def _check_caller(self) -> None:
        if self._closed:
            raise InvalidRequest("the engine is closed")
        if self.in_listener:
            raise InvalidRequest("a listener is called by `settle` or `advance`, and cannot call them itself")
