"""The SubscriberZooKeeper of seed 004 (section 3.5.2): writing, keeping and deleting subscription information.

Durable: the SubscriptionRecord (queue, partitions with their starts, topics). Ephemeral: the ListenerRecord (address,
port, token), which says that this subscriber is attached now. Everything is checked before the first of them is written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from delivery.errors import BadVersion, SubscriptionBusy, UnknownQueue, UnknownSubscription
from delivery.metastore import records
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from subscriber.hosts import Hosts, is_alive
from subscriber.request import Request, new_record

log = logging.getLogger(__name__)

_ATTEMPTS = 3


class Plan(msgspec.Struct, frozen=True):
    """What registering a request will write."""

    record: SubscriptionRecord
    found: SubscriptionRecord | None
    """The durable record that is there."""
    replace: ListenerRecord | None
    """The listener to take over from: a dead one, or any with force."""


class SubscriberZooKeeper:
    """Blocking; one per started subscriber. Whoever makes it closes the ZooKeeper client."""

    def __init__(self, zookeeper: ZooKeeperClient, name: str, *, force: bool) -> None:
        self._zookeeper, self._name, self._force = zookeeper, name, force
        self._catalog = Catalog(zookeeper)
        self._hosts = Hosts(self._catalog)

    def plan(self, request: Request) -> Plan:
        """Check a request against the queue as it is; nothing is written.

        Raises UnknownQueue, UnknownPartition, InvalidRequest (a start in the future), SubscriptionBusy, NoHost and
        HostUnreachable when a start must be asked for and no host answers, MetadataUnavailable.
        """
        queue = self._catalog.queue(request.queue)
        found = self._catalog.subscription(request.queue, self._name)
        replace = self._replaceable(request.queue)
        now_ms = time.time_ns() // 1_000_000
        with self._hosts.asking(request.queue) as last_id:
            record = new_record(request, self._name, queue, found, last_id, now_ms)
        return Plan(record, found, replace)

    def register(self, plan: Plan, listener: ListenerRecord) -> SubscriptionRecord:
        """Write what was planned, and attach `listener`. Gives the durable record. Raises SubscriptionBusy."""
        record, found = plan.record, plan.found
        if found is not None and found.generation != record.generation:
            self._catalog.delete_subscription(found.queue, found.name)  # left over from an earlier queue of this name
            found = None
        if record != found:
            self._catalog.put_subscription(record, create=found is None)
        self._catalog.attach(record.queue, record.name, listener, replace=plan.replace)
        return record

    def plan_and_register(self, request: Request, listener: ListenerRecord) -> SubscriptionRecord:
        """Both, and again when somebody else changed the same subscription in between."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self.register(self.plan(request), listener)
            except BadVersion as error:
                log.info("subscription %s on %s: once more, because %s", self._name, request.queue, error)
        return self.register(self.plan(request), listener)

    def renew(self, queue: str, listener: ListenerRecord) -> bool:
        """Make sure that `listener` is attached still; True when it had to be attached again.

        Raises SubscriptionBusy when another took the subscription over, UnknownSubscription or UnknownQueue when it
        was deleted.
        """
        if self._catalog.listener(queue, self._name) == listener:
            return False
        self._catalog.attach(queue, self._name, listener)
        return True

    def watch(self, queue: str, hint: Callable[[], None]) -> None:
        """Call `hint`, from another thread, when `renew` may have something to do, and after each reconnect."""
        self._zookeeper.watch_value(records.listener_path(queue, self._name), hint)

    def detach(self, queue: str, listener: ListenerRecord) -> None:
        """Take the listener off and keep the durable state; nothing to do when it is not, or no longer, attached."""
        self._zookeeper.unwatch(records.listener_path(queue, self._name))
        self._catalog.detach(queue, self._name, listener)

    def delete(self, queue: str, own: ListenerRecord | None = None) -> None:
        """Delete the durable state. Raises UnknownSubscription, UnknownQueue; SubscriptionBusy when another subscriber
        than `own` is attached, unless forced."""
        self._zookeeper.unwatch(records.listener_path(queue, self._name))
        if self._catalog.subscription(queue, self._name) is not None:
            self._replaceable(queue, own)
        self._catalog.delete_subscription(queue, self._name)

    def _replaceable(self, queue: str, own: ListenerRecord | None = None) -> ListenerRecord | None:
        """The listener that is attached, if it may be replaced: none, a dead one, or any with force.

        A killed subscriber stays in ZooKeeper until its session times out; it is recognised by nobody, or somebody
        else, answering at its address. One that accepts and says nothing may be stopped or slow: it counts as alive.
        """
        found = self._catalog.listener(queue, self._name)
        if found is None or found == own or self._force or not is_alive(found, queue, self._name):
            return found
        raise SubscriptionBusy(
            f"subscription {self._name!r} on queue {queue!r} belongs to the subscriber at {found.address}:{found.port},"
            " which is alive: stop it, choose another name, or force",
            address=f"{found.address}:{found.port}",
        )


ENDED = (SubscriptionBusy, UnknownSubscription, UnknownQueue)
"""What `renew` raises when a subscription is no longer this subscriber's."""
