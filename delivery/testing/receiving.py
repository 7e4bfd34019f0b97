"""The subscriber of the engine in a test: the real one, on the test's own thread instead of threads of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Any, Protocol, cast

import trio

from delivery.metastore.catalog import Catalog
from delivery.metastore.records import ListenerRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.testing.loop import Outcome
from delivery.testing.wire import Wire
from delivery.testing.znodes import MemorySession
from subscriber.dispatch import Dispatcher
from subscriber.listeners import AsyncCall, Concurrency
from subscriber.registration import SubscriberZooKeeper
from subscriber.runtime import EventCallback, Runtime
from subscriber.settings import Settings
from subscriber.strands import Job, Strands
from subscriber.subscriber import Subscriber
from subscriber.subscription import Subscription
from subscriber.unwrapping import only_error


class World(Protocol):
    """The engine, as subscribers see it."""

    wire: Wire

    def session(self) -> MemorySession:
        """A new session."""

    def catalog_of(self, session: MemorySession) -> Catalog:
        """The engine's metadata, by a session."""

    def submit(self, job: Job) -> None:
        """Have a job done by the thread that drives the engine."""

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made in the loop."""

    def hop(self, call: AsyncCall, argument: object) -> None:
        """Await a call in the loop, from a job."""

    def last_id(self, queue: str, partition: int) -> int:
        """Of a partition."""

    def start(self, work: Callable[[], Awaitable[None]]) -> Outcome[None]:
        """Begin a task in the loop."""

    def drive(self, done: Callable[[], bool]) -> None:
        """Let things happen until that is so, time included."""

    def settle(self) -> None:
        """Let everything happen that is due."""

    def clock(self) -> float:
        """Virtual seconds."""

    @property
    def in_listener(self) -> bool:
        """Whether the calling thread is in a callback."""


class LocalDispatcher(Dispatcher):
    """Jobs are done by whoever drives the engine."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.clock = world.clock
        self.task = None
        self._pending = 0
        self._done = trio.Event()
        self._stopped = False

    @property
    def is_here(self) -> bool:
        """See Dispatcher."""
        return self._world.in_listener

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Nothing to do by itself."""
        task_status.started()
        await trio.sleep_forever()

    def submit(self, strand: Hashable, job: Job) -> None:
        """See Dispatcher. All strands are one: there is one thread."""
        self._pending += 1

        def work() -> None:
            try:
                job()
            finally:
                self._world.post(self._one_done)

        self._world.submit(work)

    def strands(self, concurrency: Concurrency) -> Strands:
        """See Dispatcher."""
        return LocalStrands(self.submit)

    def stop(self) -> None:
        """See Dispatcher."""
        self._stopped = True
        self._look()

    @property
    def is_idle(self) -> bool:
        """See Dispatcher."""
        return self._done.is_set()

    async def idle(self) -> None:
        """See Dispatcher."""
        await self._done.wait()

    def hop(self, call: AsyncCall, argument: object) -> None:
        """See Dispatcher."""
        self._world.hop(call, argument)

    def post(self, call: Callable[[], object]) -> None:
        """See Dispatcher."""
        self._world.post(call)

    def _one_done(self) -> None:
        self._pending -= 1
        self._look()

    def _look(self) -> None:
        if self._stopped and not self._pending:
            self._done.set()


class LocalStrands(Strands):
    """What would run side by side runs one after another, in the order of its submission."""

    def __init__(self, submit: Callable[[Hashable, Job], None]) -> None:
        self._submit = submit

    @property
    def is_here(self) -> bool:
        """See Strands; its dispatcher knows."""
        return False

    @property
    def is_idle(self) -> bool:
        """See Strands."""
        return True

    @property
    def abreast(self) -> int:
        """See Strands."""
        return 1

    def worked(self, messages: int, began: float) -> None:
        """See Strands."""

    def submit(self, strand: Hashable, job: Job) -> None:
        """See Strands."""
        self._submit(strand, job)

    def stop(self) -> None:
        """See Strands."""


class LocalHosts:
    """What registering asks of a region host."""

    def __init__(self, world: World) -> None:
        self._world = world

    @contextlib.contextmanager
    def asking(self, queue: str) -> Iterator[Callable[[int], int]]:
        """See subscriber.hosts.Hosts."""
        yield lambda partition: self._world.last_id(queue, partition)


class LocalRegistration(SubscriberZooKeeper):
    """Registers in the engine's tree."""

    def __init__(self, world: World, session: MemorySession, settings: Settings) -> None:
        self._zookeeper, self._name, self._force = cast("Any", session), settings.name, settings.force
        self._member = settings.member_name()
        self._wire, self._catalog = world.wire, world.catalog_of(session)
        self._hosts = cast("Any", LocalHosts(world))

    def _answers(self, listener: ListenerRecord, queue: str) -> bool:
        return self._wire.knows((listener.address, listener.port))


