"""The catalog's subscriptions: their preferences in a table, and the subscribers that are attached, as znodes.

The two are in different places, and no transaction holds both. So each change of one is followed by a look at the
other, in an order in which nobody can slip through:

- Who attaches makes its listener, then writes the preferences that it has read once more, unchanged. If they are gone
  by then, it takes its listener off again.
- Who deletes reads the version of the preferences, takes the listener off, then deletes them under that version. If
  somebody attached after the listener was taken off, the version has moved, and it begins again.

Listeners are ephemeral znodes, and the version of an ephemeral one proves nothing (see `ops`): each change of one moves
the version of the queue's folder in the same transaction. So of several who attach or take over at once one succeeds,
and nobody removes a listener that it has not seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from delivery.errors import BadVersion, CorruptRecord, HootError, SubscriptionBusy, UnknownSubscription
from delivery.metastore import records
from delivery.metastore.access import ATTEMPTS, crowded, give_way
from delivery.metastore.managers.records import SubscriptionState, subscription_key
from delivery.metastore.managers.states import SaveState, Taken, TakeState
from delivery.metastore.managers.subscriptions import PlaceWatcher
from delivery.metastore.ops import Create, Delete, InDoubt, NotEmpty, Op, Set
from delivery.metastore.queues import Queues
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.tables.versions import Version, Versioned
from delivery.model import check_name, near_names


class Subscriptions(Queues):
    """The durable records of subscriptions, how far they have come, and who is attached."""

    def subscription(self, queue: str, name: str) -> SubscriptionRecord | None:
        """The subscription's durable record, None when there is none. Raises CorruptRecord."""
        found = self.managers.subscriptions.read_preferences(queue, name)
        return None if found is None else found.value

    def subscriptions(self, queue: str) -> list[str]:
        """The names of a queue's subscriptions, attached or not, sorted. Raises UnknownQueue."""
        self._check_queue(queue)
        names: list[str] = []
        while page := self.managers.subscriptions.list_subscription_names(queue, names[-1] if names else None):
            names += page
        return names

    def put_subscription(self, record: SubscriptionRecord, *, create: bool) -> None:
        """Write a new subscription, or another record for one that is there.

        Raises UnknownQueue; SubscriptionExists when a new one is there already; BadVersion when the one to change is
        another now, and when others keep changing it; UnknownSubscription when it is not there.
        """
        if create:
            self._create(record)
            return
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            found = self._preferences(record.queue, record.name)
            if (found.value.generation, found.value.created_ms) != (record.generation, record.created_ms):
                raise BadVersion(f"subscription {record.name!r} was deleted and made again by somebody else")
            try:
                self.managers.subscriptions.update_subscription_data(record, found.version)
            except BadVersion:
                continue
            return
        raise crowded(f"subscription {record.name!r}")

    def change_subscription(
        self, queue: str, name: str, change: Callable[[SubscriptionRecord], SubscriptionRecord]
    ) -> SubscriptionRecord:
        """Change the preferences of a subscription, whoever else changes them at the same time; gives the new ones.

        `change` may be called more than once. Raises UnknownQueue, UnknownSubscription, BadVersion when others keep
        changing it.
        """
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            found = self._preferences(queue, name)
            wanted = change(found.value)
            if wanted == found.value:
                return wanted
            try:
                self.managers.subscriptions.update_subscription_data(wanted, found.version)
            except BadVersion:
                continue
            return wanted
        raise crowded(f"subscription {name!r}")

    def delete_subscription(self, queue: str, name: str) -> None:
        """Delete a subscription with its states, and detach who is attached. Raises UnknownSubscription.

        States that are left when this breaks off count for no later subscription, and go with the queue.
        """
        subscriptions = self.managers.subscriptions
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            version = subscriptions.read_version(queue, name)
            if version is None and attempt == 0:
                raise self._unknown_subscription(queue, name)
            if version is None:
                return
            if not self._take_off(queue, name):
                continue
            try:
                subscriptions.delete_subscription_data(queue, name, version)
            except BadVersion:
                continue  # somebody has attached since then
            except UnknownSubscription:
                return
            return
        raise crowded(f"subscription {name!r}")

    def _create(self, record: SubscriptionRecord) -> None:
        """A new subscription; nothing stays of one whose queue was deleted meanwhile."""
        self._check_queue(record.queue)
        subscriptions = self.managers.subscriptions
        version = subscriptions.create_subscription_data(record)
        if self.managers.queues.read_version(record.queue) is None:
            with contextlib.suppress(BadVersion, UnknownSubscription):
                subscriptions.delete_subscription_data(record.queue, record.name, version)
            raise self._unknown_queue(record.queue)

    # -- states

    def states(self, queue: str, name: str) -> dict[int, SubscriptionState]:
        """How far a subscription has come, by partition; only where an owner has begun with it.

        Raises UnknownSubscription, CorruptRecord.
        """
        found = self.managers.subscriptions.read_states(self._preferences(queue, name).value)
        return {partition: one.value for partition, one in found.items()}

    def take_states(self, takes: Sequence[TakeState]) -> list[Taken | HootError]:
        """See SubscriptionStates.take_states."""
        return self.managers.subscriptions.take_states(takes)

    def save_states(self, saves: Sequence[SaveState]) -> list[Version | HootError]:
        """See SubscriptionStates.save_states."""
        return self.managers.subscriptions.save_states(saves)

    # -- listeners

    def attach(
        self, queue: str, name: str, record: ListenerRecord, *, replace: ListenerRecord | None = None
    ) -> None:  # fmt: skip
        """Make `record` the listener of a subscription for as long as this client's session lives.

        `replace` is a listener to take over from, as `listener` gave it; any other that is attached stays. Attaching
        the same record again renews it under the present session. Raises SubscriptionBusy with the `address` of the
        listener that holds the subscription, UnknownSubscription.
        """
        found = self._preferences(queue, name)
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            if self._put_listener(queue, name, record, replace):
                self._confirm(found, record)
                return
        raise crowded(f"the listeners of queue {queue!r}")

    def detach(self, queue: str, name: str, record: ListenerRecord) -> None:
        """Take `record` off a subscription; does nothing when it is not, or no longer, what is attached."""
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            if self._take_off(queue, name, record):
                return
        raise crowded(f"the listeners of queue {queue!r}")

    def listener(self, queue: str, name: str) -> ListenerRecord | None:
        """Who is attached to a subscription, None when nobody is. Raises CorruptRecord."""
        path = _listener_path(queue, name)
        record = self._get(path, ListenerRecord)
        return None if record is None else _checked(path, record)

    def listeners(self, queue: str) -> list[str]:
        """The names of the subscriptions that somebody is attached to, sorted. Raises UnknownQueue."""
        names = self._zk.children(records.listeners_path(check_name("queue", queue)))
        if not names:
            self._check_queue(queue)
        return names or []

    def attached_queues(self) -> list[str]:
        """The queues that somebody is or was attached to, sorted."""
        return self._zk.children(records.LISTENERS) or []

    def attached(self, queues: Sequence[str]) -> list[list[str]]:
        """Per queue the names of the subscriptions that somebody is attached to, sorted; none for no queue."""
        folders = [records.listeners_path(check_name("queue", queue)) for queue in queues]
        return [names or [] for names in self._zk.children_many(folders)]

    def read_subscriptions(
        self, places: Sequence[tuple[str, str]], watch: PlaceWatcher | None = None
    ) -> list[SubscriptionRecord | CorruptRecord | None]:
        """The durable records of many (queue, subscription); a damaged one is its error.

        `watch` is called with each (queue, subscription) once, at its next change; not for those that are damaged.
        Raises Throttled when not all of them can be watched: none is then.
        """
        found = self.managers.subscriptions.read_many_preferences(places, watch)
        return [one.value if isinstance(one, Versioned) else one for one in found]

    def read_listeners(self, places: Sequence[tuple[str, str]]) -> list[ListenerRecord | CorruptRecord | None]:
        """The listeners of many (queue, subscription); a damaged one is its error."""
        paths = [_listener_path(*place) for place in places]
        return [
            None if found is None else _decoded(path, found[0])
            for path, found in zip(paths, self._zk.get_many(paths), strict=True)
        ]

    def _put_listener(self, queue: str, name: str, record: ListenerRecord, replace: ListenerRecord | None) -> bool:
        """Attach, if nobody changes the queue's listeners at the same time."""
        folder, path, value = records.listeners_path(queue), _listener_path(queue, name), records.encode(record)
        guard, held = self._zk.get_many([folder, path])
        ops: list[Op] = [Create(folder) if guard is None else Set(folder, b"", guard[1])]
        if held is not None:
            holder = _checked(path, records.decode(held[0], ListenerRecord, path))
            if holder not in (record, replace):
                raise _busy(queue, name, holder)
            ops.append(Delete(path, held[1]))
        refused = self._apply([*ops, Create(path, value, ephemeral=True)], path, value)
        if refused is not None and not isinstance(refused.error, BadVersion):
            raise refused.error
        return refused is None

    def _confirm(self, found: Versioned[SubscriptionRecord], record: ListenerRecord) -> None:
        """Let everybody who has looked at the subscription before the listener was there know that it has one now."""
        queue, name = found.value.queue, found.value.name
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            try:
                self.managers.subscriptions.touch_subscription_data(found.value, found.version)
            except (BadVersion, InDoubt, UnknownSubscription):
                again = self.managers.subscriptions.read_preferences(queue, name)
                if again is None:
                    self._undo(queue, name, record)
                    raise self._unknown_subscription(queue, name) from None
                found = again
            else:
                return
        raise crowded(f"subscription {name!r}")

    def _undo(self, queue: str, name: str, record: ListenerRecord) -> None:
        """Leave nothing of an attachment to what was deleted."""
        self.detach(queue, name, record)
        if self.managers.queues.read_version(queue) is None:
            with contextlib.suppress(NotEmpty):
                self._zk.delete(records.listeners_path(queue))

    def _take_off(self, queue: str, name: str, only: ListenerRecord | None = None) -> bool:
        """Detach who is attached, if that is `only`; whether nobody was in the way."""
        folder, path = records.listeners_path(queue), _listener_path(queue, name)
        guard, held = self._zk.get_many([folder, path])
        if held is None or (only is not None and records.decode(held[0], ListenerRecord, path) != only):
            return True
        ops: list[Op] = [] if guard is None else [Set(folder, b"", guard[1])]
        return self._zk.multi([*ops, Delete(path, held[1])]) is None

    # -- errors

    def _preferences(self, queue: str, name: str) -> Versioned[SubscriptionRecord]:
        found = self.managers.subscriptions.read_preferences(queue, name)
        if found is None:
            raise self._unknown_subscription(queue, name)
        return found

    def _check_queue(self, queue: str) -> None:
        if self.managers.queues.read_version(queue) is None:
            raise self._unknown_queue(queue)

    def _unknown_subscription(self, queue: str, name: str) -> HootError:
        """UnknownSubscription, or UnknownQueue."""
        if self.managers.queues.read_version(queue) is None:
            return self._unknown_queue(queue)
        near = near_names(name, self.managers.subscriptions.names_around(queue, name))
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        return UnknownSubscription(f"queue {queue!r} has no subscription {name!r}{hint}")


def _listener_path(queue: str, name: str) -> str:
    subscription_key(queue, name)
    return records.listener_path(queue, name)


def _busy(queue: str, name: str, holder: ListenerRecord) -> SubscriptionBusy:
    return SubscriptionBusy(
        f"subscription {name!r} of queue {queue!r} is held by the subscriber at {holder.host_port}: stop that one,"
        " or take over with force",
        address=holder.host_port,
    )


def _decoded(path: str, value: bytes) -> ListenerRecord | CorruptRecord:
    try:
        return _checked(path, records.decode(value, ListenerRecord, path))
    except CorruptRecord as error:
        return error


def _checked(path: str, record: ListenerRecord) -> ListenerRecord:
    if not record.address or not 0 < record.port < 65_536:
        raise CorruptRecord(f"the value of {path} cannot be: a listener at {record.address!r}, port {record.port}")
    return record
