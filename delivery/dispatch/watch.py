"""The host's view of the attached subscriptions (the seed's SubscriptionZooKeeper, section 3.5.3).

A watch is a hint that something about a queue may have changed; what counts is the full read that follows. Every
`reconcile_seconds` the list of queues and a thousand subscriptions are read without any hint, the others in their turn
(`turns`), so that a lost one costs time and nothing else; and each time those that could not be read or watched.

Only queues that somebody is or was attached to have a folder in `/hoot/listeners`, and of these only the ones with a
listener now are looked at any further: a host reads neither the other queues nor the detached subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

import trio

from delivery import hop, logs
from delivery.dispatch.plan import Attached
from delivery.dispatch.turns import Turns
from delivery.errors import CorruptRecord, HootError, Throttled, UnknownQueue, UnknownSubscription
from delivery.metastore import records
from delivery.metastore.groups import SPREAD, fits
from delivery.metastore.managers.subscriptions import DamagedPreferences
from delivery.metastore.records import ListenerRecord, QueueRecord, SubscriptionRecord

log = logs.logger(__name__)

WATCHED_AT_ONCE: Final = 1000
"""New subscriptions that are read, and watched or not, together."""

Hint = Callable[[], None]
Place = tuple[str, str]
"""Queue and subscription."""
Seat = tuple[str, str, str]
"""Queue, subscription and member; no member for an exclusive one."""
K = TypeVar("K", bound=str | tuple[str, ...])
V = TypeVar("V")


class Watching(Protocol):
    """ZooKeeper's watches (metastore.zookeeper.ZooKeeperClient), as used here. Hints come from other threads."""

    def watch_children(self, path: str, hint: Hint) -> None:
        """Give a hint now and whenever the children of `path` may have changed."""

    def unwatch(self, path: str) -> None:
        """No more hints about `path`."""


class Registrations(Protocol):
    """What is attached (metastore.catalog.Catalog), as used here; blocking."""

    def attached_queues(self) -> list[str]:
        """The queues that somebody is or was attached to."""

    def seats(self, queues: Sequence[str]) -> list[dict[str, tuple[str, ...]]]:
        """Per queue, the subscriptions that somebody is attached to, with the members."""

    def read_queues(self, names: Sequence[str]) -> list[QueueRecord | CorruptRecord | None]:
        """The queues' records."""

    def read_subscriptions(
        self, places: Sequence[Place], watch: Callable[[Place], None] | None = None
    ) -> list[SubscriptionRecord | CorruptRecord | None]:
        """The preferences of many; `watch` is called for each once, from another thread, at their next change.

        Raises Throttled when not all of them can be watched: none is then.
        """

    def read_listeners(self, seats: Sequence[Seat]) -> list[ListenerRecord | CorruptRecord | None]:
        """The listeners of many."""

    def spread(self, queue: str, name: str) -> SubscriptionRecord:
        """The preferences of a group, after its partitions were spread over the members there are."""


