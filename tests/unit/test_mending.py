"""What fails half-way is noticed at once: hand-overs, and partitions that a host claimed and could not open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from delivery.cluster.partition import OwnedPartition
from delivery.cluster.sharing import takeover
from delivery.errors import (
    CorruptRecord,
    DeadlineExceeded,
    HootError,
    HostUnreachable,
    MetadataUnavailable,
    NotOwner,
    StorageUnavailable,
)
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.records import HostRecord
from tests.hosting import ME, eventually
from tests.sharing import Company, other, together, wide

SOON: Final = 6.0
"""Far less than the 30 s of a sweep, and more than any pause of this machine."""

# -- hand-overs -----------------------------------------------------------------------------------------------------


async def given_in_vain(company: Company, error: type[HootError], *, draining: bool = False) -> OwnedPartition:
    owned = await company.scene.ownership.acquire("orders", 0, given=True)
    company.giving.close(closed=draining)
    with pytest.raises(error):
        await company.giving.give(owned, other("h", 22))
    return owned


@pytest.mark.parametrize("refusal", [HostUnreachable("gone"), DeadlineExceeded("slow"), StorageUnavailable("disk")])
def test_what_the_target_does_not_take_is_taken_back_and_the_others_may_have_it(refusal: HootError) -> None:
    async def story(company: Company) -> None:
        company.peers.refuse = refusal
        owned = await given_in_vain(company, type(refusal))
        again = await company.takeovers.acquire("orders", 0)
        assert again.epoch == owned.epoch + 2
        assert company.cluster.owners["orders", 0][0] == OwnerInfo(ME, 11, again.epoch)
        await eventually(lambda: sorted(company.peers.told) == [(host, "orders", (0,), "h") for host in ("h", "i")])

    together(Company(other("h", 22), other("i", 23, draining=True)), story, seconds=SOON)


def test_what_could_not_be_written_into_the_record_stays_here_once_zookeeper_answers() -> None:
    async def story(company: Company) -> None:
        owned = await company.scene.ownership.acquire("orders", 0, given=True)
        company.cluster.silent = True
        with pytest.raises(MetadataUnavailable):
            await company.giving.give(owned, other("h", 22))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(company.takeovers.acquire, "orders", 0)
            await wait_all_tasks_blocked(0.05)
            company.cluster.silent = False
        assert company.cluster.owners["orders", 0][0].host == ME
        assert company.peers.told == [], "nobody else may have it"

    together(Company(other("h", 22)), story, seconds=SOON)


def test_a_draining_host_takes_nothing_back_but_tells_the_others() -> None:
    async def story(company: Company) -> None:
        company.peers.refuse = HostUnreachable("gone")
        await given_in_vain(company, HostUnreachable, draining=True)
        await eventually(lambda: sorted(told[0] for told in company.peers.told) == ["h", "i"])
        assert company.cluster.owners["orders", 0][0].host == ""

    together(Company(other("h", 22), other("i", 23)), story, seconds=SOON)


def test_a_partition_that_another_host_took_at_that_moment_is_waited_for_there() -> None:
    async def story(company: Company) -> None:
        owned = await company.scene.ownership.acquire("orders", 0, given=True)
        company.cluster.owners["orders", 0] = (OwnerInfo("i", 23, 7), 9)
        with pytest.raises(NotOwner):
            await company.giving.give(owned, other("h", 22))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(company.takeovers.acquire, "orders", 0)
            elsewhere = company.scene.ownership.elsewhere
            await eventually(lambda: ("orders", 0) in elsewhere and elsewhere["orders", 0].host == "i")
            company.leave("i")

    together(Company(other("h", 22), other("i", 23)), story, seconds=SOON)


def test_a_target_that_was_late_keeps_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(company: Company) -> None:
        async def take_and_be_late(host: HostRecord, *_: object) -> None:
            await trio.lowlevel.checkpoint()
            record, version = company.cluster.owners["orders", 0]
            company.cluster.owners["orders", 0] = (OwnerInfo(host.host, 22, record.epoch + 1), version + 1)
            raise DeadlineExceeded("late")

        monkeypatch.setattr(company.peers, "take_partition", take_and_be_late)
        await given_in_vain(company, DeadlineExceeded)
        reads = company.cluster.reads
        await eventually(lambda: company.cluster.reads > reads)
        await wait_all_tasks_blocked(0.05)
        assert company.cluster.owners["orders", 0][0].host == "h"
        assert company.peers.told == []

    together(Company(other("h", 22)), story, seconds=SOON)


# -- what cannot be opened ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [StorageUnavailable("no"), CorruptRecord("damaged")])
def test_a_host_that_cannot_open_what_it_claimed_tells_the_others(error: HootError) -> None:
    async def story(company: Company) -> None:
        company.scene.store.fail_open = error
        for _ in range(3):
            with pytest.raises(type(error)):
                await company.scene.ownership.acquire("orders", 0, given=True)
        await eventually(lambda: company.peers.told == [("h", "orders", (0,), ME)])

    together(Company(other("h", 22)), story, seconds=SOON)


def test_news_that_come_while_a_host_is_being_told_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(company: Company) -> None:
        told: list[tuple[int, ...]] = []
        listening = trio.Event()

        async def tell_slowly(_host: HostRecord, _queue: str, partitions: Sequence[int], _unable: str) -> None:
            told.append(tuple(partitions))
            await listening.wait()
            raise HostUnreachable("not any more")

        monkeypatch.setattr(company.peers, "tell_freed", tell_slowly)
        for partition in range(5):
            company.news.freed("orders", partition, "h")
            await wait_all_tasks_blocked()
        listening.set()
        await eventually(lambda: told == [(0,), (1, 2, 3, 4)])

    together(Company(other("h", 22)), story, seconds=SOON)


def test_what_another_host_could_not_keep_is_taken_here_where_it_is_waited_for() -> None:
    async def story(company: Company) -> None:
        for partition in range(20):
            company.cluster.owners["orders", partition] = (OwnerInfo("h", 22, 1), 0)
        async with trio.open_nursery() as nursery:
            for partition in range(0, 20, 2):
                nursery.start_soon(company.takeovers.acquire, "orders", partition)
            await eventually(lambda: len(company.scene.ownership.elsewhere) == 10)
            for partition in range(20):
                company.cluster.owners["orders", partition] = (OwnerInfo("", 0, 1), 1)
            company.takeovers.freed("orders", range(20), "h")
        assert sorted(one.key.partition for one in company.scene.ownership) == list(range(0, 20, 2))

    together(Company(other("h", 22), cluster=wide()), story, seconds=SOON)


def test_a_host_that_drains_no_more_takes_what_nobody_has() -> None:
    async def story(company: Company) -> None:
        company.giving.close()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(company.takeovers.acquire, "orders", 0)
            await wait_all_tasks_blocked(0.05)
            assert len(company.scene.ownership) == 0
            company.giving.close(closed=False)
            assert company.takeovers.look() == 1

    together(Company(), story, seconds=SOON)


def test_what_cannot_be_opened_is_left_alone_for_a_while_and_tried_again_though_nothing_is_heard() -> None:
    async def story(company: Company) -> None:
        company.scene.store.fail_open = StorageUnavailable("no")
        with pytest.raises(StorageUnavailable):
            await company.takeovers.acquire("orders", 0)
        claims = company.cluster.claims
        company.scene.store.fail_open = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(company.takeovers.acquire, "orders", 0)
            company.takeovers.freed("orders", [0], "h")
            await wait_all_tasks_blocked(0.1)
            assert company.cluster.claims == claims, "not even when another host could not open it, either"

    together(Company(), story, seconds=SOON)


def test_the_pauses_grow_up_to_those_between_sweeps_and_a_failure_counts_once() -> None:
    backoff, now, pauses = takeover._Backoff(30.0), 100.0, list[float]()
    for _ in range(9):
        until = backoff.failed(now)
        assert backoff.failed(now + 0.1) == until, "another subscription heard of the same failure"
        pauses.append(until - now)
        now = until
    for pause, least in zip(pauses, (1, 2, 4, 8, 16, 30, 30, 30, 30), strict=True):
        assert least <= pause <= 1.5 * least
    assert len({round(pause, 6) for pause in pauses[-4:]}) > 1, "no two hosts go in step"
