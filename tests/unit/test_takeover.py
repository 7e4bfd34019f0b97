"""When a host takes over what others own: at once where it is the first in order, and never by polling."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from delivery.cluster.hosts.probe import is_gone
from delivery.cluster.hosts.table import HostTable
from delivery.cluster.partition import OwnedPartition
from delivery.cluster.sharing import takeover
from delivery.cluster.sharing.placement import before
from delivery.errors import CorruptRecord, MetadataUnavailable, StorageUnavailable
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.partitions import Seen
from delivery.metastore.records import HostRecord
from tests.hosting import ME, ScriptedCluster, ScriptedDirectory, eventually
from tests.sharing import Company, Watches, other, together, wide

# -- taking over ----------------------------------------------------------------------------------------------------


def held_by(company: Company, host: str, session: int, count: int = 20) -> None:
    for partition in range(count):
        company.cluster.owners["orders", partition] = (OwnerInfo(host, session, 1), 0)


async def waiting(company: Company, nursery: trio.Nursery, count: int = 20) -> None:
    """Ask for all partitions as a delivery does, and wait until it is known who has them."""

    async def acquire(partition: int) -> None:
        await company.takeovers.acquire("orders", partition)

    for partition in range(count):
        nursery.start_soon(acquire, partition)
    await eventually(lambda: len(company.scene.ownership.elsewhere) == count)


def test_while_the_owner_lives_zookeeper_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "STEP_SECONDS", 0.05)

    async def story(company: Company) -> None:
        held_by(company, "h", 22)
        async with trio.open_nursery() as nursery:
            await waiting(company, nursery)
            await wait_all_tasks_blocked(0.1)
            reads = company.cluster.reads
            await trio.sleep(0.5)
            assert company.cluster.reads == reads
            nursery.cancel_scope.cancel()

    together(Company(other("h", 22), cluster=wide()), story)


@pytest.mark.parametrize("how", ["session", "refused"])
def test_a_dead_owners_partitions_fall_at_once_to_those_who_are_first_and_to_others_later(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(takeover, "STEP_SECONDS", 0.05)

    async def story(company: Company) -> None:
        taken: list[int] = []
        times: list[float] = []

        def note(owned: OwnedPartition) -> None:
            taken.append(owned.key.partition)
            times.append(trio.current_time())

        company.scene.ownership.on_taken(note)
        held_by(company, "h", 22)
        async with trio.open_nursery() as nursery:
            await waiting(company, nursery)
            await wait_all_tasks_blocked(0.1)
            survivors = [host for host in company.hosts.all if host.host != "h"]
            first = {p for p in range(20) if not before("orders", p, ME, survivors)}
            assert 0 < len(first) < 20
            monkeypatch.setattr(takeover, "STEP_SECONDS", step := 2.0)
            begun = trio.current_time()
            if how == "session":
                company.leave("h")
            else:
                company.cluster.gone.add("h")
                company.hosts.mark(company.cluster.live["h"], dead=True)
            await eventually(lambda: len(taken) == 20)
            assert set(taken[: len(first)]) == first
            assert times[len(first)] - begun >= step

    together(Company(other("h", 22), other("i", 23), cluster=wide()), story)


def test_who_is_not_the_first_looks_at_all_records_at_once_and_not_while_the_first_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(takeover, "STEP_SECONDS", 0.3)
    monkeypatch.setattr(random, "uniform", lambda low, _: low)

    async def story(company: Company) -> None:
        held_by(company, "h", 22)
        async with trio.open_nursery() as nursery:
            await waiting(company, nursery)
            await wait_all_tasks_blocked(0.1)
            asked: list[Sequence[tuple[str, int]]] = []
            read = company.scene.directory.partitions

            def reading(places: Sequence[tuple[str, int]]) -> list[Seen | CorruptRecord]:
                asked.append(places)
                return read(places)

            monkeypatch.setattr(company.scene.directory, "partitions", reading)
            survivors = [host for host in company.hosts.all if host.host != "h"]
            later = [p for p in range(20) if before("orders", p, ME, survivors)]
            company.leave("h")
            for partition in later[:-2]:
                company.cluster.owners["orders", partition] = (OwnerInfo("i", 23, 2), 1)
            await eventually(lambda: len(company.scene.ownership) == 20 - len(later) + 2)
            assert sum(("orders", later[0]) in places for places in asked) == 1, "a look, and no try"
            assert sum(("orders", later[-1]) in places for places in asked) == 3, "a look, another, and a try"
            assert len(asked) < 20
            nursery.cancel_scope.cancel()

    together(Company(other("h", 22), other("i", 23), cluster=wide()), story)


def test_a_partition_that_is_given_to_this_host_is_delivered_from_at_once() -> None:
    async def story(company: Company) -> None:
        held_by(company, "h", 22)
        async with trio.open_nursery() as nursery:
            await waiting(company, nursery, 1)
            company.cluster.owners["orders", 0] = (OwnerInfo(ME, 11, 2), 1)
            await company.scene.ownership.acquire("orders", 0, given=True)

    together(Company(other("h", 22)), story, seconds=5)


def test_a_release_nobody_heard_of_is_found_by_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "STEP_SECONDS", 0.05)

    async def story(company: Company) -> None:
        held_by(company, "h", 22, 3)
        async with trio.open_nursery() as nursery:
            await waiting(company, nursery, 3)
            for partition in range(3):
                company.cluster.owners["orders", partition] = (OwnerInfo("", 0, 1), 1)

    together(Company(other("h", 22), cluster=wide(3), sweep_seconds=0.2), story, seconds=5)


def test_a_host_that_is_draining_takes_nothing_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "STEP_SECONDS", 0.05)

    async def story(company: Company) -> None:
        held_by(company, "h", 22)
        async with trio.open_nursery() as nursery:
            await waiting(company, nursery)
            company.giving.close()
            company.leave("h")
            await trio.sleep(0.4)
            assert len(company.scene.ownership) == 0
            nursery.cancel_scope.cancel()

    together(Company(other("h", 22), cluster=wide()), story)


def test_errors_of_the_store_reach_who_asked() -> None:
    async def story(company: Company) -> None:
        company.scene.store.fail_open = StorageUnavailable("no")
        with pytest.raises(StorageUnavailable):
            await company.takeovers.acquire("orders", 0)

    together(Company(), story)


# -- the hosts ------------------------------------------------------------------------------------------------------


def test_a_damaged_record_is_told_once_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def story(company: Company) -> None:
        company.cluster.corrupt.append(CorruptRecord("the value of /hoot/hosts/x is no HostRecord"))
        for _ in range(3):
            await company.hosts.recent(-1.0)
        assert [host.host for host in company.hosts.others] == ["h"]
        assert sum("/hoot/hosts/x" in record.message for record in caplog.records) == 1

    together(Company(other("h", 22)), story)


@pytest.mark.parametrize("address", ["rack..example", "x" * 70])
def test_an_address_that_can_be_no_hosts_name_proves_nothing(address: str) -> None:
    assert not is_gone(HostRecord("h", address, 7000, None, 22, "1", 0))


def test_a_failure_to_read_the_hosts_is_that_of_all_who_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[None] = []

    def fail() -> Any:
        reads.append(None)
        raise MetadataUnavailable("no answer")

    async def story(company: Company) -> None:
        monkeypatch.setattr(company.scene.directory, "readable_hosts", fail)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(company.hosts.recent, -1.0)
        assert len(reads) == 1
        await company.hosts.recent(-1.0)
        assert len(reads) == 2, "who asks later has another try"
        assert [host.host for host in company.hosts.others] == ["h"]

    together(Company(other("h", 22)), story)


def test_a_host_that_somebody_names_before_its_coming_is_heard_of_is_found_and_nobody_else() -> None:
    async def story(company: Company) -> None:
        new = company.cluster.live["new"] = other("new", 33)
        await trio.sleep(0.1)
        assert await company.hosts.other_at(new.host_port) == new
        assert await company.hosts.other_at("10.0.0.2:1") is None
        assert await company.hosts.other_at(other("h", 22).host_port) == other("h", 22)

    together(Company(other("h", 22)), story)


def test_a_host_is_gone_when_its_session_ends_or_its_port_is_closed_and_each_is_told_once() -> None:
    async def story() -> None:
        cluster = ScriptedCluster()
        cluster.live = {"a": other("a", 1), "b": other("b", 2)}
        watches, gone = Watches(), list[Any]()
        table = HostTable(watches, ScriptedDirectory(cluster), ME, 30.0)
        table.on_gone(lambda host: gone.append(host.host))
        async with trio.open_nursery() as nursery:
            await nursery.start(table.run)
            table.mark(cluster.live["a"], dead=True)
            assert (gone, [host.host for host in table.others]) == (["a"], ["b"])
            assert not table.lives("a", 1)
            del cluster.live["a"]
            cluster.live["b"] = other("b", 3)
            watches.hint()
            await eventually(lambda: len(gone) == 2)
            assert gone == ["a", "b"], "the same host under another session has lost its partitions"
            assert table.lives("b", 3)
            table.mark(cluster.live["b"], dead=True)
            table.mark(cluster.live["b"], dead=False)
            assert table.lives("b", 3)
            nursery.cancel_scope.cancel()

    trio.run(story)