class SubscriptionWatch:
    """Reads what is attached, and knows which queues to read again. Reading blocks: use a thread."""

    def __init__(self, watching: Watching, catalog: Registrations) -> None:
        self._watching, self._catalog = watching, catalog
        self._stale: set[str] = set()
        self._all_stale = self._list_stale = True
        self._turn_due = False
        self._turns = Turns()
        self._unsure: set[str] = set()
        """The queues of which something could not be read, or is not watched: no hint will tell of it."""
        self._hinted = trio.Event()
        self._watched: set[str] = set()
        """Paths of folders."""
        self._seen: set[Place] = set()
        """The subscriptions whose preferences are watched now."""
        self._complained: set[str] = set()
        self._post: Callable[[Callable[[], None]], None] = lambda _: None

    def begin(self) -> None:
        """Remember the trio thread that hints are handed to. Call once, on that thread."""
        token = trio.lowlevel.current_trio_token()

        def post(hint: Callable[[], None]) -> None:
            try:
                token.run_sync_soon(hint, idempotent=False)
            except trio.RunFinishedError:
                log.debug("a hint came after the end")

        self._post = post

    async def changed(self, seconds: float) -> None:
        """Return at the next hint, or after `seconds` with what has its turn due to be read again."""
        with trio.move_on_after(seconds) as waiting:
            await self._hinted.wait()
        if waiting.cancelled_caught:
            self._turn_due = self._list_stale = True

    def hint(self, queue: str | None = None) -> None:
        """Something about `queue`, or about which queues are attached to, may have changed. On the trio thread."""
        if queue is None:
            self._list_stale = True
        else:
            self._stale.add(queue)
        self._hinted.set()

    async def read(self, known: frozenset[str]) -> dict[str, dict[str, Attached]]:
        """Per queue that may have changed, what is attached to it; a queue that is gone is there, and empty.

        Raises MetadataUnavailable; then everything asked for stays due.
        """
        due, listed, everything, turn = self._stale, self._list_stale, self._all_stale, self._turn_due
        self._stale, self._hinted = set(), trio.Event()
        self._list_stale = self._all_stale = self._turn_due = False
        try:
            if listed:
                due = await hop.run_sync(self._due, due, known, everything, turn)
            return await hop.run_sync(self._read, sorted(due))
        except HootError:
            self._stale |= due
            self._list_stale |= listed
            self._all_stale |= everything
            self._turn_due |= turn
            raise

    def _due(self, hinted: set[str], known: frozenset[str], everything: bool, turn: bool) -> set[str]:
        """The queues to be read, by the list of those that there are."""
        self._watch(records.LISTENERS, None)
        folders = set(self._catalog.attached_queues())
        due = hinted | self._come_and_gone(folders)
        if everything:
            due |= known | folders
        elif turn:
            due |= self._unsure | self._turns.next(known | folders)
        return due

    def _read(self, stale: Sequence[str]) -> dict[str, dict[str, Attached]]:
        self._unsure.difference_update(stale)
        found: dict[str, dict[str, Attached]] = {queue: {} for queue in stale}
        seats = dict(zip(stale, self._catalog.seats(stale), strict=True))
        queues = self._queues([queue for queue in stale if seats[queue]])
        places = {(queue, name): members for queue in queues for name, members in sorted(seats[queue].items())}
        for attached in self._attached(queues, places):
            found[attached.subscription.queue][attached.subscription.name] = attached
        self._unsure.update(queue for queue, name in places if (queue, name) not in self._seen)
        self._turns.note({queue: len(seats[queue]) for queue in stale})
        return found

    def _queues(self, names: Sequence[str]) -> dict[str, QueueRecord]:
        """Those that are there and can be read."""
        return dict(self._sound(names, self._catalog.read_queues(names)))

    def _attached(
        self, queues: dict[str, QueueRecord], places: Mapping[Place, Sequence[str]]
    ) -> Iterable[Attached]:  # fmt: skip
        """What is attached to `places`, whose members are given."""
        subscriptions = dict(self._sound(places, self._read_subscriptions(list(places))))
        seats = [(*place, member) for place, members in places.items() for member in members]
        listeners = dict(self._sound(seats, self._catalog.read_listeners(seats)))
        for place, subscription in subscriptions.items():
            queue, exclusive = queues[place[0]], subscription.kind == "exclusive"
            found = [listeners.get((*place, member)) for member in places[place] if exclusive != bool(member)]
            present = tuple(one for one in found if one is not None and not one.pulls)
            if present and subscription.generation == queue.generation:
                spread = self._spread(place, subscription, present) if subscription.kind in SPREAD else subscription
                if spread is not None:
                    yield Attached(queue.generation, spread, present)

    def _spread(
        self, place: Place, found: SubscriptionRecord, members: Sequence[ListenerRecord]
    ) -> SubscriptionRecord | None:  # fmt: skip
        """A group whose members hold its partitions; None when it is gone."""
        if fits(found.holders, [one.member for one in members], found.starts):
            return found
        try:
            return self._catalog.spread(*place)
        except (UnknownSubscription, UnknownQueue):
            return None
        except CorruptRecord as error:
            self._complain(error)
            self._unsure.add(place[0])
            return None

    def _read_subscriptions(self, places: Sequence[Place]) -> Iterable[SubscriptionRecord | CorruptRecord | None]:
        """The preferences; those that are new to this host with a watch."""
        new = [place for place in places if place not in self._seen]
        found: dict[Place, SubscriptionRecord | CorruptRecord | None] = {}
        for at in range(0, len(new), WATCHED_AT_ONCE):
            part = new[at : at + WATCHED_AT_ONCE]
            found |= zip(part, self._read_watching(part), strict=True)
        rest = [place for place in places if place not in found]
        found |= zip(rest, self._catalog.read_subscriptions(rest), strict=True)
        return [found[place] for place in places]

    def _read_watching(self, places: Sequence[Place]) -> list[SubscriptionRecord | CorruptRecord | None]:
        self._seen.update(places)  # before: a change may come while the others are read
        try:
            found = self._catalog.read_subscriptions(places, self._changed)
        except Throttled:  # too many are watched: they are read each time, until there is room
            self._seen.difference_update(places)
            return self._catalog.read_subscriptions(places)
        except HootError:
            self._seen.difference_update(places)
            raise
        self._seen.difference_update(place for place, one in zip(places, found, strict=True) if _is_unwatched(one))
        return found

    def _changed(self, place: Place) -> None:
        self._seen.discard(place)
        self._post(partial(self.hint, place[0]))

    def _sound(self, keys: Iterable[K], found: Iterable[V | CorruptRecord | None]) -> Iterable[tuple[K, V]]:
        for key, one in zip(keys, found, strict=True):
            if isinstance(one, CorruptRecord):
                self._complain(one)
                self._unsure.add(key if isinstance(key, str) else key[0])
            elif one is not None:
                yield key, one

    def _watch(self, path: str, queue: str | None) -> None:
        if path not in self._watched:
            self._watching.watch_children(path, partial(self._post, partial(self.hint, queue)))
            self._watched.add(path)

    def _come_and_gone(self, queues: set[str]) -> set[str]:
        """The queues whose folder is new, which is watched from now on, or gone, which is watched no longer."""
        folders = {records.listeners_path(queue): queue for queue in queues}
        watched = self._watched - {records.LISTENERS}
        for path in watched - folders.keys():
            self._watching.unwatch(path)
            self._watched.discard(path)
        for path in folders.keys() - watched:
            self._watch(path, folders[path])
        gone = {path.rpartition("/")[2] for path in watched - folders.keys()}
        return gone | {queue for path, queue in folders.items() if path not in watched}

    def _complain(self, error: CorruptRecord) -> None:
        if error.message not in self._complained:
            log.error("%s; it is left alone until it is mended", error.message)
            self._complained.add(error.message)


def _is_unwatched(found: SubscriptionRecord | CorruptRecord | None) -> bool:
    return isinstance(found, CorruptRecord) and not isinstance(found, DamagedPreferences)
