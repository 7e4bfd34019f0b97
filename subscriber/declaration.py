"""What the blocking and the trio face have in common: settings, subscriptions, listeners, events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from delivery import logs
from delivery.errors import InvalidRequest
from delivery.metastore.request import Request
from delivery.metastore.zookeeper import ZooKeeperClient
from subscriber.listeners import Concurrency, Form, Registered, Where, check_concurrency, check_listener, check_where
from subscriber.registration import SubscriberZooKeeper
from subscriber.runtime import Runtime
from subscriber.service import Counters
from subscriber.settings import ZOOKEEPER_DEFAULT, Settings
from subscriber.subscription import Event, F, Subscription

log = logs.logger(__name__)


class Declaration:
    """What an application declares, before and while its subscriber runs. Base of both faces; thread-safe."""

    def __init__(  # noqa: PLR0913 - a subscriber has so many sides
        self,
        name: str,
        zookeeper: str = ZOOKEEPER_DEFAULT,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        force: bool = False,
        advertise: str | None = None,
        grace_seconds: float = 10.0,
        session_timeout_seconds: float = 6.0,
        member: str | None = None,
    ) -> None:
        """`name` is the durable name: whoever starts under it again goes on where it ended. `member` is this one's own
        name among several of that name (docs/groups.md). See Settings for the rest.

        Neither connects nor listens. Raises InvalidRequest for a bad name, ConfigError naming all other problems.
        """
        self.settings = Settings(
            name=name, zookeeper=zookeeper, host=host, port=port, force=force, advertise=advertise,
            grace_seconds=grace_seconds, session_timeout_seconds=session_timeout_seconds, member=member,
        ).check()  # fmt: skip
        self.subscriptions: dict[str, Subscription] = {}
        """By queue."""
        self._everywhere: tuple[Registered, ...] = ()
        self._event_callbacks: tuple[Callable[[Event], object], ...] = ()
        self._runtime: Runtime | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {', '.join(self.subscriptions) or 'no subscriptions'}>"

    @property
    def name(self) -> str:
        """The durable name."""
        return self.settings.name

    @property
    def port(self) -> int:
        """Listened on while running; before that, the port that was asked for."""
        return self._runtime.port if self._runtime else self.settings.port

    @property
    def counters(self) -> Counters:
        """Pushes since the last start, by outcome."""
        return self._runtime.counters if self._runtime else Counters()

    def listener(self, call: F) -> F:
        """Call `call(message)` for the messages of all subscriptions, now and later; as Subscription.listener."""
        registered = check_listener(call, "message")
        for subscription in self.subscriptions.values():
            subscription.listener(call)
        self._everywhere = (*self._everywhere, registered)
        return call

    def batch_listener(self, call: F) -> F:
        """Call `call(messages)` for the pushes of all subscriptions, now and later; as Subscription.batch_listener."""
        registered = check_listener(call, "batch")
        for subscription in self.subscriptions.values():
            subscription.batch_listener(call)
        self._everywhere = (*self._everywhere, registered)
        return call

    def on_event(self, call: F) -> F:
        """Call `call(event)` when a subscription changes its state, a push fails or a partition has another owner.

        See Event. On the thread of the subscription, between its callbacks for messages, or with `concurrency` on the
        thread of the callback in question; those of a subscription one after another and in order. One that takes long
        holds up its own subscription alone: callbacks for events of several may run at the same time then, and of more
        than 100 changes of state that wait, the first are left out, which is logged. For sync functions alone. What one
        raises is logged. Raises InvalidRequest as `listener` does.
        """
        registered = check_listener(call, "message")
        if registered.is_async:
            raise InvalidRequest("a callback for events must be a sync function")
        self._event_callbacks = (*self._event_callbacks, registered.call)
        return call

    def stop_soon(self) -> None:
        """Have the subscriber stop, without waiting; from any thread, also in a listener. Fine when not running."""
        if self._runtime is not None:
            self._runtime.stop_soon()

    def _declare(
        self, request: Request, where: Where | None, listeners: Mapping[Form, Callable[..., object] | None], *,
        manual: bool, concurrency: Concurrency,
    ) -> Subscription:  # fmt: skip
        """The checked subscription, which is among `subscriptions` now."""
        if request.queue in self.subscriptions:
            raise InvalidRequest(f"this subscriber is subscribed to queue {request.queue!r} already")
        if manual not in (True, False):
            raise InvalidRequest(f"manual is True or False, not {str(manual)[:40]!r}")
        given = tuple(check_listener(call, form) for form, call in listeners.items() if call is not None)
        made = Subscription(
            self.name, request, (*self._everywhere, *given), check_where(where), manual=manual,
            concurrency=check_concurrency(concurrency),
        )  # fmt: skip
        self.subscriptions[request.queue] = made
        return made

    def _check_startable(self) -> None:
        if self._runtime is not None:
            raise InvalidRequest(f"subscriber {self.name!r} is running already")
        if not self.subscriptions:
            raise InvalidRequest(f"subscriber {self.name!r} has nothing to start: subscribe to a queue first")

    def _delete(self, queue: str) -> None:
        """Delete the durable state of a subscription while nothing runs."""
        with ZooKeeperClient(self.settings.zookeeper) as zookeeper:
            registration = SubscriberZooKeeper(zookeeper, self.name, force=self.settings.force)
            with contextlib.closing(registration):
                registration.delete_matching(queue)

    def _emit(self, event: Event) -> None:
        for call in self._event_callbacks:
            try:
                call(event)
            except Exception:
                log.exception("a callback for events failed")
