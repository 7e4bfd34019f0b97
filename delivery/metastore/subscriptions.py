"""Subscriptions in ZooKeeper, and the subscribers that are attached to them.

The listener of a subscription is an ephemeral znode, and the version of an ephemeral one proves nothing (see `ops`).
So whoever attaches, takes over, detaches or deletes moves or checks the version of the subscription's own record in the
same transaction: of several who do it at once, one succeeds, and nobody removes a listener that it has not seen.
"""

from __future__ import annotations

from delivery.errors import BadVersion, CorruptRecord, SubscriptionBusy, UnknownSubscription
from delivery.metastore import records
from delivery.metastore.access import ATTEMPTS, Access, crowded
from delivery.metastore.ops import Create, Delete, NoNode, Op, Set
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.model import PARTITIONS_MAX, check_name, near_names


class Subscriptions(Access):
    """The durable records of subscriptions, and who is attached."""

    def subscription(self, queue: str, name: str) -> SubscriptionRecord | None:
        """The subscription's durable record, None when there is none. Raises CorruptRecord."""
        path = self._subscription_path(queue, name)
        record = self._get(path, SubscriptionRecord)
        if record is not None and (record.queue, record.name) != (queue, name):
            raise CorruptRecord(f"the value of {path} is that of another subscription, {record.name!r}")
        if record is not None and not all(0 <= p < PARTITIONS_MAX and at >= 0 for p, at in record.starts.items()):
            raise CorruptRecord(f"the value of {path} cannot be: it starts at {record.starts}")
        return record

    def subscriptions(self, queue: str) -> list[str]:
        """The names of a queue's subscriptions, attached or not, sorted. Raises UnknownQueue."""
        return self._names(records.subscriptions_path(check_name("queue", queue)), queue)

    def put_subscription(self, record: SubscriptionRecord, *, create: bool) -> None:
        """Write a new subscription, or another record for one that is there.

        Raises UnknownQueue; NodeExists (a BadVersion) when a new one is there already; UnknownSubscription when the one
        to change is not.
        """
        path = self._subscription_path(record.queue, record.name)
        value = records.encode(record)
        if create:
            refused = self._apply([Create(path, value)], path, value)
            if refused is not None:
                raise self._unknown_queue(record.queue) if isinstance(refused.error, NoNode) else refused.error
            return
        try:
            self._zk.set(path, value)
        except NoNode:
            raise self._unknown_subscription(record.queue, record.name) from None

    def delete_subscription(self, queue: str, name: str) -> None:
        """Delete a subscription with its checkpoints, and detach who is attached. Raises UnknownSubscription.

        Its record goes last: when this breaks off, the subscription is still listed; deleting it again ends the work.
        """
        path = self._subscription_path(queue, name)
        for attempt in range(ATTEMPTS):
            found = self._zk.get(path)
            if found is None and attempt == 0:
                raise self._unknown_subscription(queue, name)
            if found is None:
                return
            self._zk.delete(records.listener_path(queue, name))
            self._zk.delete_tree(path, below=True)
            try:
                self._zk.delete(path, found[1])  # a subscriber that has attached since then has moved the version
            except BadVersion:
                continue
            return
        raise crowded(f"subscription {name!r}")

    def attach(
        self, queue: str, name: str, record: ListenerRecord, *, replace: ListenerRecord | None = None
    ) -> None:  # fmt: skip
        """Make `record` the listener of a subscription for as long as this client's session lives.

        `replace` is a listener to take over from, as `listener` gave it; any other that is attached stays. Attaching
        the same record again renews it under the present session. Raises SubscriptionBusy with the `address` of the
        listener that holds the subscription, UnknownSubscription.
        """
        sub_path, path = self._subscription_path(queue, name), records.listener_path(queue, name)
        value = records.encode(record)
        for _ in range(ATTEMPTS):
            found, held = self._zk.get_many([sub_path, path])
            if found is None:
                raise self._unknown_subscription(queue, name)
            ops: list[Op] = [Set(sub_path, *found)]
            if held is not None:
                holder = _checked(path, records.decode(held[0], ListenerRecord, path))
                if holder not in (record, replace):
                    raise _busy(queue, name, holder)
                ops.append(Delete(path, held[1]))
            refused = self._apply([*ops, Create(path, value, ephemeral=True)], path, value)
            if refused is None:
                return
            if not isinstance(refused.error, BadVersion):
                raise refused.error
        raise crowded(f"subscription {name!r}")

    def detach(self, queue: str, name: str, record: ListenerRecord) -> None:
        """Take `record` off a subscription; does nothing when it is not, or no longer, what is attached."""
        sub_path, path = self._subscription_path(queue, name), records.listener_path(queue, name)
        for _ in range(ATTEMPTS):
            found, held = self._zk.get_many([sub_path, path])
            if found is None or held is None or records.decode(held[0], ListenerRecord, path) != record:
                return
            refused = self._zk.multi([Set(sub_path, *found), Delete(path, held[1])])
            if refused is None:
                return
        raise crowded(f"subscription {name!r}")

    def listener(self, queue: str, name: str) -> ListenerRecord | None:
        """Who is attached to a subscription, None when nobody is. Raises CorruptRecord."""
        self._subscription_path(queue, name)
        path = records.listener_path(queue, name)
        record = self._get(path, ListenerRecord)
        return None if record is None else _checked(path, record)

    def listeners(self, queue: str) -> list[str]:
        """The names of the subscriptions that somebody is attached to, sorted. Raises UnknownQueue."""
        return self._names(records.listeners_path(check_name("queue", queue)), queue)

    def _subscription_path(self, queue: str, name: str) -> str:
        return records.subscription_path(check_name("queue", queue), check_name("subscription", name))

    def _unknown_subscription(self, queue: str, name: str) -> UnknownSubscription:
        near = near_names(name, self.subscriptions(queue))
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        return UnknownSubscription(f"queue {queue!r} has no subscription {name!r}{hint}")


def _busy(queue: str, name: str, holder: ListenerRecord) -> SubscriptionBusy:
    address = f"{holder.address}:{holder.port}"
    return SubscriptionBusy(
        f"subscription {name!r} of queue {queue!r} is held by the subscriber at {address}: stop that one, or take over"
        " with force",
        address=address,
    )


def _checked(path: str, record: ListenerRecord) -> ListenerRecord:
    if not record.address or not 0 < record.port < 65_536:
        raise CorruptRecord(f"the value of {path} cannot be: a listener at {record.address!r}, port {record.port}")
    return record
