"""A host among others: what it takes, what it sends elsewhere, and what it gives away."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from delivery.cluster import use
from delivery.cluster.load import Load
from delivery.cluster.sharing import shedding, upkeep as upkeep_module
from delivery.cluster.sharing.upkeep import Limits, Upkeep, surplus
from delivery.errors import DeadlineExceeded, HostDraining, HostUnreachable, NotOwner, UnknownHost
from delivery.metastore.managers.records import OwnerInfo
from delivery.publish.pending import Stored
from tests.hosting import ME, batch, eventually, outcome
from tests.sharing import Company, other, together, wide

# -- what a client asks for -----------------------------------------------------------------------------------------


def test_what_nobody_owns_goes_to_a_host_with_clearly_less_once_that_has_taken_it() -> None:
    async def story(company: Company) -> None:
        for partition in range(2):
            assert isinstance(await company.scene.publish(b"a", partition=partition), Stored)
        refused = await company.scene.publish(b"a", partition=2)
        assert isinstance(refused, NotOwner)
        assert refused.address == "10.0.0.2:7022"
        assert company.peers.asked == [("h", "orders", 2)]
        assert company.cluster.claims == 2

    together(Company(other("h", 22), cluster=wide()), story)


def test_a_host_that_does_not_take_what_it_is_offered_is_left_alone_and_the_partition_stays() -> None:
    async def story(company: Company) -> None:
        company.peers.refuse = HostUnreachable("nobody there")
        for partition in range(6):
            assert isinstance(await company.scene.publish(b"a", partition=partition), Stored)
        assert len(company.peers.asked) == 1

    together(Company(other("h", 22), cluster=wide()), story)


def test_many_first_touches_in_a_row_are_spread_although_the_others_have_not_told_of_their_load() -> None:
    async def story(company: Company) -> None:
        for partition in range(20):
            await company.scene.publish(b"a", partition=partition)
        got = Counter(host for host, _, _ in company.peers.asked)
        got[ME] = len(company.scene.ownership)
        assert sum(got.values()) == 20
        assert max(got.values()) - min(got.values()) <= 2

    together(Company(other("h", 22), other("i", 23), cluster=wide()), story)


def test_what_is_given_to_this_host_is_taken_however_busy_it_is() -> None:
    async def story(company: Company) -> None:
        for partition in range(10):
            assert (await company.scene.ownership.acquire("orders", partition, given=True)).epoch == 1
        assert company.peers.asked == []

    together(Company(other("h", 22), cluster=wide()), story)


def test_a_record_that_names_this_host_is_never_sent_elsewhere_be_it_draining_or_refused_a_moment_ago() -> None:
    async def story(company: Company) -> None:
        company.cluster.owners["orders", 0] = (OwnerInfo("h", 22, 4), 3)
        assert isinstance(await company.scene.publish(b"a"), NotOwner)
        company.cluster.owners["orders", 0] = (OwnerInfo(ME, 11, 5), 4)
        company.giving.close()
        owned = await company.scene.ownership.acquire("orders", 0, given=True)
        assert (owned.epoch, owned.version) == (6, 5)

    together(Company(other("h", 22)), story)


def test_a_record_of_this_hosts_earlier_session_is_nobodys() -> None:
    async def story(company: Company) -> None:
        company.cluster.owners["orders", 0] = (OwnerInfo(ME, 10, 4), 3)
        company.giving.close()
        assert isinstance(await company.scene.publish(b"a"), NotOwner)
        assert company.peers.asked == []
        assert company.cluster.reads == 1
        company.giving.close(closed=False)
        await trio.sleep(0.3)
        assert isinstance(await company.scene.publish(b"a"), Stored)
        assert company.cluster.owners["orders", 0][0] == OwnerInfo(ME, 11, 5)

    together(Company(), story)


# -- giving ---------------------------------------------------------------------------------------------------------


def test_a_partition_is_given_with_all_that_was_published_and_those_who_come_meanwhile_are_sent_after_it() -> None:
    async def story(company: Company) -> None:
        scene, target = company.scene, other("h", 22)
        await scene.publish(b"a")
        scene.store.gate = threading.Event()
        under_way = scene.publisher.begin("orders", 0, batch(b"b"))
        owned = await scene.ownership.acquire("orders", 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(company.giving.give, owned, target)
            await eventually(lambda: owned.use.leaving)
            late = scene.publisher.begin("orders", 0, batch(b"c"))
            await wait_all_tasks_blocked(0.05)
            assert company.cluster.owners["orders", 0][0].host == ME
            scene.store.gate.set()
        assert isinstance(await outcome(under_way), Stored)
        refused = await outcome(late)
        assert isinstance(refused, NotOwner)
        assert refused.address == "10.0.0.2:7022"
        assert company.cluster.owners["orders", 0] == (OwnerInfo("h", 22, 2), 1)
        assert company.flushed == [1], "checkpoints are written before the record moves"
        assert scene.store.released == ["orders/0"]
        assert company.peers.asked == [("h", "orders", 0)]
        assert len(scene.ownership) == 0

    together(Company(other("h", 22)), story)


def test_a_slow_handover_keeps_no_other_partition_from_being_closed() -> None:
    async def story(company: Company) -> None:
        scene = company.scene
        given, lost = [await scene.ownership.acquire("orders", number, given=True) for number in range(2)]
        company.cluster.gate = threading.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(company.giving.give, given, other("h", 22))
            await eventually(lambda: scene.store.released == [str(given.key)])
            scene.ownership.fence(lost)
            await eventually(lambda: scene.store.released == [str(given.key), str(lost.key)])
            company.cluster.gate.set()

    together(Company(other("h", 22), cluster=wide()), story)


def test_a_host_that_took_what_it_was_given_is_not_blamed_by_who_came_late() -> None:
    async def story(company: Company) -> None:
        await company.scene.ownership.acquire("orders", 0, given=True)
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(company.giving.empty)
        assert len(company.peers.asked) == 1
        assert company.placing.least() is not None

    together(Company(other("h", 22)), story)


def test_a_partition_whose_store_hangs_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use, "COMMIT_SECONDS", 0.1)

    async def story(company: Company) -> None:
        scene = company.scene
        owned = await scene.ownership.acquire("orders", 0)
        scene.store.gate = threading.Event()
        under_way = scene.publisher.begin("orders", 0, batch(b"b"))
        with pytest.raises(DeadlineExceeded):
            await company.giving.give(owned, other("h", 22))
        scene.store.gate.set()
        assert isinstance(await outcome(under_way), Stored)
        assert isinstance(await scene.publish(b"c"), Stored)
        assert company.cluster.owners["orders", 0][0].host == ME

    together(Company(other("h", 22)), story)


def test_readers_are_asked_to_end_then_made_to() -> None:
    async def story(company: Company) -> None:
        owned = await company.scene.ownership.acquire("orders", 0)
        told: list[str] = []
        drained = trio.Event()

        async def reader(name: str, *, obeys: bool) -> None:
            def drain() -> None:
                told.append(f"{name} drains")
                if obeys:
                    drained.set()

            with trio.CancelScope() as scope, owned.reading(drain, scope.cancel):
                await (drained if obeys else trio.Event()).wait()
            told.append(f"{name} ended")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: reader("quick", obeys=True))
            nursery.start_soon(lambda: reader("slow", obeys=False))
            await wait_all_tasks_blocked()
            await company.giving.give(owned, other("h", 22))
        assert sorted(told[:2]) == ["quick drains", "slow drains"]
        assert told[2:] == ["quick ended", "slow ended"]

    together(Company(other("h", 22)), story)


def test_a_move_to_a_host_that_is_not_there_or_drains_is_refused_with_a_reason() -> None:
    async def story(company: Company) -> None:
        with pytest.raises(UnknownHost, match="did you mean hostess"):
            await company.giving.move("orders", 0, "hostes")
        with pytest.raises(HostDraining):
            await company.giving.move("orders", 0, "leaving")
        assert company.cluster.claims == 0
        await company.giving.move("orders", 0, ME)
        assert company.cluster.owners["orders", 0][0].host == ME
        await company.giving.move("orders", 0, "hostess")
        assert company.cluster.owners["orders", 0][0].host == "hostess"

    together(Company(other("hostess", 22), other("leaving", 23, draining=True)), story)


def test_a_draining_host_gives_all_it_has_to_the_least_loaded_others() -> None:
    async def story(company: Company) -> None:
        for partition in range(10):
            await company.scene.ownership.acquire("orders", partition, given=True)
        assert company.giving.drain(True) == 10
        await eventually(lambda: len(company.peers.asked) == 10)
        assert len(company.scene.ownership) == 0
        assert Counter(host for host, _, _ in company.peers.asked) == {"h": 3, "i": 7}
        refused = await company.scene.publish(b"a", partition=15)
        assert isinstance(refused, NotOwner)
        assert company.peers.asked[-1][1:] == ("orders", 15), "another host is asked to take what this one does not"

    together(Company(other("h", 22, 4), other("i", 23), cluster=wide()), story)


def test_without_another_host_a_draining_one_keeps_what_it_has() -> None:
    async def story(company: Company) -> None:
        await company.scene.publish(b"a")
        await company.giving.empty()
        assert company.giving.drain(True) == 1
        await company.giving.empty()
        assert isinstance(await company.scene.publish(b"b"), Stored)

    together(Company(other("leaving", 22, draining=True)), story)


def test_a_partition_that_nobody_uses_is_released_and_taken_anew_by_who_is_asked_next() -> None:
    async def story(company: Company) -> None:
        await company.scene.publish(b"a")
        owned = await company.scene.ownership.acquire("orders", 0)
        await company.giving.release(owned)
        assert company.cluster.owners["orders", 0] == (OwnerInfo("", 0, 1), 1)
        assert isinstance(owned.feed.error, NotOwner)
        assert isinstance(await company.scene.publish(b"b"), Stored)
        assert company.cluster.owners["orders", 0][0] == OwnerInfo(ME, 11, 2)

    together(Company(), story)


def test_what_is_released_is_idle_for_too_long_or_the_longest_unused_above_the_maximum() -> None:
    async def story(company: Company) -> None:
        owned = [await company.scene.ownership.acquire("orders", number, given=True) for number in range(6)]
        now = trio.current_time()
        for number, one in enumerate(owned):
            one.use.used_at = now - 100 + number

        def released(partitions_max: int, idle: float) -> list[int]:
            return [one.key.partition for one in surplus(owned, Limits(partitions_max, idle, 0.0), now)]

        assert released(6, 0) == []
        assert released(4, 0) == [0, 1]
        assert released(6, 97.5) == [0, 1, 2]
        assert released(5, 97.5) == [0, 1, 2]
        with owned[0].reading(lambda: None, lambda: None):
            assert released(6, 97.5) == [1, 2]
            assert released(5, 0) == [1]
            assert released(1, 0) == [1, 2, 3, 4, 5], "one that is in use goes last"

    together(Company(cluster=wide()), story)


def upkeep(company: Company, told: list[Load], **limits: float) -> Upkeep:
    values = {"partitions_max": 1000, "retention_after_access_seconds": 0.0, "rebalance_seconds": 0.0, **limits}

    async def tell(load: Load) -> None:
        await trio.lowlevel.checkpoint()
        told.append(load)

    return Upkeep(company.scene.ownership, company.hosts, company.giving, tell, Limits(**values))  # type: ignore[arg-type]


def test_of_more_partitions_than_a_host_may_have_the_older_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_module, "REFRESH_SECONDS", 0.05)

    async def story(company: Company) -> None:
        told: list[Load] = []
        async with trio.open_nursery() as nursery:
            await nursery.start(upkeep(company, told, partitions_max=1).run)
            for partition in range(3):
                await company.scene.ownership.acquire("orders", partition, given=True)
            await eventually(lambda: len(company.scene.ownership) == 1)
            assert [one.key.partition for one in company.scene.ownership] == [2]
            await eventually(lambda: told[-1].partitions == 1)
            nursery.cancel_scope.cancel()

    together(Company(cluster=wide()), story)


def test_a_host_with_more_than_its_share_gives_some_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_module, "REFRESH_SECONDS", 0.05)
    monkeypatch.setattr(shedding, "SETTLE_SECONDS", 0.0)

    async def story(company: Company) -> None:
        for partition in range(8):
            await company.scene.ownership.acquire("orders", partition, given=True)
        async with trio.open_nursery() as nursery:
            await nursery.start(upkeep(company, [], rebalance_seconds=0.1).run)
            await eventually(lambda: len(company.peers.asked) == 4)
            assert len(company.scene.ownership) == 4
            nursery.cancel_scope.cancel()

    together(Company(other("h", 22), cluster=wide()), story)
