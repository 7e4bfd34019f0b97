"""Publishing on one host: order, ids, groups, duplicates, and what happens when the store fails."""

from __future__ import annotations

import threading
from functools import partial

import trio
from trio.testing import wait_all_tasks_blocked

from delivery.errors import (
    ClockWrong,
    Fenced,
    MessageTooLarge,
    NotOwner,
    OutOfSequence,
    ServiceStopping,
    StorageUnavailable,
    Throttled,
    UnknownOutcome,
    UnknownQueue,
)
from delivery.metastore.managers.records import OwnerInfo
from delivery.publish.pending import PendingPublish, Stored
from delivery.storage.memory import MemoryDisk
from tests.hosting import FaultyStore, Scene, ScriptedCluster, batch, bodies_in, eventually, outcome, play, queue_record


def test_what_was_stored_is_read_in_order_under_rising_ids() -> None:
    async def story(scene: Scene) -> None:
        first = await scene.publish(b"a", b"b")
        second = await scene.publish(b"c")
        assert first == Stored(scene.now_ms * 32768, 2, "fsync")
        assert second == Stored(scene.now_ms * 32768 + 2, 1, "fsync")
        assert await bodies_in(scene) == [b"a", b"b", b"c"]

    play(story)


def test_ids_rise_when_the_clock_steps_back() -> None:
    async def story(scene: Scene) -> None:
        first = await scene.publish(b"a")
        scene.now_ms -= 60_000
        second = await scene.publish(b"b")
        assert isinstance(first, Stored)
        assert isinstance(second, Stored)
        assert second.base_id == first.base_id + 1

    play(story)


def test_a_clock_that_is_hours_behind_is_refused_and_nothing_is_stored() -> None:
    async def story(scene: Scene) -> None:
        await scene.publish(b"a")
        scene.now_ms -= 2 * 3_600_000
        assert isinstance(await scene.publish(b"b", producer=1), ClockWrong)
        scene.now_ms += 2 * 3_600_000
        assert isinstance(await scene.publish(b"b", producer=1), Stored)
        assert await bodies_in(scene) == [b"a", b"b"]

    play(story)


def test_batches_that_come_before_the_partition_is_owned_wait_in_order_for_one_claim() -> None:
    async def story(scene: Scene) -> None:
        scene.cluster.gate = threading.Event()
        begun = [scene.publisher.begin("orders", 0, batch(b"%d" % n)) for n in range(5)]
        await wait_all_tasks_blocked()
        begun.append(scene.publisher.begin("orders", 0, batch(b"5")))
        scene.cluster.gate.set()
        outcomes = [await pending.wait() for pending in begun]
        assert [outcome.base_id for outcome in outcomes] == sorted(outcome.base_id for outcome in outcomes)
        assert await bodies_in(scene) == [b"%d" % n for n in range(6)]
        assert scene.cluster.claims == 1

    play(story)


def test_a_batch_for_a_queue_that_was_made_anew_is_not_stored_in_the_one_before_it() -> None:
    async def story(scene: Scene) -> None:
        before, after = scene.cluster.records["orders"], queue_record(generation="g2")
        old = scene.publisher.begin("orders", 0, batch(b"old"), generation="g1")
        assert isinstance(await old.wait(), Stored)

        def look() -> None:
            scene.cluster.records["orders"] = after
            scene.ownership.queue_changed(before, None)

        scene.cluster.look = look
        begun = [scene.publisher.begin("orders", 0, batch(name.encode()), generation=name) for name in ("g2", "g1")]
        begun.append(scene.publisher.begin("orders", 0, batch(b"whichever")))
        new, late, any_one = [await outcome(pending) for pending in begun]
        assert isinstance(new, Stored)
        assert isinstance(late, UnknownQueue)
        assert isinstance(any_one, Stored)
        assert await bodies_in(scene) == [b"g2", b"whichever"]

    play(story)


def test_while_one_group_is_being_stored_the_next_one_gathers() -> None:
    async def story(scene: Scene) -> None:
        await scene.ownership.acquire("orders", 0)
        scene.store.gate = threading.Event()
        first = scene.publisher.begin("orders", 0, batch(b"0"))
        await wait_all_tasks_blocked()
        rest = [scene.publisher.begin("orders", 0, batch(b"%d" % n)) for n in range(1, 100)]
        scene.store.gate.set()
        for pending in [first, *rest]:
            await pending.wait()
        assert scene.store.groups == [1, 99]

    play(story)


