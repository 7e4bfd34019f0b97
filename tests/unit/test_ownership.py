"""Who owns a partition: claims, takeovers, lost sessions, changed and deleted queues."""

from __future__ import annotations

import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from delivery.cluster import doubts
from delivery.errors import (
    InvalidRequest,
    MetadataUnavailable,
    NotOwner,
    StorageUnavailable,
    UnknownPartition,
    UnknownQueue,
)
from delivery.metastore.managers.records import OwnerInfo
from delivery.publish.pending import Stored
from tests.hosting import ME, OTHER, Scene, batch, bodies_in, eventually, outcome, play, queue_record


def test_a_partition_of_another_live_host_is_refused_with_its_address() -> None:
    async def story(scene: Scene) -> None:
        scene.cluster.owners["orders", 0] = (OwnerInfo(OTHER, 22, 4), 3)
        for _ in range(3):
            refused = await scene.publish(b"a")
            assert isinstance(refused, NotOwner)
            assert refused.address == "10.0.0.2:7000"
        assert scene.cluster.claims == 0

    play(story)


def test_a_partition_whose_owner_refuses_connections_is_taken_over_before_its_session_ends() -> None:
    async def story(scene: Scene) -> None:
        scene.cluster.owners["orders", 0] = (OwnerInfo(OTHER, 22, 4), 3)
        scene.cluster.gone.add(OTHER)
        assert isinstance(await scene.publish(b"a"), Stored)
        assert scene.cluster.owners["orders", 0][0].epoch == 5

    play(story)


def test_a_partition_whose_owner_died_or_lost_its_session_is_taken_over_under_the_next_epoch() -> None:
    async def story(scene: Scene) -> None:
        scene.cluster.owners["orders", 0] = (OwnerInfo(OTHER, 21, 4), 3)
        assert isinstance(await scene.publish(b"a"), Stored)
        assert scene.cluster.owners["orders", 0] == (OwnerInfo(ME, 11, 5), 4)
        assert (await scene.ownership.acquire("orders", 0)).version == 4

    play(story)


def test_a_partition_in_doubt_is_looked_at_until_zookeeper_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubts, "_PAUSE_SECONDS", 0.01)

    async def story(scene: Scene) -> None:
        await scene.publish(b"a")
        scene.cluster.owners["orders", 0] = (OwnerInfo(OTHER, 22, 2), 2)
        scene.cluster.silent, reads = True, scene.cluster.reads
        scene.ownership.doubt("orders", 0)
        await eventually(lambda: scene.cluster.reads > reads + 1)
        assert scene.ownership.has("orders", 0)
        scene.cluster.silent = False
        await eventually(lambda: not scene.ownership.has("orders", 0))

    play(story)


def test_a_lost_session_drops_everything_and_readers_hear_of_it() -> None:
    async def story(scene: Scene) -> None:
        await scene.publish(b"a")
        owned = await scene.ownership.acquire("orders", 0)
        scene.cluster.current_session = 0
        scene.ownership.lose_all(MetadataUnavailable("session lost"))
        assert isinstance(owned.feed.error, MetadataUnavailable)
        assert isinstance(await scene.publish(b"b"), MetadataUnavailable)
        scene.cluster.current_session = 12
        await trio.sleep(0.3)
        assert isinstance(await scene.publish(b"c"), Stored)
        assert await bodies_in(scene) == [b"a", b"c"]

    play(story)


def test_a_session_that_ends_while_a_claim_is_under_way_wins() -> None:
    async def story(scene: Scene) -> None:
        scene.cluster.gate = threading.Event()
        pending = scene.publisher.begin("orders", 0, batch(b"a"))
        await wait_all_tasks_blocked()
        scene.cluster.current_session = 12
        scene.cluster.gate.set()
        assert isinstance(await outcome(pending), MetadataUnavailable)
        assert len(scene.ownership) == 0

    play(story)


def test_new_settings_take_effect_at_once() -> None:
    async def story(scene: Scene) -> None:
        await scene.publish(b"a")
        before = scene.cluster.records["orders"]
        scene.ownership.queue_changed(before, queue_record(body_bytes_max=2, durability="os"))
        assert isinstance(await scene.publish(b"too long"), InvalidRequest)
        stored = await scene.publish(b"ok")
        assert isinstance(stored, Stored)
        assert stored.durability == "os"

    play(story)


def test_a_deleted_queue_is_dropped_with_what_was_stored_for_it() -> None:
    async def story(scene: Scene) -> None:
        await scene.publish(b"a")
        owned = await scene.ownership.acquire("orders", 0)
        scene.ownership.queue_changed(scene.cluster.records.pop("orders"), None)
        assert isinstance(owned.feed.error, UnknownQueue)
        await eventually(lambda: scene.store.deleted == ["orders~g1"])
        assert isinstance(await scene.publish(b"b"), UnknownQueue)
        scene.cluster.records["orders"] = queue_record(generation="g2")
        assert isinstance(await scene.publish(b"c"), Stored)
        assert await bodies_in(scene) == [b"c"]

    play(story)


def test_a_partition_that_the_queue_does_not_have_is_refused() -> None:
    async def story(scene: Scene) -> None:
        assert isinstance(await scene.publish(b"a", partition=1), UnknownPartition)
        assert scene.cluster.claims == 0

    play(story)


def test_a_damaged_log_keeps_the_partition_closed_and_is_reported() -> None:
    async def story(scene: Scene) -> None:
        scene.store.fail_open = StorageUnavailable("segment 3 cannot be read")
        assert isinstance(await scene.publish(b"a"), StorageUnavailable)
        assert scene.ownership.troubles == ["orders/0: segment 3 cannot be read"]
        assert scene.cluster.owners["orders", 0][0].host == ""
        claims = scene.cluster.claims
        assert isinstance(await scene.publish(b"a"), StorageUnavailable)
        assert scene.cluster.claims == claims

    play(story)
