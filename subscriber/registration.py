"""The SubscriberZooKeeper of seed 004 (section 3.5.2): writing, keeping and deleting subscription information.

Durable: the SubscriptionRecord (queue, partitions with their starts, topics, filter). Ephemeral: the ListenerRecord
(address, port, token, in a group the member), which says that this subscriber is attached now. All is checked before
any is written. Who starts at the same moment is told apart by the version of the durable record: whoever planned with
an older one plans again (BadVersion).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import msgspec

from delivery import wall
from delivery.errors import (
    BadVersion,
    GroupMismatch,
    InvalidRequest,
    SubscriptionBusy,
    SubscriptionExists,
    UnknownSubscription,
)
from delivery.metastore import records
from delivery.metastore.catalog import open_catalog
from delivery.metastore.records import ListenerRecord, QueueRecord, SubscriptionRecord, differing_options
from delivery.metastore.request import Request, new_record, rebased
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.networks import Networks, as_address
from delivery.rpc.hello import is_alive
from delivery.rpc.pinned import refused
from subscriber.hosts import Hosts
from subscriber.subscription import is_pattern

_PLANS_MAX = 10
"""For attaching, while others change the subscription at the same moment."""


class Plan(msgspec.Struct, frozen=True):
    """What registering a request will write."""

    record: SubscriptionRecord
    found: SubscriptionRecord | None
    """The durable record that is there."""
    replace: ListenerRecord | None
    """The listener to take over from: a dead one, or any with force."""
    member: str = ""
    """As which the listener is to be attached; empty when it is exclusive."""
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

    def __init__(self, zookeeper: ZooKeeperClient, name: str, *, force: bool, member: str = "") -> None:
        """`member` is the name in groups."""
        self._zookeeper, self._name, self._force, self._member = zookeeper, name, force, member
        self._catalog = open_catalog(zookeeper)
        self._hosts = Hosts(self._catalog)

    def close(self) -> None:
        """End what it has opened beside the ZooKeeper client; nothing of it may be used after that."""
        self._catalog.close()

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
        SubscriptionExists, UnknownSubscription, SubscriptionBusy, GroupMismatch, NoHost and HostUnreachable when a
        start must be asked for and no host answers, MetadataUnavailable.
        """
        queue = self._catalog.queue(request.queue)
        found = self._catalog.subscription(request.queue, self._name)
        present = found if found is not None and found.generation == queue.generation else None
        kind = request.kind or ("exclusive" if present is None else present.kind)
        member = "" if kind == "exclusive" else self._member
        replace = self._replaceable(request.queue, member)
        with self._hosts.asking(request.queue) as last_id:
            record = new_record(request, self._name, queue, found, last_id, wall.ms())
        if present is not None:
            self._check_agreement(present, record, member)
        return Plan(record, found, replace, member, request.mode == "create")

    def matching(self, pattern: str) -> list[QueueRecord]:
        """The queues whose names match a pattern."""
        return self._catalog.queues_like(pattern)

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

    def register(self, plan: Plan, listener: ListenerRecord) -> SubscriptionRecord:
        """Write what was planned, and attach `listener` for as long as the session lives; gives what was written.

        Raises SubscriptionBusy, GroupMismatch or BadVersion when somebody else changed the subscription since it was
        planned, SubscriptionExists when it must be new.
        """
        record, found = plan.record, plan.found
        if found is not None and found.generation != record.generation:
            self._catalog.delete_subscription(found.queue, found.name)  # left over from an earlier queue of this name
            found = None
        if found is None:
            try:
                self._catalog.create_subscription(record)
            except SubscriptionExists as error:
                if plan.must_be_new:
                    raise
                raise BadVersion(error.message) from None
        elif record != found:
            record = self._catalog.change_subscription(
                record.queue, record.name, partial(self._changed, plan, found)
            )  # fmt: skip
        self._catalog.attach(record.queue, record.name, listener, replace=plan.replace, agreed=record)
        return record

    def join(self, request: Request, plan: Plan, listener: ListenerRecord) -> SubscriptionRecord:
        """`register`; when others changed the subscription at the same moment, by another plan. Gives what it wrote.

        Raises what `plan` and `register` do; BadVersion when others change it all the time, or changed its kind.
        """
        for _ in range(_PLANS_MAX):
            try:
                return self.register(plan, listener)
            except BadVersion:
                plan = self.plan(request)
                if plan.member != listener.member:
                    raise
        raise BadVersion(f"subscription {self._name!r} on queue {request.queue!r} is changed all the time: try again")

    def renew(self, record: SubscriptionRecord, listener: ListenerRecord) -> Renewed:
        """Make sure that `listener` is attached still.

        Raises SubscriptionBusy when another took its place over, GroupMismatch when it has no place any more,
        UnknownSubscription or UnknownQueue when the subscription was deleted.
        """
        found = self._present(record, listener)
        again = self._catalog.listener(record.queue, self._name, listener.member) != listener
        if again:
            self._catalog.attach(record.queue, self._name, listener)
            found = self._present(record, listener)  # what was made meanwhile in its place has the listener then
        return Renewed(found, again)

    def watch(self, queue: str, listener: ListenerRecord, hint: Callable[[], None]) -> None:
        """Call `hint`, from another thread, when `renew` may have something to do, and after each reconnect."""
        self._zookeeper.watch_value(records.listener_path(queue, self._name, listener.member), hint)

    def delete(self, queue: str, own: ListenerRecord | None = None) -> None:
        """Delete the durable state.

        Raises UnknownSubscription, UnknownQueue; SubscriptionBusy when others than `own` are attached, unless forced.
        """
        if not self._force and self._catalog.subscription(queue, self._name) is not None:
            others = [one for one in self._catalog.members(queue, self._name) if one != own]
            if (alive := self._first_alive(queue, others)) is not None:
                raise self._busy(queue, alive)
        self._catalog.delete_subscription(queue, self._name)
        for member in ("", self._member):  # not before: what is refused stays attached, and has to hear of its end
            self._zookeeper.unwatch(records.listener_path(queue, self._name, member))

    def delete_matching(self, queue: str) -> None:
        """Delete the durable state of a subscription that is not attached here, or of all that a pattern matches.

        Raises as `delete`.
        """
        if not is_pattern(queue):
            self.delete(queue)
            return
        names = [one.name for one in self.matching(queue)]
        found = [name for name in names if self._catalog.subscription(name, self._name) is not None]
        if not found:
            raise UnknownSubscription(f"no queue that matches {queue!r} has a subscription {self._name!r}")
        for name in found:
            self.delete(name)

    def _replaceable(self, queue: str, member: str) -> ListenerRecord | None:
        """The listener that is attached in this place, if it may be replaced: none, a dead one, or any with force.

        A killed subscriber stays in ZooKeeper until its session times out; it is recognised by nobody, or somebody
        else, answering at its address. One that accepts and says nothing may be stopped or slow: it counts as alive.
        """
        found = self._catalog.listener(queue, self._name, member)
        if found is None or self._force or not self._answers(found, queue):
            return found
        raise self._busy(queue, found)

    def _present(self, record: SubscriptionRecord, listener: ListenerRecord) -> SubscriptionRecord:
        """A subscription that `listener` is attached to, as it is now. Raises UnknownSubscription.

        Another one of its name does not keep the listener, which would take as handled what was handled for this one.
        """
        found = self._catalog.subscription(record.queue, self._name)
        if found is None or not found.is_same(record):
            self._catalog.detach(record.queue, self._name, listener)
            raise UnknownSubscription(f"subscription {self._name!r} on queue {record.queue!r} was deleted")
        return found

    def _changed(self, plan: Plan, found: SubscriptionRecord, now: SubscriptionRecord) -> SubscriptionRecord:
        """What is to become of preferences that were `found` when it was planned. Raises GroupMismatch, BadVersion."""
        record = plan.record
        if not now.is_same(record):
            raise BadVersion(f"subscription {self._name!r} was deleted and made again by somebody else")
        self._check_agreement(now, record, plan.member)
        return rebased(record, found, now)

    def _check_agreement(self, found: SubscriptionRecord, wanted: SubscriptionRecord, member: str) -> None:
        """Raises GroupMismatch when others are attached with other options."""
        differing = differing_options(found, wanted)
        if not differing or found.kind == wanted.kind == "exclusive":
            return
        others = [one for one in self._catalog.members(wanted.queue, self._name) if one.member != member]
        alive = self._first_alive(wanted.queue, others)
        if alive is not None:
            raise GroupMismatch(
                f"subscription {self._name!r} on queue {wanted.queue!r} ({found.kind}) has a subscriber at"
                f" {alive.host_port} with another {' and '.join(differing)}: all members must ask for the same, or"
                " leave it out to take what there is; to change it, stop them all first"
            )

    def _first_alive(self, queue: str, listeners: Iterable[ListenerRecord]) -> ListenerRecord | None:
        return next((one for one in listeners if self._answers(one, queue)), None)

    def _busy(self, queue: str, holder: ListenerRecord) -> SubscriptionBusy:
        whose = f" (member {holder.member!r})" if holder.member else ""
        return SubscriptionBusy(
            f"subscription {self._name!r} on queue {queue!r} belongs to the subscriber at {holder.host_port}{whose},"
            " which is alive: stop it, choose another name, or force",
            address=holder.host_port,
        )

    def _answers(self, listener: ListenerRecord, queue: str) -> bool:
        networks = [host.networks for host in self._catalog.readable_hosts()[0]]
        return is_alive(listener, queue, self._name, networks or [Networks()])