class LocalRuntime(Runtime):
    """A started subscriber, in the engine's loop."""

    _renew_seconds = 86_400.0  # its watches lose nothing

    def __init__(self, world: World, settings: Settings, on_event: EventCallback) -> None:
        self._world = world
        self._looking = False
        self._nursery: trio.Nursery
        super().__init__(settings, on_event)

    def _make_parts(self) -> tuple[ZooKeeperClient, SubscriberZooKeeper, Dispatcher]:
        session = self._world.session()
        registration = LocalRegistration(self._world, session, self._settings)
        return cast("ZooKeeperClient", session), registration, LocalDispatcher(self._world)

    async def add(self, subscriptions: Sequence[Subscription]) -> None:
        """See Runtime. Queues that come are looked for only where some may: each look is a step of the clock."""
        await super().add(subscriptions)
        if self._patterns and not self._looking:
            self._looking = True
            self._nursery.start_soon(self._patterns.run, self._changing)

    async def run(
        self, subscriptions: Sequence[Subscription], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """See Runtime."""
        self._token = trio.lowlevel.current_trio_token()
        if self._stop_wanted:
            self.stop()
        self._address = self._world.wire.listen(self._service)
        try:
            async with trio.open_nursery() as self._nursery:
                nursery = self._nursery
                await self.add(subscriptions)
                nursery.start_soon(self._keep_registered)
                nursery.start_soon(self._service.lapsing.run)
                task_status.started()
                await self._stopped.wait()
                self._take_no_more()
                self._dispatcher.stop()
                await self._dispatcher.idle()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise only_error(group) from None
        finally:
            with trio.CancelScope(shield=True):
                await self._leave()
            self._world.wire.hang_up(self._address)
        if self._error is not None:
            raise self._error


class LocalSubscriber(Subscriber):
    """A Subscriber whose callbacks are called by `settle` and `advance` of its engine."""

    _world: World

    def start(self) -> None:
        """See Subscriber. Messages come with the next `settle`."""
        self._check_startable()
        self._error = None
        runtime = self._runtime = LocalRuntime(self._world, self.settings, self._emit)
        ended = self._ended = threading.Event()
        started = threading.Event()

        class Status:
            def started(self, _value: None = None) -> None:
                started.set()

        async def main() -> None:
            try:
                await runtime.run(list(self.subscriptions.values()), task_status=Status())
            except trio.Cancelled:
                raise
            except BaseException as error:  # noqa: BLE001 - raised by `start` or `run`, in the program's own thread
                self._error = error
            finally:
                self._runtime = None
                ended.set()

        self._world.start(main)
        self._world.drive(lambda: started.is_set() or ended.is_set())
        if not started.is_set() and self._error is not None:
            raise self._error

    def stop(self) -> None:
        """See Subscriber."""
        runtime = self._runtime
        if runtime is None:
            return
        runtime.stop_soon()
        if not self._world.in_listener:
            self._world.drive(self._ended.is_set)

    def run(self) -> None:
        """`start`, unless it was started, have everything delivered that is due, and `stop`."""
        try:
            if self._runtime is None and self._error is None:
                self.start()
            self._world.settle()
        finally:
            self.stop()
        if self._error is not None:
            raise self._error

    def _in_loop(self, call: Callable[[], Awaitable[None]]) -> None:
        outcome = self._world.start(call)
        self._world.drive(lambda: outcome.done)
        outcome.get()

    def _delete(self, queue: str) -> None:
        session = self._world.session()
        LocalRegistration(self._world, session, self.settings).delete_matching(queue)
