"""What a host sees of the attached subscriptions while queues come, go and are damaged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec
import trio

from delivery.dispatch.watch import WATCHED_AT_ONCE, Place, Seat, SubscriptionWatch
from delivery.errors import CorruptRecord, MetadataUnavailable, Throttled, UnknownSubscription
from delivery.metastore import records
from delivery.metastore.groups import Kind, assign
from delivery.metastore.records import ListenerRecord, QueueRecord, SubscriptionRecord
from delivery.model import QueueSettings
from tests.hosting import eventually

GENERATION = "g"


class ScriptedTree:
    """Queues with a listener each, and any number that nobody was ever attached to."""

    def __init__(self, *queues: str) -> None:
        self.listeners = {queue: ["mail"] for queue in queues}
        self.generation = GENERATION
        self.hints: dict[str, Callable[[], None]] = {}
        self.watchers: dict[Place, Callable[[], None]] = {}
        self.unreadable: set[Place] = set()
        self.requests = 0  # for preferences
        self.topics: tuple[str, ...] = ()
        self.damaged: set[str] = set()
        self.read: list[str] = []  # the queues whose records were read
        self.away = self.throttled = self.deleted = False
        self.kind: Kind = "exclusive"
        self.members: tuple[str, ...] = ("",)
        self.like = ListenerRecord(address="127.0.0.1", port=1, token="t")
        self.holders: dict[str, tuple[int, ...]] = {}
        self.spreads = 0

    def watch_children(self, path: str, hint: Callable[[], None]) -> None:
        self.hints[path] = hint

    def unwatch(self, path: str) -> None:
        self.hints.pop(path, None)

    def attached_queues(self) -> list[str]:
        if self.away:
            raise MetadataUnavailable("away")
        return sorted(self.listeners)

    def seats(self, queues: Sequence[str]) -> list[dict[str, tuple[str, ...]]]:
        if self.away:
            raise MetadataUnavailable("away")
        return [dict.fromkeys(self.listeners.get(queue, ()), self.members) for queue in queues]

    def read_queues(self, names: Sequence[str]) -> list[QueueRecord | CorruptRecord | None]:
        self.read += names
        return [self._queue(name) for name in names]

    def _queue(self, name: str) -> QueueRecord | CorruptRecord | None:
        if name in self.damaged:
            return CorruptRecord(f"{name} does not parse")
        return QueueRecord(name, self.generation, 0, QueueSettings()) if name in self.listeners else None

    def read_subscriptions(
        self, places: Sequence[Place], watch: Callable[[Place], None] | None = None
    ) -> list[SubscriptionRecord | CorruptRecord | None]:
        self.requests += bool(places)
        if watch is not None:
            if self.throttled:
                raise Throttled("too many")
            assert self.watchers.keys().isdisjoint(places), "it is watched already"
            self.watchers |= {place: partial(watch, place) for place in places if place not in self.unreadable}
        return [self._subscription(*place) for place in places]

    def _subscription(self, queue: str, name: str) -> SubscriptionRecord | CorruptRecord:
        if (queue, name) in self.unreadable:
            return CorruptRecord(f"{queue}/{name} does not parse")
        return SubscriptionRecord(
            name=name, queue=queue, generation=GENERATION, created_ms=0, starts={0: 0, 1: 0}, all_partitions=True,
            topics=self.topics, kind=self.kind, holders=self.holders,
        )  # fmt: skip

    def read_listeners(self, seats: Sequence[Seat]) -> list[ListenerRecord | CorruptRecord | None]:
        return [msgspec.structs.replace(self.like, member=member) for *_, member in seats]

    def spread(self, queue: str, name: str) -> SubscriptionRecord:
        self.spreads += 1
        if self.deleted:
            raise UnknownSubscription("it was deleted at this moment")
        self.holders = assign(self.kind, self.members, [0, 1], self.holders)
        found = self._subscription(queue, name)
        assert isinstance(found, SubscriptionRecord)
        return found

    def change(self, queue: str, *names: str) -> None:
        """Somebody attaches or detaches."""
        new = queue not in self.listeners
        self.listeners[queue] = list(names)
        self.hint(records.LISTENERS if new else records.listeners_path(queue))

    def delete(self, queue: str) -> None:
        """The end of a queue."""
        del self.listeners[queue]
        self.hint(records.listeners_path(queue))
        self.hint(records.LISTENERS)

    def hint(self, path: str) -> None:
        if path in self.hints:
            self.hints[path]()


class Seen:
    """A watch and what it says."""

    def __init__(self, tree: ScriptedTree) -> None:
        self.tree = tree
        self.watch = SubscriptionWatch(tree, tree)

    async def read(self, *known: str) -> dict[str, list[str]]:
        return {queue: sorted(found) for queue, found in (await self.watch.read(frozenset(known))).items()}

    async def after_hint(self) -> dict[str, list[str]]:
        """What is read at the next hint."""
        with trio.fail_after(10):
            await self.watch.changed(60)
        return await self.read()


def looking(tree: ScriptedTree, story: Callable[[Seen], Awaitable[None]]) -> None:
    async def run() -> None:
        seen = Seen(tree)
        seen.watch.begin()
        await story(seen)

    trio.run(run)


def test_all_that_is_attached_is_read_the_first_time_and_no_other_queue() -> None:
    tree = ScriptedTree("a", "b", "idle")
    tree.listeners["idle"] = []

    async def story(seen: Seen) -> None:
        assert await seen.read() == {"a": ["mail"], "b": ["mail"], "idle": []}
        assert tree.read == ["a", "b"], "nobody is attached to the third"
        assert sorted(tree.hints) == [records.LISTENERS, *map(records.listeners_path, ("a", "b", "idle"))]

    looking(tree, story)


def test_a_hint_about_a_queue_reads_that_queue_and_one_about_a_new_queue_the_new_one() -> None:
    tree = ScriptedTree("a", "b")

    async def story(seen: Seen) -> None:
        await seen.read()
        tree.change("a", "mail", "audit")
        assert await seen.after_hint() == {"a": ["audit", "mail"]}
        tree.change("c", "mail")
        assert await seen.after_hint() == {"c": ["mail"]}
        tree.change("c")
        assert await seen.after_hint() == {"c": []}

    looking(tree, story)


def test_without_a_hint_all_that_is_attached_is_read_after_some_time() -> None:
    tree = ScriptedTree("a", "b")

    async def story(seen: Seen) -> None:
        await seen.read()
        tree.listeners["b"] = []
        await seen.watch.changed(0.01)
        assert await seen.read("gone") == {"a": ["mail"], "b": [], "gone": []}

    looking(tree, story)


def test_a_queue_that_is_deleted_is_reported_as_empty_and_watched_no_longer() -> None:
    tree = ScriptedTree("a", "b")

    async def story(seen: Seen) -> None:
        await seen.read()
        tree.delete("b")
        assert await seen.after_hint() == {"b": []}
        assert records.listeners_path("b") not in tree.hints
        tree.change("b", "mail")
        assert await seen.after_hint() == {"b": ["mail"]}

    looking(tree, story)


def test_a_subscription_of_an_earlier_queue_of_that_name_is_not_attached() -> None:
    tree = ScriptedTree("a")
    tree.generation = "later"

    async def story(seen: Seen) -> None:
        assert await seen.read() == {"a": []}

    looking(tree, story)


def test_changed_preferences_are_read_at_once_and_watched_again() -> None:
    tree = ScriptedTree("a", "b")

    async def story(seen: Seen) -> None:
        await seen.read()
        tree.topics = ("news",)
        tree.watchers.pop(("a", "mail"))()
        with trio.fail_after(10):
            await seen.watch.changed(60)
        found = await seen.watch.read(frozenset())
        assert found["a"]["mail"].subscription.topics == ("news",)
        assert list(found) == ["a"]
        await eventually(lambda: ("a", "mail") in tree.watchers)

    looking(tree, story)


def test_thousands_of_subscriptions_are_read_and_watched_in_few_requests() -> None:
    tree = ScriptedTree("a")
    tree.listeners["a"] = names = [f"s{number:04}" for number in range(5000)]

    async def story(seen: Seen) -> None:
        assert await seen.read() == {"a": names}
        assert (tree.requests, len(tree.watchers)) == (5000 // WATCHED_AT_ONCE, 5000)
        tree.change("a", *names, "one more")
        await seen.after_hint()
        assert ("a", "one more") in tree.watchers, "only what is new is watched anew"

    looking(tree, story)


def test_a_subscription_that_cannot_be_read_is_tried_again_each_time_and_watched_once_it_can() -> None:
    tree = ScriptedTree("a")
    tree.listeners["a"] = ["audit", "mail"]
    tree.unreadable.add(("a", "mail"))

    async def story(seen: Seen) -> None:
        assert await seen.read() == {"a": ["audit"]}
        tree.unreadable.clear()
        tree.hint(records.listeners_path("a"))
        assert await seen.after_hint() == {"a": ["audit", "mail"]}
        assert tree.watchers.keys() == {("a", "audit"), ("a", "mail")}

    looking(tree, story)


def test_more_subscriptions_than_can_be_watched_are_read_all_the_same() -> None:
    tree = ScriptedTree("a", "b")
    tree.throttled = True

    async def story(seen: Seen) -> None:
        assert await seen.read() == {"a": ["mail"], "b": ["mail"]}

    looking(tree, story)


def test_what_could_not_be_read_stays_due() -> None:
    tree = ScriptedTree("a")

    async def story(seen: Seen) -> None:
        tree.away = True
        try:
            await seen.read()
        except MetadataUnavailable:
            tree.away = False
        assert await seen.read() == {"a": ["mail"]}

    looking(tree, story)


def test_a_damaged_record_costs_its_own_queue_only() -> None:
    tree = ScriptedTree("a", "b")
    tree.damaged.add("a")

    async def story(seen: Seen) -> None:
        assert await seen.read() == {"a": [], "b": ["mail"]}

    looking(tree, story)


def test_the_partitions_of_a_group_are_spread_when_its_members_are_others_and_only_then() -> None:
    tree = ScriptedTree("a")
    tree.kind, tree.members = "shared", ("x", "y")

    async def story(seen: Seen) -> None:
        for members, spreads in ((("x", "y"), 1), (("x", "y"), 1), (("x",), 2)):
            tree.members = members
            seen.watch.hint("a")
            found = (await seen.watch.read(frozenset()))["a"]["mail"]
            assert tuple(one.member for one in found.listeners) == members
            assert sorted(found.by_partition()) == [0, 1]
            assert tree.spreads == spreads

    looking(tree, story)


def test_a_group_that_is_deleted_while_it_is_read_is_not_there() -> None:
    tree = ScriptedTree("a")
    tree.kind, tree.members, tree.deleted = "shared", ("x", "y"), True

    async def story(seen: Seen) -> None:
        assert await seen.read() == {"a": []}

    looking(tree, story)


def test_a_listener_of_another_kind_or_one_that_reads_for_itself_gets_nothing() -> None:
    tree = ScriptedTree("a")
    tree.members = ("", "left-over")

    async def story(seen: Seen) -> None:
        assert [one.member for one in (await seen.watch.read(frozenset()))["a"]["mail"].listeners] == [""]
        tree.like = msgspec.structs.replace(tree.like, protocol="pull")
        seen.watch.hint("a")
        assert await seen.read() == {"a": []}

    looking(tree, story)
