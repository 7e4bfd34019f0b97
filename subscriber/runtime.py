"""The Runtime: one started subscriber, from listening and registering to the end of its last callback."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import trio

from delivery.errors import Closed, HootError, InvalidRequest, SubscriptionBusy
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.state import State as ConnectionState
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.rpc.server import ServerLimits, ThriftServer, open_listeners
from subscriber.dispatch import Dispatcher
from subscriber.registration import ENDED, SubscriberZooKeeper
from subscriber.request import Request
from subscriber.service import Attachment, Counters, ListenerService
from subscriber.settings import Settings
from subscriber.subscription import Event, Kind, Subscription

log = logging.getLogger(__name__)

R = TypeVar("R")
EventCallback = Callable[[Event], object]

_IDLE_SECONDS = 86_400.0
"""A region host keeps its connection also while there is nothing to push."""
_RENEW_SECONDS = 30.0
"""How often the registration is looked at without any hint."""
_RENEW_PAUSE_SECONDS = 1.0
"""After ZooKeeper could not be asked."""
_DEREGISTER_SECONDS = 10.0


class Runtime:
    """Owns the port, the dispatch thread and the ZooKeeper session while `run` runs. Runs once."""

    def __init__(self, settings: Settings, on_event: EventCallback) -> None:
        """`on_event` is called on the dispatch thread."""
        self._settings, self._on_event = settings, on_event
        self._zookeeper = ZooKeeperClient(settings.zookeeper, session_timeout=settings.session_timeout_seconds)
        self._registration = SubscriberZooKeeper(self._zookeeper, settings.name, force=settings.force)
        self._dispatcher = Dispatcher()
        self._service = ListenerService(settings.name, self._dispatcher, self._listener_failed)
        self._changing = trio.Lock()
        self._hinted = trio.Event()
        self._stopped = trio.Event()
        self._error: BaseException | None = None
        self._address: tuple[str, int] = ("", 0)
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def counters(self) -> Counters:
        """Pushes so far, by outcome."""
        return self._service.counters

    @property
    def port(self) -> int:
        """Listened on."""
        return self._address[1]

    @property
    def dispatcher(self) -> Dispatcher:
        """Where callbacks are called."""
        return self._dispatcher

    async def run(
        self, subscriptions: Iterable[Subscription], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen, register all of `subscriptions`, and serve until `stop`. Nothing is written unless all can be.

        Raises what starting can (see Subscriber.start), and later what ended the last subscription or came out of a
        listener without being an Exception. Cancelled: async listeners are cancelled, a sync one under way is waited
        for within the grace, pushes under way are not acknowledged.
        """
        settings = self._settings
        self._token = trio.lowlevel.current_trio_token()
        socket, *others = await open_listeners(settings.host, settings.port)
        for other in others:  # a name with several addresses: with a free port each would have its own
            await other.aclose()
        self._address = (settings.registered_address, socket.socket.getsockname()[1])
        server = ThriftServer([socket], "Listener", self._service, _limits(settings))
        try:
            async with trio.open_nursery(strict_exception_groups=False) as nursery, socket:
                await trio.to_thread.run_sync(self._zookeeper.start)
                self._zookeeper.on_state(self._hand_over_state)
                await nursery.start(self._dispatcher.run)
                await nursery.start(server.run)
                await self.add(list(subscriptions))
                nursery.start_soon(self._keep_registered)
                task_status.started()
                await self._stopped.wait()
                await self._wind_down(server)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self._leave()
        if self._error is not None:
            raise self._error

    def stop(self, error: BaseException | None = None) -> None:
        """End `run`, in time; with `error`, by raising it. On the trio thread."""
        self._error = self._error or error
        self._stopped.set()

    async def add(self, subscriptions: Sequence[Subscription]) -> None:
        """Register subscriptions, all checked before the first is written. On the trio thread."""
        for subscription in subscriptions:
            if not subscription.listeners:
                raise InvalidRequest(f"the subscription to {subscription.queue!r} has no listener: add one first")
        async with self._changing:
            plans = [await self._in_thread(self._registration.plan, one.request) for one in subscriptions]
            for subscription, plan in zip(subscriptions, plans, strict=True):
                listener = ListenerRecord(address=self._address[0], port=self.port, token=secrets.token_hex(16))
                # Known here before it is registered: a region host may connect at once.
                attachment = Attachment(subscription, plan.record, listener)
                self._service.attached[subscription.queue] = attachment
                await self._in_thread(self._registration.register, plan, listener)
                self._zookeeper.on_state
                self._registration.watch(subscription.queue, self._hand_over_hint)
                self._set_state(attachment, "attached")
