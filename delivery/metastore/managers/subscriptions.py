"""The subscriptions of a queue (seed 000, SubscriptionDataManager): preferences here, states in `states`.

Hedwig keeps both as fields of one entry. Here one subscription reads many partitions, each with an owner of its own, so
every state is an entry by itself and has its own version: an update of the preferences and a save of a state are never
in each other's way, and the version that one of them was read with stays good when the other changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from delivery.errors import (
    BadVersion,
    CorruptRecord,
    HootError,
    InvalidRequest,
    SubscriptionExists,
    UnknownSubscription,
)
from delivery.metastore.errors import KeyExists, NoKey
from delivery.metastore.managers.queues import names_around
from delivery.metastore.managers.records import (
    AFTER,
    SEPARATOR,
    Codec,
    SubscriptionData,
    check_preferences,
    subscription_key,
)
from delivery.metastore.managers.snapshots import SubscriptionSnapshots
from delivery.metastore.managers.states import SubscriptionStates
from delivery.metastore.ops import InDoubt
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.tables.base import (
    Found,
    KeyWatcher,
    MetaStore,
    MetastoreCursor,
    MetastoreTableItem,
    Remove,
    WatchEvent,
)
from delivery.metastore.tables.values import ALL, NONE, Fields, Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.model import check_name

TABLE = "subscriptions"
PAGE_MAX = 1000

_CODEC = Codec("preferences", SubscriptionRecord, check_preferences, TABLE)

PlaceWatcher = Callable[[tuple[str, str]], None]
"""Called with queue and name, from a thread that must not wait (see tables.base.Watcher)."""
Listed = tuple[str, Versioned[SubscriptionRecord] | CorruptRecord]
"""A subscription's name and preferences, or what is wrong with them."""


class DamagedPreferences(CorruptRecord):
    """A sound entry, and what it holds are no preferences. Tables know nothing of these: they watch it like others."""


