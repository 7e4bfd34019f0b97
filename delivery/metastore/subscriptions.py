"""The catalog's subscriptions: their preferences in a table, and the subscribers that are attached, as znodes.

The two are in different places, and no transaction holds both. So each change of one is followed by a look at the
other, in an order in which nobody can slip through:

- Who attaches makes its listener, then writes the preferences that it has read once more, unchanged. If they are gone
  by then, or say that it has no place there, it takes its listener off again.
- Who deletes reads the version of the preferences, takes the listeners off, then deletes them under that version. If
  somebody attached after the listeners were taken off, the version has moved, and it begins again.
- Who changes what all members of a group must agree on reads the version, sees that nobody is attached, then writes
  under that version.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from delivery.errors import BadVersion, CorruptRecord, GroupMismatch, HootError, UnknownQueue, UnknownSubscription
from delivery.metastore import records
from delivery.metastore.access import ATTEMPTS, crowded, give_way
from delivery.metastore.awaited import Awaited, awaited
from delivery.metastore.groups import assign
from delivery.metastore.listeners import Listeners
from delivery.metastore.managers.changes import SaveState, Taken, TakeState
from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.managers.subscriptions import PlaceWatcher
from delivery.metastore.ops import InDoubt, NotEmpty
from delivery.metastore.records import ListenerRecord, SubscriptionRecord, differing_options
from delivery.metastore.replays import replay_queue
from delivery.metastore.tables.versions import Version, Versioned
from delivery.model import near_names


class Subscriptions(Listeners):
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

    def create_subscription(self, record: SubscriptionRecord) -> None:
        """Write a new subscription; nothing stays of it when its queue is deleted meanwhile.

        Raises UnknownQueue, BadVersion when it was made for another queue than the one of that name, and
        SubscriptionExists.
        """
        self._check_is_of_queue(record)
        subscriptions = self.managers.subscriptions
        version = subscriptions.create_subscription_data(record)
        try:
            self._check_is_of_queue(record)
        except (UnknownQueue, BadVersion):
            with contextlib.suppress(BadVersion, UnknownSubscription):
                subscriptions.delete_subscription_data(record.queue, record.name, version)
            raise

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
        """Delete a subscription, and that of its replays, with their states, and detach who is attached.

        States that are left when this breaks off count for no later subscription, and go with the queue. Raises
        UnknownSubscription.
        """
        replays = self._queue_of_replays(queue, name)
        self._delete(queue, name)
        if replays:
            with contextlib.suppress(UnknownSubscription, UnknownQueue):
                self._delete(replays, name)

    def _queue_of_replays(self, queue: str, name: str) -> str:
        """Empty without a subscription of its replays."""
        with contextlib.suppress(CorruptRecord):  # deleting mends that
            found = self.subscription(queue, name)
            if found is not None and found.replayed_ms:
                there = self.subscription(replay_queue(queue, name), name)
                return there.queue if there is not None and there.created_ms == found.replayed_ms else ""
        return ""

    def _delete(self, queue: str, name: str, generation: str | None = None) -> None:
        """As `delete_subscription`; with a generation, only one that was made for that queue of the name."""
        subscriptions = self.managers.subscriptions
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            version = self._version(queue, name, generation)
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

    def _version(self, queue: str, name: str, generation: str | None) -> Version | None:
        if generation is None:
            return self.managers.subscriptions.read_version(queue, name)
        found = self.managers.subscriptions.read_preferences(queue, name)
        return found.version if found is not None and found.value.generation == generation else None

    # -- states

    def states(self, queue: str, name: str) -> dict[int, SubscriptionState]:
        """How far a subscription has come, by partition; only where an owner has begun with it.

        Raises UnknownSubscription, CorruptRecord.
        """
        found = self.managers.subscriptions.read_states(self._preferences(queue, name).value)
        return {partition: one.value for partition, one in found.items()}

    def awaited(self, queue: str) -> Awaited:
        """How far the subscriptions of a queue are that its publishers may have to wait for."""
        return awaited(self.managers.subscriptions, queue)

    def take_states(self, takes: Sequence[TakeState]) -> list[Taken | HootError]:
        """See SubscriptionStates.take_states."""
        return self.managers.subscriptions.take_states(takes)

    def save_states(self, saves: Sequence[SaveState]) -> list[Version | HootError]:
        """See SubscriptionStates.save_states."""
        return self.managers.subscriptions.save_states(saves)

    # -- listeners

    def attach(
        self, queue: str, name: str, record: ListenerRecord, *, replace: ListenerRecord | None = None,
        agreed: SubscriptionRecord | None = None,
    ) -> None:  # fmt: skip
        """Make `record` a listener of a subscription for as long as this client's session lives.

        `replace` is a listener to take over from, as `listener` gave it; any other that is attached stays. Attaching
        the same record again renews it under the present session. `agreed` are the preferences that it counts on.
        Raises SubscriptionBusy with the `address` of the listener that holds the place, UnknownSubscription,
        BadVersion when it is another subscription than the one agreed, and GroupMismatch when the options of a group
        are no longer those agreed, or the kind is not for such a listener.
        """
        found = self._preferences(queue, name)
        _check_place(found.value, record, agreed)
        if not self._is_of_queue(found.value):  # left over, by who ended that queue and could not end the work
            raise UnknownSubscription(f"queue {queue!r} has no subscription {name!r}: that was an earlier queue's")
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            if self._put_listener(queue, name, record, replace):
                self._confirm(found, record, agreed)
                return
        raise crowded(f"the listeners of queue {queue!r}")

    def spread(self, queue: str, name: str) -> SubscriptionRecord:
        """The preferences of a group, with all partitions held by the members there are (groups.assign).

        With nobody attached they stay as they are. Raises UnknownSubscription, UnknownQueue, CorruptRecord, and
        BadVersion when others keep changing it.
        """

        def change(found: SubscriptionRecord) -> SubscriptionRecord:
            members = [one.member for one in self.members(queue, name) if one.member]
            if found.kind in ("exclusive", "key_shared") or not members:
                return found
            return msgspec.structs.replace(found, holders=assign(found.kind, members, found.starts, found.holders))

        return self.change_subscription(queue, name, change)

    def read_subscriptions(
        self, places: Sequence[tuple[str, str]], watch: PlaceWatcher | None = None
    ) -> list[SubscriptionRecord | CorruptRecord | None]:
        """The durable records of many (queue, subscription); a damaged one is its error.

        `watch` is called with each (queue, subscription) once, at its next change; of the damaged ones for
        DamagedPreferences alone. Raises Throttled when not all of them can be watched: none is then.
        """
        found = self.managers.subscriptions.read_many_preferences(places, watch)
        return [one.value if isinstance(one, Versioned) else one for one in found]

    def _confirm(
        self, found: Versioned[SubscriptionRecord], record: ListenerRecord, agreed: SubscriptionRecord | None
    ) -> None:  # fmt: skip
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
                try:
                    _check_place(found.value, record, agreed)
                except (GroupMismatch, BadVersion):
                    self._undo(queue, name, record)
                    raise
            else:
                return
        raise crowded(f"subscription {name!r}")

    def _undo(self, queue: str, name: str, record: ListenerRecord) -> None:
        """Leave nothing of an attachment to what was deleted."""
        self.detach(queue, name, record)
        self._drop_folder(queue)

    def _drop_folder(self, queue: str) -> None:
        """A queue that is gone has no folder of listeners, unless somebody is in it."""
        if self.managers.queues.read_version(queue) is None:
            with contextlib.suppress(NotEmpty):
                self._zk.delete(records.listeners_path(queue))

    # -- errors

    def _is_of_queue(self, preferences: SubscriptionRecord) -> bool:
        """Whether hosts serve it: not if it was made for an earlier queue of the name. Raises UnknownQueue."""
        found = self.managers.queues.read_queue(preferences.queue)
        if found is None:
            raise self._unknown_queue(preferences.queue)
        return found.value.generation == preferences.generation

    def _check_is_of_queue(self, preferences: SubscriptionRecord) -> None:
        """Raises UnknownQueue, BadVersion."""
        if not self._is_of_queue(preferences):
            raise BadVersion(
                f"subscription {preferences.name!r} is not one of this queue {preferences.queue!r}: that one was"
                " deleted, and another one of its name created"
            )

    def _preferences(self, queue: str, name: str) -> Versioned[SubscriptionRecord]:
        found = self.managers.subscriptions.read_preferences(queue, name)
        if found is None:
            raise self._unknown_subscription(queue, name)
        return found

    def _unknown_subscription(self, queue: str, name: str) -> HootError:
        """UnknownSubscription, or UnknownQueue."""
        if self.managers.queues.read_version(queue) is None:
            return self._unknown_queue(queue)
        near = near_names(name, self.managers.subscriptions.names_around(queue, name))
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        return UnknownSubscription(f"queue {queue!r} has no subscription {name!r}{hint}")


def _check_place(found: SubscriptionRecord, record: ListenerRecord, agreed: SubscriptionRecord | None) -> None:
    """Raises GroupMismatch when a listener has no place in a subscription, BadVersion when it was meant for another."""
    if agreed is not None and not found.is_same(agreed):
        raise BadVersion(f"subscription {found.name!r} of queue {found.queue!r} was deleted and made again by others")
    if (found.kind == "exclusive") == bool(record.member):
        raise GroupMismatch(
            f"subscription {found.name!r} of queue {found.queue!r} is {found.kind}: "
            + ("its members have names" if found.kind != "exclusive" else "it has no members")
        )
    if agreed is not None and record.member and (differing := differing_options(found, agreed)):
        raise GroupMismatch(
            f"subscription {found.name!r} of queue {found.queue!r} was changed at this moment: others have another"
            f" {' and '.join(differing)}"
        )