def test_of_a_group_the_readers_of_a_partition_hear_once_and_before_the_publishers() -> None:
    """So one push carries what many publishers stored at the same time."""

    async def story(scene: Scene) -> None:
        owned = [await scene.ownership.acquire("orders", number) for number in range(2)]
        heard: list[object] = []
        for one in owned:
            one.feed.follow(partial(lambda one: heard.append((one.key.partition, one.feed.watermark)), one))
        scene.store.gate = threading.Event()
        begun = [scene.publisher.begin("orders", 0, batch(b"first"))]
        await wait_all_tasks_blocked()
        begun += [scene.publisher.begin("orders", at, batch(b"next", partition=at)) for at in (0, 1, 0, 1, 0, 1)]
        for pending in begun:
            pending.then(heard.append)
        scene.store.gate.set()
        outcomes = [await pending.wait() for pending in begun]
        ends = [outcomes[0].base_id, outcomes[-2].base_id, outcomes[-1].base_id]
        assert heard == [(0, ends[0]), outcomes[0], (0, ends[1]), (1, ends[2]), *outcomes[1:]]

    play(story, Scene(ScriptedCluster(queue_record(partitions=2))))


def test_a_group_is_bounded_by_bytes() -> None:
    async def story(scene: Scene) -> None:
        await scene.ownership.acquire("orders", 0)
        scene.store.gate = threading.Event()
        begun = [scene.publisher.begin("orders", 0, batch(b"x" * 300_000)) for _ in range(3)]
        await wait_all_tasks_blocked()
        assert isinstance(await scene.publish(b"x" * 300_000), Throttled)
        scene.store.gate.set()
        for pending in begun:
            await pending.wait()
        assert scene.publisher.pending_bytes == 0
        assert isinstance(await scene.publish(b"after the pause"), Stored)

    play(story)


def test_a_repeated_sequence_is_stored_once_and_answered_with_the_same_ids() -> None:
    async def story(scene: Scene) -> None:
        first = await scene.publish(b"a", producer=9, sequence=0)
        again = await scene.publish(b"a", producer=9, sequence=0)
        assert isinstance(first, Stored)
        assert again == Stored(first.base_id, 1, "fsync", duplicate=True)
        assert isinstance(await scene.publish(b"c", producer=9, sequence=2), OutOfSequence)
        assert await bodies_in(scene) == [b"a"]
        assert scene.publisher.pending_bytes == 0

    play(story)


def test_a_repeat_of_a_batch_under_way_ends_as_that_one_does() -> None:
    async def story(scene: Scene) -> None:
        await scene.ownership.acquire("orders", 0)
        scene.store.gate = threading.Event()
        made = batch(b"a", producer=9)
        first = scene.publisher.begin("orders", 0, made)
        again = scene.publisher.begin("orders", 0, made)
        scene.store.gate.set()
        stored = await first.wait()
        assert await again.wait() == Stored(stored.base_id, 1, "fsync", duplicate=True)
        assert await bodies_in(scene) == [b"a"]
        assert scene.publisher.pending_bytes == 0

    play(story)


def test_a_producer_s_sequence_survives_a_new_owner() -> None:
    """The reply was lost with the host; its successor on the same disk answers the repeat."""
    disk = MemoryDisk()
    before: list[object] = []

    async def first_life(scene: Scene) -> None:
        before.append(await scene.publish(b"a", producer=9, sequence=0))

    async def second_life(scene: Scene) -> None:
        scene.cluster.owners["orders", 0] = (OwnerInfo("dead-host", 1, 1), 0)
        again = await scene.publish(b"a", producer=9, sequence=0)
        assert isinstance(again, Stored)
        assert isinstance(before[0], Stored)
        assert (again.base_id, again.duplicate) == (before[0].base_id, True)
        assert await bodies_in(scene) == [b"a"]

    play(first_life, Scene(store=FaultyStore(disk)))
    play(second_life, Scene(store=FaultyStore(disk)))


def test_a_store_that_fails_leaves_the_outcome_unknown_and_the_partition_closed_until_a_pause_is_over() -> None:
    async def story(scene: Scene) -> None:
        await scene.publish(b"a", producer=9, sequence=0)
        scene.store.fail = StorageUnavailable("the disk is full")
        assert isinstance(await scene.publish(b"b", producer=9, sequence=1), UnknownOutcome)
        scene.store.fail = None
        groups = len(scene.store.groups)
        assert isinstance(await scene.publish(b"c", producer=9, sequence=2), StorageUnavailable)
        assert len(scene.store.groups) == groups
        assert scene.ownership.troubles == ["orders/0: the disk is full"]
        await trio.sleep(1.05)
        assert isinstance(await scene.publish(b"b", producer=9, sequence=1), Stored)
        assert scene.ownership.troubles == []
        assert scene.cluster.owners["orders", 0][0].epoch == 2
        assert await bodies_in(scene) == [b"a", b"b"]

    play(story)


