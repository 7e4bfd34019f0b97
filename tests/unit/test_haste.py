"""When a host stores a batch without a thread: where the store has been quick, and only then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from delivery.errors import StorageUnavailable, UnknownOutcome
from delivery.model import Durability
from delivery.publish.haste import BYTES_MAX, IN_A_ROW, MANY, MANY_SECONDS, SOON_SECONDS, Haste
from delivery.publish.lane import Answers, CommitThread
from delivery.publish.pending import Stored
from delivery.storage.base import Append
from tests.hosting import FaultyStore, Scene, batch, bodies_in, play
from tests.stores import batch as stamped_batch

SYNCED, WRITTEN = stamped_batch(1), stamped_batch(1, durability="os")


@pytest.mark.parametrize(
    ("stored", "may"),
    [
        ([], ()),
        ([SYNCED] * (IN_A_ROW - 1), ()),
        ([SYNCED] * IN_A_ROW, ("fsync", "os", "memory")),
        ([WRITTEN] * IN_A_ROW, ("os", "memory")),
    ],
    ids=["before anything was", "a little", "with a flush", "without a flush"],
)
def test_a_store_that_was_quick_for_long_enough_is_taken_to_be(stored: list[Append], may: tuple[Durability]) -> None:
    haste = Haste()
    for item in stored:
        haste.noted([WRITTEN, item], SOON_SECONDS)
    kinds: tuple[Durability, ...] = ("fsync", "os", "memory")
    found = [kind for now, kind in enumerate(kinds) if haste.may(stamped_batch(1, durability=kind), now)]
    assert tuple(found) == may


def test_one_slow_group_ends_the_trust_and_a_large_batch_has_none() -> None:
    haste = Haste()
    for _ in range(IN_A_ROW):
        haste.noted([SYNCED], SOON_SECONDS)
    assert not haste.may(stamped_batch(1, [bytes(BYTES_MAX)]), 0)
    assert haste.may(SYNCED, 1)
    haste.noted([SYNCED], SOON_SECONDS * 1.01)
    assert not haste.may(SYNCED, 2)
    assert not haste.may(WRITTEN, 3)


def test_where_many_come_they_are_left_to_gather() -> None:
    haste, pause = Haste(), MANY_SECONDS / MANY
    for _ in range(IN_A_ROW):
        haste.noted([SYNCED], SOON_SECONDS)
    assert all(haste.may(SYNCED, 1.01 * pause * number) for number in range(100))
    begun = 101 * pause
    found = [haste.may(SYNCED, begun + 0.5 * pause * number) for number in range(100)]
    assert found.index(False) <= 2 * MANY
    assert not any(found[found.index(False) :])
    assert haste.may(SYNCED, begun + 60)


class Watched(CommitThread):
    """Notes what goes which way."""

    def __init__(self, store: FaultyStore) -> None:
        super().__init__(store)
        self.put_away: list[int] = []
        self.here = 0

    def put(self, group: Sequence[Append]) -> None:
        self.put_away.append(len(group))
        super().put(group)

    def at_once(self, item: Append, /) -> Answers | None:
        answers = super().at_once(item)
        self.here += answers is not None
        return answers


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which a thread may wait for its turn for any time, and where nothing counts as many."""
    monkeypatch.setattr("delivery.publish.haste.SOON_SECONDS", 60.0)
    monkeypatch.setattr("delivery.publish.haste.MANY_SECONDS", 0.0)


def play_trusted(story: Callable[[Scene, Watched], Awaitable[None]]) -> None:
    """Play a story with a host that has come to trust its store."""
    store = FaultyStore()
    lane = Watched(store)

    async def whole(scene: Scene) -> None:
        for _ in range(IN_A_ROW):
            assert isinstance(await scene.publish(b"before"), Stored)
        assert (lane.put_away, lane.here) == ([1] * IN_A_ROW, 0)
        lane.put_away.clear()
        await story(scene, lane)

    play(whole, Scene(store=store, lane=lane))


@pytest.mark.usefixtures("trusting")
def test_a_small_batch_is_stored_without_the_thread_in_the_turn_in_which_it_came() -> None:
    async def story(scene: Scene, lane: Watched) -> None:
        pending = scene.publisher.begin("orders", 0, batch(b"a"))
        assert isinstance(pending.outcome, Stored)
        assert isinstance(await scene.publish(b"b"), Stored)
        assert (lane.put_away, lane.here) == ([], 2)
        large = scene.publisher.begin("orders", 0, batch(bytes(BYTES_MAX)))
        small = scene.publisher.begin("orders", 0, batch(b"c"))
        assert isinstance(await large.wait(), Stored)
        assert isinstance(await small.wait(), Stored)
        assert (lane.put_away, lane.here) == ([1, 1], 2), "it does not overtake the one in the thread"
        assert (await bodies_in(scene))[IN_A_ROW:] == [b"a", b"b", bytes(BYTES_MAX), b"c"]

    play_trusted(story)


@pytest.mark.usefixtures("trusting")
def test_a_store_that_cannot_now_is_given_the_batch_by_the_thread() -> None:
    async def story(scene: Scene, lane: Watched) -> None:
        scene.store.busy = True
        assert isinstance(await scene.publish(b"a"), Stored)
        assert (lane.put_away, lane.here) == ([1], 0)

    play_trusted(story)


@pytest.mark.usefixtures("trusting")
def test_a_failure_leaves_the_outcome_unknown_as_in_the_thread() -> None:
    async def story(scene: Scene, lane: Watched) -> None:
        scene.store.fail = StorageUnavailable("disk full")
        assert isinstance(await scene.publish(b"a"), UnknownOutcome)
        assert isinstance(await scene.publish(b"b"), StorageUnavailable), "the partition is closed"
        assert (lane.put_away, lane.here) == ([], 1)

    play_trusted(story)
