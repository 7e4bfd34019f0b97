"""Named snapshots of where subscriptions stand: an entry for each subscription, with a field for each snapshot.

All that one snapshot says is written at once, and a subscription's snapshots together have the room of one entry. Each
names the subscription it was taken of, as states do: what an earlier subscription of the name left counts for nothing,
and makes room for the next snapshot.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from delivery.errors import BadVersion, CorruptRecord, HootError, InvalidRequest, SnapshotExists, UnknownSnapshot
from delivery.ids import ID_MAX
from delivery.metastore.errors import KeyExists, NoKey, ValueTooLarge
from delivery.metastore.managers.queues import remove_all
from delivery.metastore.managers.records import Codec, ParkedKey, subscription_key
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.tables.base import MetaStore, Remove
from delivery.metastore.tables.values import EMPTY, VALUE_BYTES_MAX, Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.model import PARTITIONS_MAX, check_name, lay_out, near_names

TABLE = "snapshots"
SNAPSHOTS_MAX: Final = 32
"""Of a subscription."""
ATTEMPTS: Final = 20

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z", re.ASCII)


class SavedPosition(msgspec.Struct, frozen=True):
    """Where a subscription stood in a partition."""

    position: int
    """Everything up to this id was acknowledged, given up, or is parked."""
    parked: tuple[ParkedKey, ...] = ()


class Snapshot(msgspec.Struct, frozen=True):
    """Where a subscription stood, per partition as it was saved last at that time."""

    generation: str
    created_ms: int
    """Of the subscription; with the queue's generation it says which one."""
    taken_ms: int
    positions: dict[int, SavedPosition]

    def is_of(self, preferences: SubscriptionRecord) -> bool:
        """Whether it counts for that subscription."""
        return (self.generation, self.created_ms) == (preferences.generation, preferences.created_ms)


lay_out(Snapshot)


def check_snapshot(snapshot: Snapshot) -> str | None:
    """What is wrong with a snapshot, None when nothing is."""
    sane = all(
        0 <= number < PARTITIONS_MAX and 0 <= one.position <= ID_MAX and all(key.ids for key in one.parked)
        for number, one in snapshot.positions.items()
    )
    return None if sane and snapshot.positions else str(snapshot)[:200]


def check_snapshot_name(name: object) -> str:
    """`name` if a snapshot can have it. Raises InvalidRequest."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidRequest(f"{repr(name)[:60]} is no snapshot name: use 1 to 64 of the characters A-Z a-z 0-9 . _ -")
    return name


class SubscriptionSnapshots:
    """The snapshots of subscriptions. Blocking and thread-safe."""

    def __init__(self, store: MetaStore) -> None:
        self._table = store.create_scannable_table(TABLE)

    def read_snapshots(self, preferences: SubscriptionRecord) -> dict[str, Snapshot]:
        """A subscription's snapshots, by name, in the order of their taking. Raises CorruptRecord."""
        queue, name = preferences.queue, preferences.name
        return _of(preferences, _decoded(queue, name, self._read(queue, name).value))

    def add_snapshot(self, preferences: SubscriptionRecord, name: str, snapshot: Snapshot) -> None:
        """Keep one more. Raises SnapshotExists, InvalidRequest when there is no room, BadVersion, CorruptRecord."""
        check_snapshot_name(name)

        def add(known: Mapping[str, Snapshot]) -> Value:
            if name in known:
                raise SnapshotExists(f"subscription {preferences.name!r} has a snapshot {name!r} already")
            if len(known) >= SNAPSHOTS_MAX:
                raise _no_room(f"{SNAPSHOTS_MAX} snapshots", known)
            return _encoded({**known, name: snapshot})

        self._change(preferences, add)

    def delete_snapshot(self, preferences: SubscriptionRecord, name: str) -> None:
        """Forget one. Raises UnknownSnapshot, BadVersion, CorruptRecord."""

        def delete(known: Mapping[str, Snapshot]) -> Value:
            if name not in known:
                raise unknown_snapshot(preferences, name, known)
            return _encoded({other: one for other, one in known.items() if other != name})

        self._change(preferences, delete)

    def drop_snapshots(self, queue: str, name: str, of: SubscriptionRecord | None) -> None:
        """Delete those of that subscription and of earlier ones of the name; all of them when it is not known.

        Not when somebody changes them at this moment: that is for a later subscription.
        """
        try:
            found = self._read(queue, name)
            known = _decoded(queue, name, found.value).values()
            later = of is not None and any(one.created_ms > of.created_ms for one in known)
        except CorruptRecord:
            found, later = Versioned(EMPTY, Version.ANY), False
        if later or found.version == Version.NEW:
            return
        [outcome] = self._table.remove_many([Remove(subscription_key(queue, name), found.version)])
        if isinstance(outcome, HootError) and not isinstance(outcome, NoKey | BadVersion):
            raise outcome

    def drop_snapshots_of_queue(self, queue: str) -> None:
        """Delete the snapshots of all subscriptions of a queue that ends, damaged ones, too."""
        remove_all(self._table, check_name("queue", queue))

    def _change(self, preferences: SubscriptionRecord, change: Callable[[Mapping[str, Snapshot]], Value]) -> None:
        """Write what `change` makes of the snapshots that are there, whoever else changes them at the same time."""
        queue, name = preferences.queue, preferences.name
        for _ in range(ATTEMPTS):
            found = self._read(queue, name)
            value = change(_of(preferences, _decoded(queue, name, found.value)))
            with contextlib.suppress(BadVersion, KeyExists, NoKey):
                self._table.put(subscription_key(queue, name), value, found.version, whole=True)
                return
        raise BadVersion(f"the snapshots of subscription {name!r} are being changed by others; try again")

    def _read(self, queue: str, name: str) -> Versioned[Value]:
        """The entry of a subscription; an empty one, with Version.NEW, where there is none."""
        try:
            return self._table.get(subscription_key(queue, name))
        except NoKey:
            return Versioned(EMPTY, Version.NEW)


def unknown_snapshot(preferences: SubscriptionRecord, name: str, known: Iterable[str]) -> UnknownSnapshot:
    """That there is none of that name, and which it may have meant."""
    near = near_names(name, known)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    return UnknownSnapshot(f"subscription {preferences.name!r} has no snapshot {name!r}{hint}")


def _of(preferences: SubscriptionRecord, known: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
    mine = [(name, one) for name, one in known.items() if one.is_of(preferences)]
    return dict(sorted(mine, key=lambda item: (item[1].taken_ms, item[0])))


def _decoded(queue: str, name: str, value: Value) -> dict[str, Snapshot]:
    key = subscription_key(queue, name)
    return {field: _codec(field).decode(value, key) for field in value}


def _encoded(known: Mapping[str, Snapshot]) -> Value:
    """The entry. Raises InvalidRequest when all of them together are too large for one."""
    fields = {field: _codec(field).encode(one)[field] for field, one in known.items()}
    try:
        return Value(fields)
    except ValueTooLarge:
        raise _no_room(f"{VALUE_BYTES_MAX >> 10} KiB of snapshots", known) from None


def _codec(name: str) -> Codec[Snapshot]:
    return Codec(name, Snapshot, check_snapshot, TABLE)


def _no_room(limit: str, known: Iterable[str]) -> InvalidRequest:
    return InvalidRequest(f"a subscription can have {limit}: delete one, such as {next(iter(known))!r}, the oldest")
