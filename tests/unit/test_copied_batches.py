"""A closed queue: nobody publishes to it, and it takes what another queue has stored, with the ids of there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from delivery.batch import Row, peek, stamp
from delivery.errors import ClockWrong, CorruptRecord, HootError, InvalidRequest, OutOfPlace, QueueClosed
from delivery.messaging import marks
from delivery.model import encode_headers
from delivery.publish.copied import store_copied
from delivery.publish.pending import Stored
from delivery.storage.memory import MemoryDisk
from tests.hosting import FaultyStore, Scene, ScriptedCluster, batch, bodies_in, play, queue_record
from tests.strategies import stamped

CLOSED = queue_record(closed=True)
FIRST = 1_600_000_000_000 * 32768


def stored_elsewhere(base_id: int, *bodies: bytes, producer: int = 0) -> bytes:
    """A batch as another queue's partition holds it."""
    data = batch(*bodies, producer=producer)
    header = peek(data)
    assert header is not None
    return stamp(header, data, base_id, 7)[1]


def closed(store: FaultyStore | None = None) -> Scene:
    return Scene(ScriptedCluster(CLOSED), store)


async def copied(scene: Scene, after: int, *batches: bytes) -> object:
    """The last id that is there then, or the error."""
    try:
        return await store_copied(scene.publisher, "orders", 0, after, b"".join(batches), "g1")
    except HootError as error:
        return error


def test_what_is_copied_keeps_its_ids_and_its_order() -> None:
    async def story(scene: Scene) -> None:
        last = await copied(scene, 0, stored_elsewhere(FIRST, b"a", b"b"), stored_elsewhere(FIRST + 90, b"c"))
        assert last == FIRST + 90
        assert await copied(scene, FIRST + 90, stored_elsewhere(FIRST + 91, b"d")) == FIRST + 91
        assert await bodies_in(scene) == [b"a", b"b", b"c", b"d"]
        owned = await scene.ownership.acquire("orders", 0)
        chunk = await owned.read(0, 1 << 20)
        assert chunk is not None
        assert [(one.base_id, one.epoch) for one in chunk.headers] == [
            (FIRST, owned.epoch), (FIRST + 90, owned.epoch), (FIRST + 91, owned.epoch)
        ]  # fmt: skip

    play(story, closed())


def test_a_batch_that_does_not_follow_the_last_one_is_refused() -> None:
    async def story(scene: Scene) -> None:
        first, second = stored_elsewhere(FIRST, b"a"), stored_elsewhere(FIRST + 5, b"b")
        assert isinstance(await copied(scene, FIRST + 4, second), OutOfPlace), "one before it is missing"
        assert await copied(scene, 0, first) == FIRST
        assert isinstance(await copied(scene, 0, first), OutOfPlace), "it is there already"
        assert isinstance(await copied(scene, FIRST, stored_elsewhere(FIRST, b"x")), InvalidRequest), "ids rise"
        assert await bodies_in(scene) == [b"a"]
        assert await copied(scene, FIRST, second) == FIRST + 5

    play(story, closed())


def test_behind_a_batch_that_is_refused_nothing_is_stored() -> None:
    async def story(scene: Scene) -> None:
        good, other = stored_elsewhere(FIRST, b"a"), stored_elsewhere(FIRST + 9, b"c")
        damaged = bytearray(stored_elsewhere(FIRST + 3, b"b"))
        damaged[-1] ^= 1
        assert isinstance(await copied(scene, 0, good, bytes(damaged), other), CorruptRecord)
        assert isinstance(await copied(scene, FIRST, other[:-1]), CorruptRecord)
        assert await bodies_in(scene) == [b"a"]

    play(story, closed())


def test_nobody_publishes_to_a_closed_queue_and_an_open_one_takes_no_copies() -> None:
    async def story(scene: Scene) -> None:
        assert isinstance(await scene.publish(b"new"), QueueClosed)
        assert isinstance(await copied(scene, 0, batch(b"never stored")), InvalidRequest)
        assert isinstance(await copied(scene, 0, stored_elsewhere(scene.now_ms * 2 * 32768, b"a")), ClockWrong)
        assert await copied(scene, 0, stored_elsewhere(FIRST, b"a")) == FIRST
        opened = queue_record()
        scene.cluster.records["orders"] = opened
        scene.ownership.queue_changed(CLOSED, opened)
        assert isinstance(await copied(scene, FIRST, stored_elsewhere(FIRST + 1, b"b")), InvalidRequest)
        assert isinstance(await scene.publish(b"new"), Stored)
        assert await bodies_in(scene) == [b"a", b"new"]

    play(story, closed())


def test_messages_of_transactions_and_what_topics_keep_beside_messages_are_not_copied() -> None:
    """Who stands behind a write pointer only the service knows that gave it out; here it would count as committed."""

    def stored(rows: Sequence[Row]) -> bytes:
        return stamped(rows, FIRST)[1]

    async def story(scene: Scene) -> None:
        mixed: list[Row] = [(b"plain", None, "", b""), *marks.published([b"never committed"], 5)]
        note = marks.rolled_back(marks.Rollback(5, 1, 2))
        for rows in (mixed, marks.stored([b"s"], 5), [marks.marker(5, [marks.Range(1, 2)])], [note]):
            assert isinstance(await copied(scene, 0, stored(rows)), InvalidRequest)
        assert await bodies_in(scene) == []
        foreign = [(b"other header", None, "", encode_headers({"hoot.txt": bytes(8), "tx": b"hoot.tx"}))]
        assert await copied(scene, 0, stored(foreign)) == FIRST

    play(story, closed())


@pytest.mark.parametrize("lives", [(True, True), (True, False)])
def test_a_publish_whose_answer_was_lost_is_answered_by_the_copy_as_well(lives: Sequence[bool]) -> None:
    """Also by an owner that took the partition over."""
    disk = MemoryDisk()

    async def copying(scene: Scene) -> None:
        assert await copied(scene, 0, stored_elsewhere(FIRST, b"a", producer=9)) == FIRST
        assert await scene.publish(b"a", producer=9) == Stored(FIRST, 1, "fsync", duplicate=True)

    async def later(scene: Scene) -> None:
        assert await scene.publish(b"a", producer=9) == Stored(FIRST, 1, "fsync", duplicate=True)

    for first, story in zip(lives, (copying, later), strict=True):
        play(story, Scene(ScriptedCluster(queue_record(closed=first)), FaultyStore(disk)))
