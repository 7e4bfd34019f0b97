"""Measuring backlogs in a host: who counts, where each one's position is found, and how soon it is known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import trio

from delivery.batch import encode
from delivery.cluster.partition import OwnedPartition
from delivery.dispatch.backlogs import Backlogs
from delivery.errors import MetadataUnavailable, QueueFull
from delivery.messaging.marks import Rollback, rolled_back
from delivery.metastore.awaited import Awaited
from delivery.metastore.records import SubscriptionRecord
from delivery.model import QueueSettings
from delivery.publish.pending import Stored
from tests.hosting import Scene, ScriptedCluster, eventually, outcome, play, queue_record

LIMITED = QueueSettings(backlog_messages=5)


class Site:
    """Subscriptions of a queue: what is saved of them, and those that are delivered here."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.saved: dict[str, dict[int, int]] = {}
        self.serving: list[Any] = []
        self.reads = 0
        self.away = False
        self.backlogs = Backlogs(scene.ownership, self, lambda: self.serving)
        scene.ownership.on_taken(self.backlogs.taken)

    def awaited(self, queue: str) -> Awaited:
        assert queue == "orders"
        self.reads += 1
        if self.away:
            raise MetadataUnavailable("no answer")
        return {name: dict(places) for name, places in self.saved.items()}

    def serve(self, name: str, positions: Mapping[int, int], **preferences: Any) -> SimpleNamespace:
        record = SubscriptionRecord(
            name=name, queue="orders", generation="g1", created_ms=1, starts=dict.fromkeys(positions, 0),
            all_partitions=True, topics=(), **preferences,
        )  # fmt: skip
        workers = {number: SimpleNamespace(position=position) for number, position in positions.items()}
        made = SimpleNamespace(attached=SimpleNamespace(subscription=record), workers=workers)
        self.serving.append(made)
        return made

    async def put(self, count: int = 1) -> list[object]:
        """The outcomes of so many batches, one after another."""
        return [await self.scene.publish(b"x") for _ in range(count)]

    async def refused(self) -> QueueFull:
        """How a batch ends from now on."""
        [found] = await self.put()
        assert isinstance(found, QueueFull), found
        return found

    async def room(self) -> Stored:
        """A batch is taken, soon."""
        with trio.fail_after(10):
            while not isinstance(found := (await self.put())[0], Stored):
                assert isinstance(found, QueueFull)
                await trio.sleep(0.01)
        return found

    async def owned(self) -> OwnedPartition:
        return await self.scene.ownership.acquire("orders", 0)


def staged(story: Callable[[Site], Awaitable[None]], settings: QueueSettings = LIMITED) -> None:
    scene = Scene(ScriptedCluster(msgspec.structs.replace(queue_record(), settings=settings)))
    site = Site(scene)

    async def told(_: Scene) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(site.backlogs.run)
            await story(site)
            nursery.cancel_scope.cancel()

    play(told, scene)


async def measured(site: Site) -> OwnedPartition:
    """The partition, once it is known how it stands."""
    owned = await site.owned()
    await eventually(lambda: owned.backlog.is_known)
    return owned


def test_a_subscription_that_nobody_is_attached_to_holds_publishers_up_until_it_is_served_again() -> None:
    async def story(site: Site) -> None:
        site.saved["audit"] = {0: 0}
        owned = await measured(site)
        ends = await site.put(5)
        assert all(isinstance(one, Stored) for one in ends), ends
        refusal = await site.refused()
        assert "'audit'" in refusal.message
        assert refusal.retryable
        assert owned.holds("audit")
        assert not owned.holds("billing")
        last = ends[-1]
        assert isinstance(last, Stored)
        site.serve("audit", {0: last.base_id - 1})  # one is left
        await site.room()
        assert not owned.holds("audit")

    staged(story)


