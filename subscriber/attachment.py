"""A subscription as it is attached here: its records, its listeners as they stand, and where it is worked off."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from delivery import logs
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.model import Message
from delivery.telemetry import configured
from subscriber.abreast import Abreast
from subscriber.dispatch import Dispatcher
from subscriber.effects import check_effects
from subscriber.inbox import Inbox, PartitionInbox, Status
from subscriber.listeners import Calls, Registered
from subscriber.manual import ManualMessage, Unacknowledged, by_hand
from subscriber.pushes import Push, Reply
from subscriber.strands import Strands
from subscriber.subscription import Subscription
from subscriber.tracing import traced

log = logs.logger(__name__)


class Attachment:
    """A subscription that is registered by this subscriber, and may get pushes."""

    def __init__(self, subscription: Subscription, record: SubscriptionRecord, listener: ListenerRecord) -> None:
        self.subscription, self.listener = subscription, listener
        self.record = record
        """As it was read last: an operator may change it meanwhile."""
        self.inbox = Inbox(record.starts)
        self.ended = False
        """No listener is called for it any more."""
        self.strands: Strands | None = None
        """Where its partitions are worked off side by side, or with order="key" its keys; None on the one thread."""
        self.side_by_side: dict[int, Abreast] = {}
        """By partition, what works its keys off."""
        self.waiting: deque[Callable[[], None]] = deque()
        """Pushes that came while the application wanted none; for the thread that takes pushes up."""
        self.unacknowledged: dict[int, Unacknowledged] = {}
        """By partition, when the application acknowledges by hand."""
        self._made: tuple[Sequence[Registered], RetryPolicy, Calls] | None = None
        """The listeners and the policy, and what calls them: as one, for several threads may make them anew at once."""
        self.telemetry = configured()

    def registered(self, record: SubscriptionRecord) -> None:
        """This is what was written, which may be more, or less, than was planned first."""
        self.record = record
        self.inbox.know(record.starts)

    def end(self) -> None:
        """Call no listener for it any more."""
        self.ended = True
        if self.strands is not None:
            self.strands.stop()

    def calls(self, dispatcher: Dispatcher) -> Calls:
        """The listeners as they stand now."""
        listeners, retry, made = self.subscription.listeners, self.record.retry, self._made
        if made is not None and listeners is made[0] and retry is made[1]:
            return made[2]
        check_effects(listeners, self.record, manual=self.subscription.manual)
        called: Sequence[Registered] = listeners
        if self.subscription.manual:
            called = [by_hand(one, self._deliver) for one in called]
        if self.telemetry is not None:
            called = traced(self.telemetry, self.subscription.name, called)
        where, limit = self.subscription.where, retry.timeout_seconds
        calls = Calls(called, dispatcher.hop, where, limit, dispatcher.clock)
        self._made = (listeners, retry, calls)
        return calls

    def _deliver(self, message: Message) -> ManualMessage:
        return self.unacknowledged[message.partition].deliver(message)

    def abreast(
        self, partition: int, inbox: PartitionInbox, clock: Callable[[], float], on_due: Callable[[float], object]
    ) -> Abreast | None:  # fmt: skip
        """What works the keys of a partition off side by side, if they are to be.

        Not of what is acknowledged by hand: listeners only take messages there, and what is done at the same time is up
        to the application.
        """
        found = self.side_by_side.get(partition)
        by_key = self.record.retry.order == "key" and not self.subscription.manual
        if found is None and self.strands is not None and by_key:
            submit, hung = self.strands.submit, self.strands.hung
            found = Abreast(inbox, lambda key, job: submit((partition, key), job), clock, on_due, hung)
            self.side_by_side[partition] = found
        return found

    def settled(self, push: Push, result: Reply) -> None:
        """A push has been answered: trace it, where that is wanted."""
        if self.telemetry is not None and result.status in (Status.OK, Status.FAILED):
            name, acknowledged = self.subscription.name, result.status == Status.OK
            try:
                self.telemetry.settle(push.queue, name, push.partition, acknowledged=acknowledged)
            except Exception:
                log.exception("a settled push could not be traced")