def test_what_was_stamped_behind_a_failed_batch_is_refused_and_was_not_stored() -> None:
    async def story(scene: Scene) -> None:
        await scene.ownership.acquire("orders", 0)
        scene.store.gate = threading.Event()
        scene.store.fail = StorageUnavailable("the disk is full")
        first = scene.publisher.begin("orders", 0, batch(b"a"))
        await wait_all_tasks_blocked()
        second = scene.publisher.begin("orders", 0, batch(b"b"))
        scene.store.gate.set()
        assert isinstance(await outcome(first), UnknownOutcome)
        assert isinstance(await outcome(second), StorageUnavailable)
        assert scene.store.groups == [1]

    play(story)


def test_what_no_store_takes_is_known_not_to_be_stored_and_the_partition_is_opened_anew() -> None:
    async def story(scene: Scene) -> None:
        scene.store.fail = MessageTooLarge("no cell holds it")
        assert isinstance(await scene.publish(b"a"), MessageTooLarge)
        assert len(scene.ownership.troubles) == 0
        assert len(scene.ownership) == 0
        scene.store.fail = None
        await eventually(lambda: scene.store.released == ["orders/0"])
        assert isinstance(await scene.publish(b"b"), Stored)

    play(story)


def test_a_fenced_publish_is_unknown_and_the_partition_is_dropped() -> None:
    async def story(scene: Scene) -> None:
        owned = await scene.ownership.acquire("orders", 0)
        scene.store.fail = Fenced("epoch 2 is there")
        assert isinstance(await scene.publish(b"a"), UnknownOutcome)
        assert isinstance(owned.feed.error, NotOwner)
        assert len(scene.ownership) == 0
        await eventually(lambda: scene.store.released == ["orders/0"])

    play(story)


def test_other_partitions_go_on_when_one_fails() -> None:
    async def story(scene: Scene) -> None:
        scene.store.fail = StorageUnavailable("the disk is full")
        assert isinstance(await scene.publish(b"a", partition=1), UnknownOutcome)
        scene.store.fail = None
        assert isinstance(await scene.publish(b"b", partition=0), Stored)

    play(story, Scene(ScriptedCluster(queue_record(partitions=2))))


def test_a_stopping_host_finishes_what_it_took_and_refuses_the_rest() -> None:
    async def story(scene: Scene) -> None:
        await scene.ownership.acquire("orders", 0)
        scene.store.gate = threading.Event()
        taken = scene.publisher.begin("orders", 0, batch(b"a"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.publisher.drain)
            await wait_all_tasks_blocked()
            assert isinstance(await scene.publish(b"b"), ServiceStopping)
            scene.store.gate.set()
        assert isinstance(taken.outcome, Stored)

    play(story)


def test_a_cancelled_host_says_of_every_batch_what_became_of_it() -> None:
    begun: list[PendingPublish] = []

    async def story(scene: Scene) -> None:
        await scene.ownership.acquire("orders", 0)
        scene.store.gate = threading.Event()
        begun.append(scene.publisher.begin("orders", 0, batch(b"a")))
        await wait_all_tasks_blocked()
        begun.append(scene.publisher.begin("orders", 0, batch(b"b")))
        threading.Timer(0.05, scene.store.gate.set).start()

    play(story)
    assert isinstance(begun[0].outcome, Stored)
    assert isinstance(begun[1].outcome, ServiceStopping)


def test_readers_sleep_until_the_batch_is_stored() -> None:
    async def story(scene: Scene) -> None:
        owned = await scene.ownership.acquire("orders", 0)
        scene.store.gate = threading.Event()
        pending = scene.publisher.begin("orders", 0, batch(b"a"))
        with trio.move_on_after(0.05) as early:
            await owned.wait_beyond(0)
        assert early.cancelled_caught
        assert await owned.read(0, 1000) is None
        scene.store.gate.set()
        with trio.fail_after(5):
            await owned.wait_beyond(0)
        assert (await owned.read(0, 1000)) is not None
        await pending.wait()

    play(story)
