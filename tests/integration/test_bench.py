"""`hoot bench` with real processes: the partitions are dealt out to the hosts, and what is printed was delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delivery import connect
from delivery.bench import http
from delivery.bench.cases import drain, fanout, filter as filter_case, live, scan
from delivery.bench.groups import groups
from delivery.bench.idle import idle
from delivery.bench.neighbour import slow_neighbour
from delivery.bench.peers.every import EVERY
from delivery.bench.putting import publish
from delivery.bench.restart import restart
from delivery.bench.rounds import Load, Round
from delivery.bench.spread import spread
from delivery.bench.stage import Plan, Setup, queue_for
from delivery.bench.storm import retry_storm
from delivery.client import Client
from delivery.local import LocalEngine
from tests.bench.growth import Given, measured
from tests.integration.cli.running import Hoot

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MESSAGES = 30_000
HTTP: list[tuple[str, dict[str, Any]]] = [
    ("http_publish", {"messages": 120, "connections": 4}),
    ("http_publish", {"messages": 1200, "connections": 3, "per_request": 100}),
    ("http_poll", {"messages": 100, "rate": 500.0}),
    ("http_wait", {"messages": 1, "connections": 20}),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    with LocalEngine(tmp_path_factory.mktemp("engine")) as running:
        yield running


def a_setup(client: Client, engine: LocalEngine, folder: Path, **more: Any) -> Setup:
    given = {"messages": MESSAGES, **more}
    return Setup(
        size=100, durability="os", folder=folder, client=client, zookeeper=engine.address, host_pid=engine.host.pid,
        **given,
    )  # fmt: skip


def test_two_hosts_own_half_of_the_partitions_each_and_every_message_is_delivered(tmp_path: Path) -> None:
    with LocalEngine(tmp_path, processes=2) as engine, connect(engine.address) as client:
        assert len(client.hosts()) == 2
        setup = a_setup(client, engine, tmp_path, partitions=4)
        with queue_for(setup) as queue:
            owners = [one.host for one in client.placement.owners(queue.name)]
            assert owners[0] is not None
            assert owners[1] is not None
            assert owners == [owners[0], owners[1]] * 2
            assert owners[0].host != owners[1].host
        for case in (live, drain):
            found = case(setup)
            assert (found.partitions, found.processes, found.messages) == (4, 2, MESSAGES)
            assert found.messages_per_second > 0


@pytest.mark.parametrize(("case", "options"), HTTP)
def test_topics_are_measured_over_http(
    tmp_path: Path, engine: LocalEngine, case: str, options: dict[str, Any]
) -> None:  # fmt: skip
    with connect(engine.address) as client:
        found = getattr(http, case)(a_setup(client, engine, tmp_path, **options))
    assert found.messages_per_second > 0
    assert (found.requests_per_second is None) == (case != "http_publish")
    assert (found.host_mib is None) == (case != "http_wait")


def test_the_command_runs_as_many_hosts_as_it_is_asked_for(zookeeper_hosts: str) -> None:
    hoot = Hoot(zookeeper_hosts)
    bench = ("bench", "live", "--messages", str(MESSAGES), "--partitions", "2")
    found = hoot.json(*bench, "--processes", "2")
    assert (found["case"], found["partitions"], found["processes"]) == ("live", 2, 2)
    assert "2 partitions, 2 of them used, 1 process)" in hoot(*bench).stdout


@pytest.mark.parametrize(
    "options",
    [{}, {"apart": True}, {"expression": "body.n < 20 AND topic LIKE 'w%'"}, {"selectivity": 1.0}],
    ids=["mixed", "apart", "expression", "all"],
)
def test_a_filter_is_measured_by_what_it_scanned(tmp_path: Path, engine: LocalEngine, options: dict[str, Any]) -> None:
    with connect(engine.address) as client:
        found = filter_case(a_setup(client, engine, tmp_path, **options))
    assert MESSAGES - 5_000 < found.messages <= MESSAGES
    assert found.messages_per_second > 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, None),
        ({"callers": 3}, "put in 3 threads"),
        ({"by": "put_many", "batch": 500}, "put_many of 1,000"),
        ({"by": "awaited", "callers": 1, "messages": 200}, "put, each awaited, in 1 thread"),
        ({"by": "awaited", "callers": 8, "messages": 803}, "put, each awaited, in 8 threads"),
        ({"by": "tasks", "callers": 8, "messages": 803}, "put, each awaited, in 8 tasks"),
    ],
    ids=str,
)
def test_publishing_is_measured_in_every_way_of_putting(
    tmp_path: Path, engine: LocalEngine, options: dict[str, Any], told: str | None
) -> None:
    with connect(engine.address) as client:
        found = publish(a_setup(client, engine, tmp_path, **options))
    assert (found.by, found.batch, found.messages) == (told, options.get("batch"), options.get("messages", MESSAGES))
    assert (found.p50_ms is not None) == (options.get("by") in ("awaited", "tasks"))
    assert found.host_seconds_per_million is not None


def test_many_partitions_are_measured_beside_one(tmp_path: Path, engine: LocalEngine) -> None:
    with connect(engine.address) as client:
        setup = a_setup(client, engine, tmp_path, partitions=40, batch=100)
        found = spread(setup)
        assert (found.case, found.partitions) == ("spread", 40)
        assert 30 < (found.touched or 0) <= 40
        assert found.messages == MESSAGES, "without the first one of each partition"
        assert found.ratio_to_one == pytest.approx(found.messages_per_second / (found.one_per_second or 0), abs=0.01)
        setup.keyed = True
        assert spread(setup).touched == 40


def test_what_a_host_spends_and_holds_is_told(tmp_path: Path, engine: LocalEngine) -> None:
    with connect(engine.address) as client:
        for case in (live, drain, fanout):
            found = case(a_setup(client, engine, tmp_path, subscriptions=2))
            spent = found.host_seconds_per_million
            assert spent is not None
            assert 0 <= spent < 100, "what is less than a tick of the kernel's, for so few messages, counts for nothing"
            assert 20 < (found.host_mib or 0) < 500
        found = live(msgspec.structs.replace(a_setup(client, engine, tmp_path), host_pid=None))
    assert (found.host_seconds_per_million, found.host_mib) == (None, None)


def test_a_restart_is_measured_with_log_on_the_disk_and_without(tmp_path: Path) -> None:
    found = restart(Plan(size=1000, messages=20_000, folder=tmp_path))
    assert (found.log_mib, found.messages) == (19, 20_000)
    assert 0 < (found.ready_ms or 0) == pytest.approx(found.seconds * 1000, abs=1)
    assert (found.empty_ready_ms or 0) > 0
    assert not list(tmp_path.iterdir()), "nothing is left of the log"


@pytest.mark.parametrize(
    ("curve", "most", "places"),
    [("partitions", 10, [1, 10]), ("subscriptions", 10, [1, 10]), ("batch", 10, [1, 10]), ("processes", 2, [1, 2])],
)
def test_costs_that_grow_are_measured_by_the_cases(curve: str, most: int, places: list[int]) -> None:
    found = list(measured(Given(curve, most, 2_000, "os")))
    assert [one.at for one in found] == places
    assert all(one.messages == 2_000 and one.cost_us > 0 and one.host_mib for one in found)


def test_a_scan_of_one_topic_is_told_beside_one_of_all(tmp_path: Path, engine: LocalEngine) -> None:
    with connect(engine.address) as client:
        found = scan(a_setup(client, engine, tmp_path, topics=20))
    assert (found.case, found.messages) == ("scan", MESSAGES)
    assert found.ratio_to_all


def test_with_a_storm_of_retries_each_message_is_handled_and_those_that_failed_come_again(
    tmp_path: Path, engine: LocalEngine
) -> None:
    with connect(engine.address) as client:
        found = retry_storm(a_setup(client, engine, tmp_path, messages=2_000, failing=0.05, pause=0.01))
    assert found.redelivered == 2_000 - found.messages
    assert 50 < found.redelivered < 200
    assert found.all_seconds is not None
    assert found.messages_per_second > 0


def test_the_latency_beside_a_slow_neighbour_is_told_with_that_alone_and_with_the_memory_of_the_host(
    tmp_path: Path, engine: LocalEngine
) -> None:
    with connect(engine.address) as client:
        found = slow_neighbour(a_setup(client, engine, tmp_path, messages=200, rate=500.0, slow=0.01))
    assert None not in (found.p99_ms, found.alone_p99_ms, found.alone_mib, found.host_mib)
    assert (found.ratio_to_alone or 0) > 0


def test_a_member_that_comes_and_goes_costs_its_partitions_a_pause_and_nobody_a_message(
    tmp_path: Path, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delivery.bench.groups._SETTLE_SECONDS", 0.3)
    with connect(engine.address) as client:
        found = groups(a_setup(client, engine, tmp_path, messages=2_000, partitions=4, members=2, rate=200.0))
    assert (found.members, found.messages) == (2, 2_000)
    assert (found.joined_pause_ms or 0) > 0
    assert (found.left_pause_ms or 0) > 0


def test_idle_subscriptions_cost_memory_and_are_awake_when_something_comes(
    tmp_path: Path, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delivery.bench.idle._SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("delivery.bench.idle._QUEUES", 2)
    with connect(engine.address) as client:
        found = idle(a_setup(client, engine, tmp_path, subscriptions=6, quiet=0.1))
    assert (found.subscriptions, found.messages) == (6, 6)
    assert None not in (found.alone_mib, found.host_mib, found.processor_percent)


def test_hoot_is_compared_by_the_same_rounds_as_its_peers(engine: LocalEngine) -> None:
    load, cases = Load(size=100, messages=2000, rate=1000, seconds=0.2), ("publish", "drain", "latency")
    found = {one.case: one for one in Round(EVERY["hoot-os"], engine.address, load).figures(cases)}
    assert {case: one.messages for case, one in found.items()} == dict(zip(cases, (2000, 2000, 200), strict=True))
    assert found["latency"].p50_ms is not None