def test_of_what_is_delivered_here_the_position_in_memory_counts_and_a_slow_one_beside_a_quick_one() -> None:
    async def story(site: Site) -> None:
        site.saved |= {"quick": {0: 0}, "slow": {0: 0}}
        quick, slow = site.serve("quick", {0: 0}), site.serve("slow", {0: 0})
        owned = await measured(site)
        for _ in range(20):
            stored = await site.room()
            quick.workers[0].position = slow.workers[0].position = stored.base_id
        kept = slow.workers[0].position
        for _ in range(5):
            quick.workers[0].position = (await site.room()).base_id
        await site.refused()
        await eventually(lambda: owned.holds("slow"))
        slow.workers[0].position = quick.workers[0].position
        await site.room()
        assert kept < slow.workers[0].position

    staged(story)


def test_replays_bounded_subscriptions_and_those_of_other_partitions_hold_nobody_up() -> None:
    async def story(site: Site) -> None:
        site.saved |= {"other": {1: 0}, "became bounded": {0: 0}}
        site.serve("became bounded", {0: 0}, bound=3)
        owned = await measured(site)
        outcomes = await site.put(30)
        assert all(isinstance(one, Stored) for one in outcomes)
        assert owned.backlog.floor is None

    staged(story)


def test_what_is_deleted_is_not_waited_for_any_longer() -> None:
    async def story(site: Site) -> None:
        site.saved["gone"] = {0: 0}
        await measured(site)
        await site.put(5)
        await site.refused()
        del site.saved["gone"]
        await site.room()

    staged(story)


def test_a_limit_comes_and_goes_with_the_settings() -> None:
    async def story(site: Site) -> None:
        site.saved["audit"] = {0: 0}
        owned = await site.owned()
        outcomes = await site.put(10)
        assert all(isinstance(one, Stored) for one in outcomes)
        assert (site.reads, owned.backlog.is_known) == (0, False)

        def change(settings: QueueSettings) -> None:
            before = site.scene.cluster.records["orders"]
            after = msgspec.structs.replace(before, settings=settings)
            site.scene.cluster.records["orders"] = after
            site.scene.ownership.queue_changed(before, after)
            site.backlogs.queue_changed(before, after)

        change(LIMITED)
        await eventually(lambda: owned.backlog.is_known)
        assert owned.backlog.amount.messages == 10
        await site.refused()
        change(QueueSettings(backlog_messages=12))
        assert isinstance((await site.put())[0], Stored)
        change(QueueSettings())
        outcomes = await site.put(20)
        assert all(isinstance(one, Stored) for one in outcomes)

    staged(story, QueueSettings())


def test_the_engines_own_batches_and_what_is_stored_already_are_not_held_up() -> None:
    async def story(site: Site) -> None:
        site.saved["audit"] = {0: 0}
        await measured(site)
        first = await site.scene.publish(*[b"x"] * 5, producer=7, sequence=1)
        assert isinstance(first, Stored)
        again = await site.scene.publish(*[b"x"] * 5, producer=7, sequence=1)
        assert again == msgspec.structs.replace(first, duplicate=True)
        assert isinstance(await site.scene.publish(b"x", producer=7, sequence=2), QueueFull)
        note = encode([rolled_back(Rollback(1, 0, 1))], 0)
        pending = site.scene.publisher.begin("orders", 0, note, aside=True)
        assert isinstance(await outcome(pending), Stored), "else a transaction could not end"

    staged(story)


def test_while_zookeeper_is_away_the_limit_holds_by_what_is_known() -> None:
    async def story(site: Site) -> None:
        site.saved["audit"] = {0: 0}
        await measured(site)
        site.away = True
        await site.put(5)
        await site.refused()
        site.away, site.saved = False, {"audit": {0: (await site.owned()).watermark}}
        await site.room()

    staged(story)


def test_nobody_is_asked_while_nothing_is_published_or_far_from_the_limit() -> None:
    async def story(site: Site) -> None:
        site.saved["audit"] = {0: 0}
        await measured(site)
        before = site.reads
        await site.put(2)
        await trio.sleep(0.3)
        assert site.reads == before

    staged(story)
