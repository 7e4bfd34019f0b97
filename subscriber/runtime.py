"""The Runtime: one started subscriber, from listening and registering to the end of its last callback."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import trio

from delivery import hop, logs
from delivery.errors import (
    GroupMismatch,
    HootError,
    InvalidRequest,
    SubscriptionBusy,
    UnknownQueue,
    UnknownSubscription,
)
from delivery.metastore.records import ListenerRecord
from delivery.metastore.state import State as ConnectionState
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.rpc.server import ThriftServer, open_listeners
from subscriber.attachment import Attachment
from subscriber.dispatch import Dispatcher
from subscriber.effects import check_effects
from subscriber.patterns import Patterns
from subscriber.registration import Plan, SubscriberZooKeeper
from subscriber.replays import Replays
from subscriber.service import Counters, ListenerCalls, ListenerService
from subscriber.settings import Settings
from subscriber.subscription import Event, Subscription
from subscriber.telling import Telling
from subscriber.unwrapping import only_error

log = logs.logger(__name__)

EventCallback = Callable[[Event], object]

_RENEW_PAUSE_SECONDS = 1.0
"""After ZooKeeper could not be asked."""


class Runtime:
    """Owns the port, the threads and the ZooKeeper session while `run` runs. Runs once."""

    _renew_seconds = 30.0
    """How often the registration is looked at without any hint."""

    def __init__(self, settings: Settings, on_event: EventCallback) -> None:
        """`on_event` is called on the threads that call listeners, for each subscription once at a time."""
        self._settings = settings
        self._zookeeper, self._registration, self._dispatcher = self._make_parts()
        self._service = ListenerService(settings.name, self._dispatcher, self._tell_of_push)
        self._telling = Telling(on_event, self._dispatcher.submit, self._service.lookout.at, self._stop_by)
        self._patterns = Patterns(self._registration.matching, self._service.attached, self._register)
        self._replays = Replays(self._service.attached, self._register)
        self._changing, self._writing = trio.Lock(), trio.Lock()  # the first one while hosts are asked, too
        self._hinted = trio.Event()
        self._stopped = trio.Event()
        self._served = trio.Event()
        self._error: BaseException | None = None
        self._stop_wanted = False
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
        self, subscriptions: Sequence[Subscription], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen, register all of `subscriptions`, and serve until `stop`. Nothing is written unless all can be.

        Raises what starting can (see Subscriber.start), and later what ended the last subscription, or what came out of
        a listener without being an Exception. Cancelled: async listeners are cancelled, a sync one under way is waited
        for within the grace, pushes under way are not acknowledged.
        """
        self._token = trio.lowlevel.current_trio_token()
        if self._stop_wanted:
            self.stop()
        socket, *others = await open_listeners(self._settings.host, self._settings.port)
        for other in others:  # a name with several addresses: each of them would have another free port
            await other.aclose()
        self._address = (self._settings.registered_address, socket.socket.getsockname()[1])
        calls, limits = ListenerCalls(self._service), self._settings.limits
        server = ThriftServer([socket], "Listener", calls, limits, lambda: max(1, len(self._service.attached)))
        try:
            async with socket, trio.open_nursery() as nursery:
                await hop.run_sync(self._zookeeper.start)
                self._zookeeper.on_state(lambda state: self._post(partial(self._note_state, state)))
                await nursery.start(self._dispatcher.run)
                nursery.start_soon(self._serve, server)
                await self.add(subscriptions)
                nursery.start_soon(self._keep_registered)
                nursery.start_soon(self._service.lapsing.run)
                nursery.start_soon(self._patterns.run, self._changing)
                nursery.start_soon(self._replays.run, self._changing)
                task_status.started()
                await self._stopped.wait()
                await self._wind_down(server)
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise only_error(group) from None
        finally:
            with trio.CancelScope(shield=True):
                await self._leave()
        if self._error is not None:
            raise self._error

    def stop(self, error: BaseException | None = None) -> None:
        """End `run`, in time; with `error`, by raising it. On the trio thread."""
        self._error = self._error or error
        self._stopped.set()

    def stop_soon(self) -> None:
        """`stop`, from any thread, also before `run`."""
        self._stop_wanted = True
        if self._token is not None:
            self._post(self.stop)

    async def add(self, subscriptions: Sequence[Subscription]) -> None:
        """Register subscriptions, all checked before the first is written. Raises as Subscriber.start."""
        for subscription in subscriptions:
            if not subscription.listeners:
                raise InvalidRequest(f"the subscription to {subscription.queue!r} has no listener: add one first")
        async with self._changing:
            await hop.run_sync(self._registration.check_address, self._address[0])
            await self._patterns.begin(subscriptions)

    async def remove(self, queue: str) -> None:
        """Delete the durable state of a subscription, attached here or not. Raises as Subscriber.unsubscribe."""
        async with self._changing, self._writing:
            for one in self._patterns.queues(queue):
                try:
                    await self._remove(one)
                except (UnknownSubscription, UnknownQueue):
                    if one == queue:
                        raise
            self._patterns.remove(queue)

    def _make_parts(self) -> tuple[ZooKeeperClient, SubscriberZooKeeper, Dispatcher]:
        settings = self._settings
        session = ZooKeeperClient(settings.zookeeper, session_timeout=settings.session_timeout_seconds)
        member = settings.member_name()
        registration = SubscriberZooKeeper(session, settings.name, force=settings.force, member=member)
        return session, registration, Dispatcher()

    # -- what run consists of

    async def _remove(self, queue: str) -> None:
        attachment = self._service.attached.get(queue)
        own = None if attachment is None else attachment.listener
        await hop.run_sync(self._registration.delete, queue, own)
        for one in [] if attachment is None else [*self._replays.of(attachment), attachment]:
            self._end(one, "deleted", None)

    async def _register(self, subscriptions: Sequence[Subscription]) -> None:
        plans = [await hop.run_sync(self._registration.plan, one.request) for one in subscriptions]
        for subscription, plan in zip(subscriptions, plans, strict=True):
            if check_effects(subscription.listeners, plan.record, manual=subscription.manual):
                await hop.run_sync(self._registration.check_in_order, plan)
        for subscription, plan in zip(subscriptions, plans, strict=True):
            async with self._writing:
                await self._attach(subscription, plan)

    async def _attach(self, subscription: Subscription, plan: Plan) -> None:
        queue = subscription.queue
        token, (address, port) = secrets.token_hex(16), self._address[:2]
        listener = ListenerRecord(address=address, port=port, token=token, member=plan.member)
        attachment = Attachment(subscription, plan.record, listener)
        if subscription.concurrency != 1:
            attachment.strands = self._dispatcher.strands(subscription.concurrency)
        subscription.on_wanted = partial(self._service.resume, attachment)
        self._service.attached[queue] = attachment  # first, for a region host connects as soon as it is registered
        try:
            attachment.registered(await hop.run_sync(self._registration.join, subscription.request, plan, listener))
        except BaseException:
            del self._service.attached[queue]
            attachment.end()
            raise
        self._registration.watch(queue, listener, partial(self._post, self._hint))
        self._set_state(attachment, "attached")

    async def _serve(self, server: ThriftServer) -> None:
        try:
            await server.run()
        finally:
            self._served.set()

    async def _keep_registered(self) -> None:
        while True:
            with trio.move_on_after(self._renew_seconds):
                await self._hinted.wait()
            self._hinted = trio.Event()
            async with self._writing:
                confirmed = [await self._renew(one) for one in list(self._service.attached.values())]
            if not all(confirmed):
                await trio.sleep(_RENEW_PAUSE_SECONDS)
                self._hint()

    async def _renew(self, attachment: Attachment) -> bool:
        """Attach it again if need be; False when it cannot be told now."""
        try:
            renewed = await hop.run_sync(self._registration.renew, attachment.record, attachment.listener)
        except (SubscriptionBusy, GroupMismatch) as error:
            self._end(attachment, "taken_over", error)
        except (UnknownSubscription, UnknownQueue) as error:
            self._end(attachment, "deleted", error)
        except HootError as error:
            log.warning("subscription %s on %s: its registration cannot be confirmed: %s", self._settings.name,
                        attachment.subscription.queue, error)  # fmt: skip
            return False
        else:
            if self._zookeeper.state != "steady":
                return False  # it was read before the connection broke, which everybody has been told of since
            attachment.record = renewed.record
            self._service.lapsing.look_soon()
            if renewed.again or attachment.subscription.state != "attached":
                self._set_state(attachment, "attached")
        return True

    async def _wind_down(self, server: ThriftServer) -> None:
        """No more pushes; the callback under way ends and its reply goes out."""
        self._take_no_more()
        server.stop_accepting()
        self._dispatcher.stop()
        with trio.move_on_after(self._settings.grace_seconds):
            await self._dispatcher.idle()
            await self._served.wait()

    def _take_no_more(self) -> None:
        self._service.stopping = True
        for attachment in self._service.attached.values():
            self._service.resume(attachment)

    async def _leave(self) -> None:
        """Wait for the thread, then end the session, which deregisters; the durable state stays."""
        self._service.stopping = True
        self._dispatcher.stop()
        with trio.move_on_after(0 if self._stopped.is_set() else self._settings.grace_seconds):
            await self._dispatcher.idle()
        if not self._dispatcher.is_idle:
            log.warning("subscriber %s: a listener still runs after %g s; it is left to itself", self._settings.name,
                        self._settings.grace_seconds)  # fmt: skip
        for attachment in self._service.attached.values():
            attachment.end()
            attachment.subscription.state = "stopped"
        self._patterns.stop()
        self._registration.close()
        await hop.run_sync(self._zookeeper.stop)

    # -- news

    def _end(self, attachment: Attachment, state: Literal["taken_over", "deleted"], error: HootError | None) -> None:
        """One subscription is over. When it was the last, so is `run`."""
        attachment.ended = True
        self._service.resume(attachment)
        attachment.end()
        del self._service.attached[attachment.subscription.queue]
        self._set_state(attachment, state, error)
        self._telling.forget(attachment.subscription.queue)
        if error is not None and self._replays.are_all() and not self._patterns:
            self.stop(error)

    def _set_state(
        self, attachment: Attachment, state: Literal["attached", "suspended", "taken_over", "deleted"],
        error: HootError | None = None,
    ) -> None:  # fmt: skip
        subscription = attachment.subscription
        subscription.state, subscription.error = state, error
        level = logging.INFO if state == "attached" or error is None else logging.WARNING
        log.log(level, "subscription %s on %s: %s%s", subscription.name, subscription.queue, state.replace("_", " "),
                f": {error}" if error else "")  # fmt: skip
        self._telling.tell_soon(Event(state, subscription.queue, error), attachment)

    def _tell_of_push(self, event: Event) -> None:
        self._telling.tell(event)
        if event.kind == "failed" and event.error is not None and not isinstance(event.error, Exception):
            self._stop_by(event.error)  # sys.exit() in a listener, say

    def _stop_by(self, error: BaseException) -> None:
        self._post(partial(self.stop, error))

    def _hint(self) -> None:
        self._hinted.set()

    def _note_state(self, state: ConnectionState) -> None:
        if state == "steady":
            self._hint()
            return
        for attachment in self._service.attached.values():
            if attachment.subscription.state == "attached":
                self._set_state(attachment, "suspended")

    def _post(self, call: Callable[[], object]) -> None:
        assert self._token is not None
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._called, call)

    def _called(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - `run` raises it; from here it would end the application's loop
            self.stop(error)
