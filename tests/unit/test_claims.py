"""Many claims in one go: what they ask of ZooKeeper together, and that each one is decided by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from delivery.cluster.claims import Answer, Claims, Granted, Wanted
from delivery.errors import BadVersion, CorruptRecord, HootError, NotOwner, StorageUnavailable
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.partitions import Claim, Seen
from delivery.metastore.records import HostRecord
from delivery.model import QueueSettings
from delivery.storage.base import PartitionKey
from tests.hosting import (
    ME,
    OTHER,
    FaultyStore,
    Scene,
    ScriptedCluster,
    ScriptedDirectory,
    ScriptedMember,
    eventually,
    play,
)
from tests.sharing import wide


class CountingDirectory(ScriptedDirectory):
    """Counts the requests, and may know damaged records and partitions that others claim faster."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        super().__init__(cluster)
        self.asked: list[str] = []
        self.damaged: set[int] = set()
        self.taken_faster: set[int] = set()

    def partitions(self, places: Sequence[tuple[str, int]]) -> list[Seen | CorruptRecord]:
        self.asked.append("read")
        found = super().partitions(places)
        return [CorruptRecord("damaged") if number in self.damaged else one
                for (_, number), one in zip(places, found, strict=True)]  # fmt: skip

    def claim_many(self, claims: Sequence[Claim]) -> list[HootError | None]:
        self.asked.append("write")
        for claim in claims:
            if claim.partition in self.taken_faster:
                self._cluster.owners[claim.queue, claim.partition] = (OwnerInfo(OTHER, 22, 9), claim.version + 1)
        return super().claim_many(claims)

    def host(self, host: str) -> HostRecord | None:
        self.asked.append("host")
        return super().host(host)


class CountingMember(ScriptedMember):
    """Counts the probes."""

    probes = 0

    def is_gone(self, other: HostRecord) -> bool:
        self.probes += 1
        return super().is_gone(other)


def wanted(number: int, *, free: bool = True) -> Wanted:
    return Wanted(PartitionKey("orders", "g1", number), 11, free)


@pytest.fixture
def cluster() -> ScriptedCluster:
    return wide()


def claim(directory: ScriptedDirectory, cluster: ScriptedCluster, *asked: Wanted) -> list[Answer | HootError]:
    return Claims(directory, FaultyStore(), ScriptedMember(cluster)).claim(asked)


def test_many_claims_read_once_and_write_once_and_look_at_each_owner_once(cluster: ScriptedCluster) -> None:
    directory, member = CountingDirectory(cluster), CountingMember(cluster)
    for number in range(5):
        cluster.owners["orders", number] = (OwnerInfo(OTHER, 22, 4), 3)
    answers = Claims(directory, FaultyStore(), member).claim([wanted(number) for number in range(20)])
    assert answers == [cluster.live[OTHER]] * 5 + [Granted(1, 0)] * 15
    assert directory.asked == ["read", "host", "write"]
    assert member.probes == 1


def test_each_claim_is_decided_by_itself(cluster: ScriptedCluster) -> None:
    directory = CountingDirectory(cluster)
    cluster.owners |= {
        ("orders", 0): (OwnerInfo(OTHER, 22, 4), 3),  # lives
        ("orders", 1): (OwnerInfo(OTHER, 21, 4), 3),  # of an earlier session
        ("orders", 2): (OwnerInfo("", 0, 6), 5),  # released
        ("orders", 3): (OwnerInfo(ME, 11, 7), 6),  # given to this host
        ("orders", 4): (OwnerInfo(ME, 10, 2), 1),  # this host's, of an earlier session
    }
    directory.damaged, directory.taken_faster = {5}, {6}
    answers = claim(directory, cluster, *(wanted(number) for number in range(8)))
    assert answers[:5] == [cluster.live[OTHER], Granted(5, 4), Granted(7, 6), Granted(8, 7), Granted(3, 2)]
    assert isinstance(answers[5], CorruptRecord)
    assert isinstance(answers[6], NotOwner)
    assert answers[7] == Granted(1, 0)


def test_what_is_not_to_be_taken_free_is_taken_only_when_the_record_names_this_host(cluster: ScriptedCluster) -> None:
    cluster.owners["orders", 1] = (OwnerInfo(ME, 11, 7), 6)
    asked = [wanted(0, free=False), wanted(1, free=False)]
    assert claim(CountingDirectory(cluster), cluster, *asked) == [None, Granted(8, 7)]


def test_what_cannot_be_opened_is_given_up_and_the_store_says_why(cluster: ScriptedCluster) -> None:
    directory, store = CountingDirectory(cluster), FaultyStore()
    claims = Claims(directory, store, ScriptedMember(cluster))
    granted = claims.claim([wanted(0)])[0]
    assert isinstance(granted, Granted)
    store.fail_open = StorageUnavailable("no disk")
    with pytest.raises(StorageUnavailable, match="no disk"):
        claims.open(wanted(0).key, QueueSettings(), granted)
    assert cluster.owners["orders", 0] == (OwnerInfo("", 0, 1), 1)
    with pytest.raises(BadVersion):
        directory.release("orders", 0, 1, 0)


def test_a_claim_that_is_on_its_way_ends_in_owning_although_nobody_waits_for_it_any_more() -> None:
    async def story(scene: Scene) -> None:
        scene.store.opening.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.ownership.acquire, "orders", 0)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            scene.store.opening.set()
        assert scene.ownership.has("orders", 0)
        assert scene.cluster.owners["orders", 0][0].host == ME

    play(story)


def test_one_partition_that_takes_long_to_open_holds_up_no_other() -> None:
    async def story(scene: Scene) -> None:
        scene.store.slow = 3
        scene.store.opening.clear()
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(scene.ownership.acquire, "orders", number)
            await eventually(lambda: len(scene.ownership) == 19)
            assert not scene.ownership.has("orders", 3)
            scene.store.opening.set()
        assert len(scene.ownership) == 20

    play(story, Scene(wide()))
