"""The SubscriberZooKeeper of seed 004 (section 3.5.2): writing, keeping and deleting subscription information.

Durable: the SubscriptionRecord (queue, partitions with their starts, topics, filter). Ephemeral: the ListenerRecord
(address, port, token), which says that this subscriber is attached now. All is checked before any is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from delivery import wall
from delivery.errors import BadVersion, InvalidRequest, SubscriptionBusy, SubscriptionExists, UnknownSubscription
from delivery.metastore import records
from delivery.metastore.catalog import open_catalog
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.request import Request, new_record
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.networks import as_address
from delivery.rpc.hello import is_alive
from delivery.rpc.pinned import refused
from subscriber.hosts import Hosts


class Plan(msgspec.Struct, frozen=True):
    """What registering a request will write."""

    record: SubscriptionRecord
    found: SubscriptionRecord | None
    """The durable record that is there."""
    replace: ListenerRecord | None
    """The listener to take over from: a dead one, or any with force."""
    must_be_new: bool = False
    """Whether one that somebody else makes in the meantime is in the way."""


class Renewed(NamedTuple):
    """A registration that stands."""

    record: SubscriptionRecord
    """The durable record as it is now."""
    again: bool
    """Whether the listener had to be attached again."""


class SubscriberZooKeeper:
    """Blocking; one per started subscriber. Whoever makes it closes the ZooKeeper client."""

    def __init__(self, zookeeper: ZooKeeperClient, name: str, *, force: bool) -> None:
        self._zookeeper, self._name, self._force = zookeeper, name, force
        self._catalog = open_catalog(zookeeper)
        self._hosts = Hosts(self._catalog)

    def check_address(self, address: str) -> None:
        """Whether region hosts connect to a listener there, as far as that can be told without resolving a name.

        Raises ListenerRefused, MetadataUnavailable.
        """
        literal = as_address(address)
        for host in self._catalog.readable_hosts()[0] if literal is not None else ():
            if literal is not None and (why := host.networks.refusal(literal)):
                raise refused(address, literal, why, f"region host {host.host} at {host.host_port}")

    def plan(self, request: Request) -> Plan:
        """Check a request against the queue as it is; nothing is written.

        Raises UnknownQueue, UnknownPartition, InvalidRequest (a start in the future, a reserved name),
        SubscriptionExists, UnknownSubscription, SubscriptionBusy, NoHost and HostUnreachable when a start must be asked
        for and no host answers, MetadataUnavailable.
        """
        queue = self._catalog.queue(request.queue)
        found = self._catalog.subscription(request.queue, self._name)
        replace = self._replaceable(request.queue)
        with self._hosts.asking(request.queue) as last_id:
            record = new_record(request, self._name, queue, found, last_id, wall.ms())
        return Plan(record, found, replace, request.mode == "create")

    def check_in_order(self, plan: Plan) -> None:
        """Raises InvalidRequest when parked messages would come first, which are in no order of their ids."""
        found, record = plan.found, plan.record
        if found is None or found.generation != record.generation:
            return
        if any(state.parked for state in self._catalog.states(record.queue, record.name).values()):
            raise InvalidRequest(
                f"keys of subscription {record.name!r} of queue {record.queue!r} are parked, and exactly_once would"
                " skip messages of theirs: have them handled first (`hoot subscription parked` shows them)"
            )

    def register(self, plan: Plan, listener: ListenerRecord) -> None:
        """Write what was planned, and attach `listener` for as long as the session lives.

        Raises SubscriptionBusy or BadVersion when somebody else changed the subscription since it was planned,
        SubscriptionExists when it must be new.
        """
        record, found = plan.record, plan.found
        if found is not None and found.generation != record.generation:
            self._catalog.delete_subscription(found.queue, found.name)  # left over from an earlier queue of this name
            found = None
        if record != found:
            try:
                self._catalog.put_subscription(record, create=found is None)
            except SubscriptionExists as error:
                if plan.must_be_new:
                    raise
                raise BadVersion(error.message) from None
        self._catalog.attach(record.queue, record.name, listener, replace=plan.replace)

    def renew(self, record: SubscriptionRecord, listener: ListenerRecord) -> Renewed:
        """Make sure that `listener` is attached still.

        Raises SubscriptionBusy when another took the subscription over, UnknownSubscription or UnknownQueue when it
        was deleted.
        """
        queue = record.queue
        found = self._catalog.subscription(queue, self._name)
        if found is None or found.generation != record.generation:
            raise UnknownSubscription(f"subscription {self._name!r} on queue {queue!r} was deleted")
        again = self._catalog.listener(queue, self._name) != listener
        if again:
            self._catalog.attach(queue, self._name, listener)
        return Renewed(found, again)

    def watch(self, queue: str, hint: Callable[[], None]) -> None:
        """Call `hint`, from another thread, when `renew` may have something to do, and after each reconnect."""
        self._zookeeper.watch_value(records.listener_path(queue, self._name), hint)

    def delete(self, queue: str, own: ListenerRecord | None = None) -> None:
        """Delete the durable state.

        Raises UnknownSubscription, UnknownQueue; SubscriptionBusy when another than `own` is attached, unless forced.
        """
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
        if found is None or found == own or self._force or not self._answers(found, queue):
            return found
        raise SubscriptionBusy(
            f"subscription {self._name!r} on queue {queue!r} belongs to the subscriber at {found.host_port},"
            " which is alive: stop it, choose another name, or force",
            address=found.host_port,
        )

    def _answers(self, listener: ListenerRecord, queue: str) -> bool:
        return is_alive(listener, queue, self._name)