class SubscriptionDataManager(SubscriptionStates):
    """Subscriptions and their states. Blocking and thread-safe."""

    def __init__(self, store: MetaStore) -> None:
        super().__init__(store)
        self._subscriptions = store.create_scannable_table(TABLE)
        self.snapshots = SubscriptionSnapshots(store)

    def is_partial_update_supported(self) -> bool:
        """Yes: preferences and states are changed without each other."""
        return True

    def create_subscription_data(self, preferences: SubscriptionRecord) -> Version:
        """A new subscription, without states; gives its first version. Raises SubscriptionExists."""
        try:
            return self._put(preferences, Version.NEW)
        except KeyExists:
            raise SubscriptionExists(
                f"queue {preferences.queue!r} has a subscription {preferences.name!r} already"
            ) from None

    def update_subscription_data(self, preferences: SubscriptionRecord, version: Version) -> Version:
        """Other preferences for a subscription of this version; its states stay. Gives the new version.

        Raises BadVersion, UnknownSubscription; InvalidRequest when it is another subscription than the one that is
        there, by its `created_ms` or `generation`, as the states would no longer be its own.
        """
        found = self._known(preferences)
        if not found.value.is_same(preferences):
            raise InvalidRequest(f"this is another subscription {preferences.name!r} than the one that is there")
        return self._change(preferences, version)

    def touch_subscription_data(self, preferences: SubscriptionRecord, version: Version) -> Version:
        """Write what was read at this version again: who has read it, too, can no longer change or delete by it.

        Raises BadVersion, UnknownSubscription. MetadataUnavailable, in doubt or not: read and touch again.
        """
        key = subscription_key(preferences.queue, preferences.name)
        try:
            return self._subscriptions.put(key, _CODEC.encode(preferences), version, whole=True)
        except NoKey:
            raise _unknown(preferences.queue, preferences.name) from None

    def replace_subscription_data(self, preferences: SubscriptionRecord, version: Version) -> Version:
        """Another subscription in the place of one of this version: new preferences, and no states.

        Raises BadVersion, UnknownSubscription; InvalidRequest when it cannot be told from the one that is there.
        """
        old = self._known(preferences).value
        if old.is_same(preferences):
            raise InvalidRequest(f"another subscription {preferences.name!r} needs another time of creation")
        new = self._change(preferences, version)
        self.delete_states(preferences.queue, preferences.name, old)
        self.snapshots.drop_snapshots(preferences.queue, preferences.name, old)
        return new

    def delete_subscription_data(self, queue: str, name: str, version: Version) -> None:
        """Delete a subscription of this version, then its states and snapshots. Raises BadVersion, UnknownSubscription.

        What is left of them when this breaks off count for no later subscription of that name.
        """
        deleted = None
        with contextlib.suppress(CorruptRecord):  # that must not keep it from being deleted
            found = self.read_preferences(queue, name)
            deleted = None if found is None else found.value
        try:
            self._subscriptions.remove(subscription_key(queue, name), version)
        except NoKey:
            raise _unknown(queue, name) from None
        self.delete_states(queue, name, deleted)
        self.snapshots.drop_snapshots(queue, name, deleted)

    def delete_all_subscription_data(self, queue: str, before_each: Callable[[], object]) -> None:
        """Delete all subscriptions and states of a queue, damaged or not, page by page.

        `before_each` is called between the reading of a page's versions and their deletion; those of its subscriptions
        that were changed meanwhile come again.
        """
        while page := self._versions(queue):
            before_each()
            for outcome in self._subscriptions.remove_many(page):
                if isinstance(outcome, HootError) and not isinstance(outcome, NoKey | BadVersion):
                    raise outcome
        self.delete_states_of_queue(queue)
        self.snapshots.drop_snapshots_of_queue(queue)

    def read_version(self, queue: str, name: str) -> Version | None:
        """The version of a subscription's preferences, damaged or not; None when there are none."""
        try:
            return self._subscriptions.get(subscription_key(queue, name), NONE).version
        except NoKey:
            return None

    def read_many_preferences(
        self, places: Sequence[tuple[str, str]], watch: PlaceWatcher | None = None
    ) -> list[Versioned[SubscriptionRecord] | CorruptRecord | None]:
        """The preferences of many (queue, name) at a time; damaged ones as their errors.

        `watch` is called with each (queue, name) once, at their next change, of the damaged ones for DamagedPreferences
        alone; see MetastoreTable.get_many.
        """
        keys = [subscription_key(queue, name) for queue, name in places]
        found = zip(keys, self._subscriptions.get_many(keys, watch=watch and _by_place(watch)), strict=True)
        return [_decoded_found(key, one) for key, one in found]

    def read_preferences(self, queue: str, name: str) -> Versioned[SubscriptionRecord] | None:
        """A subscription's preferences and their version, None when there is none. Raises CorruptRecord."""
        key = subscription_key(queue, name)
        try:
            found = self._subscriptions.get(key)
        except NoKey:
            return None
        return Versioned(_decoded(key, found.value), found.version)

    def read_subscription_data(self, queue: str, name: str) -> Versioned[SubscriptionData] | None:
        """All of a subscription and the version of its preferences, None when there is none. Raises CorruptRecord."""
        found = self.read_preferences(queue, name)
        if found is None:
            return None
        return Versioned(SubscriptionData(found.value, self.read_states(found.value)), found.version)

    def read_subscriptions(self, queue: str) -> dict[str, Versioned[SubscriptionData]]:
        """All of all subscriptions of a queue, by name; empty when there are none. Raises CorruptRecord.

        For queues of a few thousand; `list_subscriptions` goes page by page.
        """
        everything: dict[str, Versioned[SubscriptionData]] = {}
        after: str | None = None
        while page := self.list_subscriptions(queue, after):
            for name, found in page:
                if isinstance(found, CorruptRecord):
                    raise found
                everything[name] = Versioned(
                    SubscriptionData(found.value, self.read_states(found.value)), found.version
                )
            after = page[-1][0]
        return everything

    def list_subscriptions(self, queue: str, after: str | None = None, limit: int = PAGE_MAX) -> list[Listed]:
        """The next subscriptions of a queue by name, those behind `after`, at most `limit`; empty at the end."""
        return [_listed(item) for item in self._page(queue, after, limit, ALL)]

    def list_subscription_names(self, queue: str, after: str | None = None, limit: int = PAGE_MAX) -> list[str]:
        """The names that `list_subscriptions` would give, without reading the subscriptions."""
        names: list[str] = []
        with self._listing(queue, after, limit) as cursor:
            while len(names) < limit and cursor.has_more_entries():
                names += [key.partition(SEPARATOR)[2] for key in cursor.read_keys(limit - len(names))]
        return names

    def names_around(self, queue: str, name: str) -> list[str]:
        """The queue's names next to `name` in their order, some hundreds on each side."""
        prefix = check_name("queue", queue)
        keys = names_around(self._subscriptions, subscription_key(queue, name), prefix + SEPARATOR, prefix + AFTER)
        return [key.partition(SEPARATOR)[2] for key in keys]

    def _are_there(self, subscriptions: Sequence[SubscriptionRecord]) -> list[bool]:
        places = list(dict.fromkeys((one.queue, one.name) for one in subscriptions))
        found = dict(zip(places, self.read_many_preferences(places), strict=True))
        there = [(one, found[one.queue, one.name]) for one in subscriptions]
        return [isinstance(now, Versioned) and now.value.is_same(one) for one, now in there]

    def _page(self, queue: str, after: str | None, limit: int, fields: Fields) -> list[MetastoreTableItem]:
        items: list[MetastoreTableItem] = []
        with self._listing(queue, after, limit, fields) as cursor:
            while len(items) < limit and cursor.has_more_entries():
                items += cursor.read_entries(limit - len(items))
        return items

    def _versions(self, queue: str) -> list[Remove]:
        """How to remove the first page of a queue's subscriptions as they are now."""
        return [Remove(item.key, item.version) for item in self._page(queue, None, PAGE_MAX, NONE)]

    def _listing(self, queue: str, after: str | None, limit: int, fields: Fields = ALL) -> MetastoreCursor:
        if not 1 <= limit <= PAGE_MAX:
            raise InvalidRequest(f"a page has 1 to {PAGE_MAX} subscriptions, not {limit}")
        prefix = check_name("queue", queue)
        first = prefix + SEPARATOR + (after or "")
        return self._subscriptions.open_cursor(first, after is None, prefix + AFTER, False, fields=fields)

    def _known(self, preferences: SubscriptionRecord) -> Versioned[SubscriptionRecord]:
        found = self.read_preferences(preferences.queue, preferences.name)
        if found is None:
            raise _unknown(preferences.queue, preferences.name)
        return found

    def _change(self, preferences: SubscriptionRecord, version: Version) -> Version:
        if version == Version.NEW:
            raise BadVersion(f"subscription {preferences.name!r} is there already: change it under its version")
        try:
            return self._put(preferences, version)
        except NoKey:
            raise _unknown(preferences.queue, preferences.name) from None

    def _put(self, preferences: SubscriptionRecord, version: Version) -> Version:
        key = subscription_key(preferences.queue, preferences.name)
        try:
            return self._subscriptions.put(key, _CODEC.encode(preferences), version, whole=True)
        except InDoubt:
            found = self.read_preferences(preferences.queue, preferences.name)
            if found is None or found.value != preferences:
                raise
            return found.version


def _by_place(watch: PlaceWatcher) -> KeyWatcher:
    def changed(key: str, _: WatchEvent) -> None:
        queue, name = key.split(SEPARATOR, 1)
        watch((queue, name))

    return changed


def _listed(item: MetastoreTableItem) -> Listed:
    found = _decoded_found(item.key, item.found)
    assert found is not None
    return item.key.partition(SEPARATOR)[2], found


def _decoded_found(key: str, found: Found) -> Versioned[SubscriptionRecord] | CorruptRecord | None:
    if not isinstance(found, Versioned):
        return found
    try:
        return Versioned(_decoded(key, found.value), found.version)
    except CorruptRecord as error:
        return DamagedPreferences(error.message)


def _decoded(key: str, value: Value) -> SubscriptionRecord:
    record = _CODEC.decode(value, key)
    if subscription_key(record.queue, record.name) != key:
        raise CorruptRecord(f"entry {key!r} of table {TABLE} is that of another subscription, {record.name!r}")
    return record


def _unknown(queue: str, name: str) -> UnknownSubscription:
    return UnknownSubscription(f"queue {queue!r} has no subscription {name!r}")
