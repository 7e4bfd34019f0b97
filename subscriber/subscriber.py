"""The Subscriber of seed 004 (section 3.5.2), for ordinary programs: it works in threads of its own."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from queue import SimpleQueue
from types import TracebackType
from typing import Self

import trio

from delivery import logs
from delivery.errors import Closed, UnknownSubscription
from delivery.filters import KEEP, FilterGiven, TopicsGiven
from delivery.ids import Start
from delivery.metastore.flow import FlowGiven
from delivery.metastore.groups import Kind
from delivery.metastore.policy import RetryGiven
from delivery.metastore.request import Mode, Partitions, check_request
from delivery.model import Isolation
from subscriber.declaration import Declaration
from subscriber.listeners import Concurrency, Form, Where
from subscriber.runtime import Runtime
from subscriber.subscription import Subscription

log = logs.logger(__name__)

_STOP_SECONDS = 30.0
"""Beyond the grace: what saying goodbye to ZooKeeper may take."""


class Subscriber(Declaration):
    """Receives the messages of one or more queues under a durable name, by callbacks.

        subscriber = Subscriber("audit", zookeeper="127.0.0.1:2181")
        subscription = subscriber.subscribe("flights", topics=["JFK"], start="earliest")

        @subscription.listener
        def on_flight(message): ...

        subscriber.run()

    Callbacks are called on threads of this subscriber's, those of a subscription one at a time, in the order of each
    partition; async ones run in its own trio loop. No subscription waits for another one's callbacks.
    `subscribe(concurrency=…)` has several of one run at the same time. Delivery is at least once: a
    message whose listener raised or returned Retry, and what was not acknowledged before a crash, comes again. Whoever
    starts it stops it, or uses `with` or `run`. Its methods may be called from any thread.
    """

    _thread: threading.Thread | None = None
    _ended: threading.Event
    _token: trio.lowlevel.TrioToken | None = None
    _error: BaseException | None = None

    def subscribe(  # noqa: PLR0913 - a subscription has so many sides
        self, queue: str, partitions: Partitions = None, topics: TopicsGiven = KEEP,
        start: Start | Mapping[int, Start] = "latest", *,
        filter: FilterGiven = KEEP, where: Where | None = None,  # noqa: A002 - what everybody calls it
        retry: RetryGiven = None, kind: Kind | None = None, mode: Mode = "create_or_attach", manual: bool = False,
        bound: int | None = None, flow: FlowGiven = KEEP, concurrency: Concurrency = 1,
        isolation: Isolation | None = None,
        listener: Callable[..., object] | None = None, batch_listener: Callable[..., object] | None = None,
    ) -> Subscription:  # fmt: skip
        """Subscribe to a queue: its partitions and topics, or those given (a dict of partitions gives each its start).

        A pattern (`orders.*`) means all queues whose names match it, now and later, each with checkpoints of its own.

        `topics` are names and patterns (`orders.*`), `filter` an expression or a rule (docs/filters.md); the host sends
        what fulfils both. Left out, both stay as a subscription that exists has them; None means all. Of what comes,
        the messages for which `where(message)` is false are acknowledged without any listener being called.

        `start` says where a *new* subscription begins (see delivery.ids): "latest", "earliest", a message id or a time,
        or a dict of these by partition; or "latest-per-key", at the newest message of each key that is stored. One that
        exists goes on at its checkpoints, with the partitions given now.
        `retry` says what becomes of messages that are not handled: a RetryPolicy, or a mapping of those of its fields
        that are to change (None: back to the default); without, it stays as it is. `kind` says whether others may be
        attached beside this one ("failover", "shared", "key_shared": docs/groups.md); None leaves that as it is. With
        mode "create" it must not be there yet, with "attach" it must. With `manual` listeners get a ManualMessage,
        which is handled when its `ack` was called, and not when they return. `bound` says that only so many of the
        newest messages of a partition matter, and those before them are left out (0: all; None leaves that as it is).

        `flow` limits how fast messages come (docs/flow.md): a Flow, or a mapping of those of its fields that are to
        change. With `concurrency` above 1 so many callbacks of this subscription run at the same time: each partition,
        or with `RetryPolicy(order="key")` each key, still one message after another. With "auto" as many as get more
        done that way.

        With isolation "committed" no message of a transaction comes before its commit, none behind it either until it
        has ended, and none ever that was rolled back (docs/transactions.md); "uncommitted", as it is at first, takes
        everything as it is published; None leaves that as it is.

        The subscription is registered, and "latest" looked up, by `start`; on a running subscriber at once, which needs
        `listener` or `batch_listener` given here. Raises InvalidRequest (a filter that does not parse: with its place
        and a hint), and then what `start` raises.
        """
        request = check_request(
            queue, partitions, topics, start, filter, retry=retry, kind=kind, mode=mode, bound=bound, flow=flow,
            isolation=isolation,
        )  # fmt: skip
        given: dict[Form, Callable[..., object] | None] = {"message": listener, "batch": batch_listener}
        subscription = self._declare(request, where, given, manual=manual, concurrency=concurrency)
        runtime = self._runtime
        if runtime is not None:
            try:
                self._in_loop(lambda: runtime.add([subscription]))
            except BaseException:
                del self.subscriptions[queue]
                raise
        return subscription

    def unsubscribe(self, queue: str) -> None:
        """Delete the subscription to a queue with its checkpoints. After a push under way no listener is called.

        Raises UnknownSubscription or UnknownQueue when there is none, SubscriptionBusy when another subscriber is
        attached to it (unless forced), MetadataUnavailable.
        """
        declared = self.subscriptions.get(queue)
        runtime = self._runtime
        try:
            if runtime is not None:
                self._in_loop(lambda: runtime.remove(queue))
            else:
                self._delete(queue)
        except UnknownSubscription:
            if declared is None or declared.state != "new":
                raise
        self.subscriptions.pop(queue, None)

    def start(self) -> None:
        """Listen, register all subscriptions, and return: from then on callbacks are called.

        Raises, with nothing written: PortInUse, ListenerRefused (hosts do not connect to this address),
        MetadataUnavailable (no ZooKeeper), UnknownQueue (with near names),
        UnknownPartition, InvalidRequest (a start in the future, a subscription without a listener, no subscription, a
        second start), SubscriptionBusy (another subscriber of this name, or of this member's, is alive), GroupMismatch
        (other members have other options), SubscriptionExists and UnknownSubscription (as the mode says), NoHost
        ("latest" needs one).
        """
        self._check_startable()
        self._error = None
        started: SimpleQueue[BaseException | None] = SimpleQueue()
        self._runtime = Runtime(self.settings, self._emit)
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._work, args=(self._runtime, started, self._ended), name=f"subscriber-{self.name}", daemon=True
        )
        self._thread.start()
        try:
            error = started.get()
        except BaseException:  # Ctrl-C
            self.stop()
            raise
        if error is not None:
            self._thread = None
            raise error

    def stop(self) -> None:
        """Take no more pushes, wait for the callback under way (up to `grace_seconds`), acknowledge it, deregister.

        The durable state stays. Stopping twice is fine. In a callback it asks for the stop and returns at once.
        """
        runtime, thread = self._runtime, self._thread
        if runtime is None or thread is None:
            self._thread = None
            return
        runtime.stop_soon()
        if threading.current_thread() is not thread and not runtime.dispatcher.is_here:
            self._ended.wait(self.settings.grace_seconds + _STOP_SECONDS)
            self._thread = None

    def run(self) -> None:
        """`start`, unless it was started, and wait until it is stopped or Ctrl-C is pressed; then `stop`.

        One that has ended by itself since it was started is not started again. Raises what `start` raises;
        SubscriptionBusy, UnknownSubscription or UnknownQueue when the last subscription was taken over or deleted; and
        what comes out of a listener without being an Exception, as SystemExit does.
        """
        try:
            if self._thread is None:
                self.start()
            # Not by joining the thread: up to Python 3.13 an interrupted join takes the thread for ended (bpo-45274).
            self._ended.wait()
        except KeyboardInterrupt:
            log.info("subscriber %s: interrupted, stopping", self.name)
        finally:
            self.stop()
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _work(self, runtime: Runtime, started: SimpleQueue[BaseException | None], ended: threading.Event) -> None:
        class Status:
            def started(self, _value: None = None) -> None:
                started.put(None)

        async def main() -> None:
            self._token = trio.lowlevel.current_trio_token()
            await runtime.run(list(self.subscriptions.values()), task_status=Status())

        try:
            trio.run(main)
        except BaseException as error:  # noqa: BLE001 - raised by `start` or `run`, in the program's own thread
            self._error = error
        finally:
            self._runtime = None
            started.put(self._error)
            ended.set()

    def _in_loop(self, call: Callable[[], Awaitable[None]]) -> None:
        assert self._token is not None
        try:
            trio.from_thread.run(call, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            raise Closed(f"subscriber {self.name!r} has stopped") from None
