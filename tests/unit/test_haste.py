"""When a host stores a batch without a thread: where the store has been quick, and only then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from delivery.errors import HootError, ServiceStopping, StorageUnavailable, UnknownOutcome
from delivery.metrics import Metrics
from delivery.model import Durability
from delivery.publish.committer import Committer
from delivery.publish.haste import BYTES_MAX, IN_A_ROW, SOON_SECONDS, Haste
from delivery.publish.lane import Answers, CommitThread
from delivery.publish.pending import Stored
from delivery.publish.writer import Entry
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
    found = [kind for kind in kinds if haste.may(stamped_batch(1, durability=kind))]
    assert tuple(found) == may


def test_one_slow_group_ends_the_trust_and_a_large_batch_has_none() -> None:
    haste = Haste()
    for _ in range(IN_A_ROW):
        haste.noted([SYNCED], SOON_SECONDS)
    assert not haste.may(stamped_batch(1, [bytes(BYTES_MAX)]))
    assert haste.may(SYNCED)
    haste.noted([SYNCED], SOON_SECONDS * 1.01)
    assert not haste.may(SYNCED)
    assert not haste.may(WRITTEN)


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
    """A machine on which a thread may wait for its turn for any time."""
    monkeypatch.setattr("delivery.publish.haste.SOON_SECONDS", 60.0)


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
        await wait_all_tasks_blocked()
        assert isinstance(await scene.publish(b"b"), Stored)
        await wait_all_tasks_blocked()
        assert (lane.put_away, lane.here) == ([], 2)
        large = scene.publisher.begin("orders", 0, batch(bytes(BYTES_MAX)))
        small = scene.publisher.begin("orders", 0, batch(b"c"))
        assert isinstance(await large.wait(), Stored)
        assert isinstance(await small.wait(), Stored)
        assert (lane.put_away, lane.here) == ([1, 1], 2), "it does not overtake the one in the thread"
        assert (await bodies_in(scene))[IN_A_ROW:] == [b"a", b"b", bytes(BYTES_MAX), b"c"]

    play_trusted(story)


@pytest.mark.usefixtures("trusting")
def test_of_many_that_come_in_one_turn_one_is_stored_there_and_the_others_gather() -> None:
    """However quick the disk is: what else the host has to do waits for one flush, not for as many as come."""

    async def story(scene: Scene, lane: Watched) -> None:
        begun = [scene.publisher.begin("orders", 0, batch(b"%d" % number)) for number in range(100)]
        assert [isinstance(pending.outcome, Stored) for pending in begun] == [True] + [False] * 99
        for pending in begun:
            await pending.wait()
        assert (lane.put_away, lane.here) == ([1, 98], 1)
        assert (await bodies_in(scene))[IN_A_ROW:] == [b"%d" % number for number in range(100)]

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


def test_what_comes_when_the_committer_has_ended_is_refused_and_holds_up_no_end() -> None:
    refused: list[object] = []

    class Outcomes:
        def stored(self, entries: Sequence[Entry]) -> None:
            assert not entries

        def failed(self, entry: Entry, error: HootError) -> None:
            raise AssertionError

        def refused(self, entry: Entry, error: HootError) -> None:
            refused.append(type(error))

    async def run() -> None:
        committer = Committer(CommitThread(FaultyStore()), Metrics(), 1 << 20, Outcomes())
        async with trio.open_nursery() as nursery:
            await nursery.start(committer.run)
            nursery.cancel_scope.cancel()
        committer.add(cast("Entry", None))
        with trio.fail_after(10):
            await committer.drained()

    trio.run(run)
    assert refused == [ServiceStopping]
