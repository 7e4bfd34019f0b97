"""The subscriptions of a queue (seed 000, SubscriptionDataManager): preferences here, states in `states`.

Hedwig keeps both as fields of one entry. Here one subscription reads many partitions, each with an owner of its own, so
every state is an entry by itself and has its own version: an update of the preferences and a save of a state are never
in each other's way, and the version that one of them was read with stays good when the other changes.
"""

from __future__ import annotations

import contextlib

from delivery.errors import (
    BadVersion,
    CorruptRecord,
    InvalidRequest,
    KeyExists,
    NoKey,
    SubscriptionExists,
    UnknownSubscription,
)
from delivery.metastore.managers.records import (
    AFTER,
    SEPARATOR,
    Codec,
    SubscriptionData,
    check_preferences,
    subscription_key,
)
from delivery.metastore.managers.states import SubscriptionStates
from delivery.metastore.ops import InDoubt
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.tables.base import MetaStore, MetastoreCursor, MetastoreTableItem
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.model import check_name

TABLE = "subscriptions"
PAGE_MAX = 1000

_CODEC = Codec("preferences", SubscriptionRecord, check_preferences, TABLE)

Listed = tuple[str, Versioned[SubscriptionRecord] | CorruptRecord]
"""A subscription's name and preferences, or what is wrong with them."""


class SubscriptionDataManager(SubscriptionStates):
    """Subscriptions and their states. Blocking and thread-safe."""

    def __init__(self, store: MetaStore) -> None:
        super().__init__(store)
        self._subscriptions = store.create_scannable_table(TABLE)

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
        if not _is_same(found.value, preferences):
            raise InvalidRequest(f"this is another subscription {preferences.name!r} than the one that is there")
        return self._change(preferences, version)

    def replace_subscription_data(self, preferences: SubscriptionRecord, version: Version) -> Version:
        """Another subscription in the place of one of this version: new preferences, and no states.

        Raises BadVersion, UnknownSubscription; InvalidRequest when it cannot be told from the one that is there.
        """
        old = self._known(preferences).value
        if _is_same(old, preferences):
            raise InvalidRequest(f"another subscription {preferences.name!r} needs another time of creation")
        new = self._change(preferences, version)
        self.delete_states(preferences.queue, preferences.name, old)
        return new

    def delete_subscription_data(self, queue: str, name: str, version: Version) -> None:
        """Delete a subscription of this version, then its states. Raises BadVersion, UnknownSubscription.

        States that are left when this breaks off count for no later subscription of that name.
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
        listed: list[Listed] = []
        with self._listing(queue, after, limit) as cursor:
            while len(listed) < limit and cursor.has_more_entries():
                listed += [_listed(item) for item in cursor.read_entries(limit - len(listed))]
        return listed

    def list_subscription_names(self, queue: str, after: str | None = None, limit: int = PAGE_MAX) -> list[str]:
        """The names that `list_subscriptions` would give, without reading the subscriptions."""
        names: list[str] = []
        with self._listing(queue, after, limit) as cursor:
            while len(names) < limit and cursor.has_more_entries():
                names += [key.partition(SEPARATOR)[2] for key in cursor.read_keys(limit - len(names))]
        return names

    def _listing(self, queue: str, after: str | None, limit: int) -> MetastoreCursor:
        if not 1 <= limit <= PAGE_MAX:
            raise InvalidRequest(f"a page has 1 to {PAGE_MAX} subscriptions, not {limit}")
        prefix = check_name("queue", queue)
        first = prefix + SEPARATOR + (after or "")
        return self._subscriptions.open_cursor(first, after is None, prefix + AFTER, False)

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


def _is_same(one: SubscriptionRecord, other: SubscriptionRecord) -> bool:
    return (one.generation, one.created_ms) == (other.generation, other.created_ms)


def _listed(item: MetastoreTableItem) -> Listed:
    name = item.key.partition(SEPARATOR)[2]
    try:
        return name, Versioned(_decoded(item.key, item.value), item.version)
    except CorruptRecord as error:
        return name, error


def _decoded(key: str, value: Value) -> SubscriptionRecord:
    record = _CODEC.decode(value, key)
    if subscription_key(record.queue, record.name) != key:
        raise CorruptRecord(f"entry {key!r} of table {TABLE} is that of another subscription, {record.name!r}")
    return record


def _unknown(queue: str, name: str) -> UnknownSubscription:
    return UnknownSubscription(f"queue {queue!r} has no subscription {name!r}")
