"""`hoot bench compare` with scripted peers: who comes when, what is refused a figure, and what a table says."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from delivery.bench.checking import BenchFailed
from delivery.bench.compare import Row, compare
from delivery.bench.comparing import described
from delivery.bench.peers.arriving import UnderWay, arriving
from delivery.bench.peers.base import Inbox, Peer, Send, Take
from delivery.bench.peers.consumer import Outcome, Task
from delivery.bench.peers.every import EVERY
from delivery.bench.peers.servers import a_port, running
from delivery.bench.rounds import CASES, Load, Round
from delivery.cli import run
from delivery.errors import InvalidRequest

LOAD = Load(size=20, messages=40, rate=10_000, seconds=0.01, subscriptions=4)
Bodies = list[bytes]


class Scripted(Peer):
    """Keeps what is published, and delivers it as `deliver` says."""

    name = durability = library = module = "scripted"

    def __init__(self, name: str = "a", deliver: Callable[[Bodies], Bodies] = list, lacks: str = "") -> None:
        self.name, self.deliver, self.lacks = name, deliver, lacks  # type: ignore[misc] # one class for all of them
        self.queues: dict[str, Bodies] = {}
        self.server_error: Exception | None = None
        self.stopped = False

    def lacking(self) -> str:
        return self.lacks

    def client(self) -> str:
        return "scripted 1"

    @contextmanager
    def server(self, folder: Path) -> Iterator[str]:
        if self.server_error is not None:
            raise self.server_error
        yield "here"
        self.stopped = True

    def server_version(self, address: str) -> str:
        return f"{self.name} 1.0 {address}"

    def prepare(self, address: str, queue: str, groups: Sequence[str]) -> None:
        self.queues[queue] = []

    @contextmanager
    def publisher(self, address: str, queue: str) -> Iterator[Send]:
        def send(bodies: Iterable[bytes]) -> None:
            self.queues[queue] += bodies

        yield send

    def consume(self, address: str, queue: str, group: str, inbox: Inbox, take: Take) -> None:
        for body in self.deliver(self.queues[queue]):
            take(body)


class AtOnce:
    """A subscriber in the place of a process, which takes what was published when it is asked for its outcome."""

    def __init__(self, peer: Peer, task: Task) -> None:
        self._peer, self._task = peer, task

    def ready(self) -> None: ...

    def kill(self) -> None: ...

    def outcome(self) -> Outcome:
        inbox = Inbox(self._task.expected)
        take = inbox.take_timed if self._task.timed else inbox.take
        self._peer.consume(self._task.address, self._task.queue, self._task.group, inbox, take)
        return Outcome(inbox.first_ns, inbox.last_ns, inbox.latencies, inbox.trouble())


def rows_of(*peers: Scripted, cases: Sequence[str] = CASES, runs: int = 1, load: Load = LOAD) -> list[Row]:
    def a_round(peer: Peer, address: str, load: Load) -> Round:
        return Round(peer, address, load, partial(AtOnce, peer))

    return list(compare(peers, cases, load, runs, make_round=a_round))


def test_every_case_has_a_row_with_its_figures_and_what_was_measured() -> None:
    peer = Scripted()
    rows = {row.case: row for row in rows_of(peer, runs=3)}
    assert sorted(rows) == sorted(CASES)
    for row in rows.values():
        assert (row.peer, row.server, row.client, row.size, row.runs) == ("a", "a 1.0 here", "scripted 1", 20, 3)
        assert row.per_second is not None
        assert (row.per_second_min or 0) <= row.per_second <= (row.per_second_max or 0)
    assert {case: row.messages for case, row in rows.items()} == {
        "publish": 40, "drain": 40, "live": 40, "latency": 100, "fanout": 40,
    }  # fmt: skip
    assert [case for case, row in rows.items() if row.p99_ms is not None] == ["latency"]
    assert peer.stopped


@pytest.mark.parametrize("expected", [1, 3])
def test_an_inbox_is_over_with_the_last_message_and_begun_with_the_first(expected: int) -> None:
    inbox = Inbox(expected)
    for number in range(expected):
        assert not inbox.over
        assert inbox.begun.is_set() is (number > 0)
        inbox.take(number.to_bytes(8, "little"))
    assert inbox.over
    assert 0 < inbox.first_ns <= inbox.last_ns
    assert inbox.trouble() == ""


def test_peers_take_turns_and_another_one_is_the_first_in_each_run() -> None:
    order: list[str] = []

    def noting(name: str, bodies: Bodies) -> Bodies:
        order.append(name)
        return bodies

    rows_of(*(Scripted(name, partial(noting, name)) for name in "abc"), cases=["live"], runs=4)
    assert "".join(order) == "abcbcacababc"


@pytest.mark.parametrize(
    "deliver",
    [
        lambda bodies: bodies[:-1],
        lambda bodies: [*bodies[:3], *bodies[2:]],
        lambda bodies: [*bodies[:3], *reversed(bodies[3:])],
        lambda bodies: [*bodies[:-1], bodies[-2]],
    ],
    ids=["lost", "doubled", "reordered", "one for another"],
)
@pytest.mark.parametrize("case", CASES)
def test_there_is_no_figure_for_what(deliver: Callable[[Bodies], Bodies], case: str) -> None:
    [row, other] = rows_of(Scripted("a", deliver), Scripted("b"), cases=[case])
    assert row.per_second is None
    assert "messages were published" in row.absent
    assert other.per_second is not None


def test_one_bad_run_takes_the_figure_of_all() -> None:
    runs = iter([True, False, True])
    [row] = rows_of(Scripted("a", lambda bodies: bodies if next(runs) else bodies[1:]), cases=["live"], runs=3)
    assert row.per_second is None
    assert row.absent.startswith("no figure: ")


def test_a_peer_that_is_missing_or_does_not_start_is_a_row_that_says_so() -> None:
    broken = Scripted("broken")
    broken.server_error = InvalidRequest("its port is taken")
    rows = rows_of(Scripted("gone", lacks="not on PATH: gone-server"), broken, Scripted("here"), cases=["live"])
    assert [(row.peer, row.absent) for row in rows] == [
        ("gone", "not on PATH: gone-server"), ("broken", "its port is taken"), ("here", ""),
    ]  # fmt: skip


def test_with_no_peer_at_all_each_says_why() -> None:
    assert [row.absent for row in rows_of(Scripted("a", lacks="no library"), runs=2)] == ["no library"]


def test_what_a_library_raises_is_told_and_the_others_go_on() -> None:
    def fail(bodies: Bodies) -> Bodies:
        raise ConnectionResetError("gone")

    rows = rows_of(Scripted("a", fail), Scripted("b"), cases=["live", "drain"])
    assert {(row.peer, row.case): row.absent for row in rows if row.absent} == {
        ("a", "live"): "no figure: ConnectionResetError: gone", ("a", "drain"): "no figure: ConnectionResetError: gone",
    }  # fmt: skip


def test_a_slow_peer_gets_its_share_of_the_messages() -> None:
    slow = Scripted()
    slow.share = 0.1  # type: ignore[misc] # see Scripted
    assert {row.messages for row in rows_of(slow, cases=["publish", "live", "fanout"])} == {4}


def test_rows_as_words() -> None:
    row = Row(peer="a", durability="fsync", per_second=1234.5, per_second_min=1000, per_second_max=2000, p50_ms=0.5)
    assert described(row) == ("1,234", "1,000 – 2,000", "0.50", "")
    assert described(Row(peer="a", durability="fsync", absent="not on PATH: x")) == ("–", "not on PATH: x", "", "")


@pytest.mark.parametrize("arguments", [["--peers", "hoot,carrier-pigeon"], ["--cases", "wishes"], ["--size", "8"]])
def test_bad_use_is_refused(arguments: list[str]) -> None:
    assert run(["bench", "compare", *arguments]) == 2


def test_every_adapter_says_what_an_acknowledgement_of_it_means() -> None:
    assert all(peer.durability and peer.library and peer.module for peer in EVERY.values())
    assert EVERY["hoot"].lacking() == ""


def test_a_server_ends_with_the_bench_however_that_ends() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    endless = f"{deaf}; import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
    command = [sys.executable, "-m", "delivery.bench.peers.keeper", sys.executable, "-c", endless]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        server = int(keeper.stdout.readline())
        keeper.stdin.close()  # as the kernel does it for a bench that was killed
        assert keeper.stdout.read() == b"", "until nobody has it open"
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def test_what_a_server_said_is_told_when_it_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such cluster')"]
    with pytest.raises(BenchFailed, match="no such cluster"), running(tmp_path, command, a_port()):
        pass


def test_bodies_that_come_slowly_are_handed_on_in_order() -> None:
    async def all_of(bodies: Iterable[bytes]) -> list[bytes]:
        return [body async for body in arriving(bodies)]

    numbers = [b"%d" % number for number in range(100)]
    assert asyncio.run(all_of(iter(numbers))) == numbers


def test_a_publisher_waits_until_few_enough_are_under_way() -> None:
    async def story() -> None:
        under_way = UnderWay()
        under_way.count = 3
        waiting = asyncio.ensure_future(under_way.until(1))
        for left in (2, 1):
            await asyncio.sleep(0)
            assert not waiting.done()
            under_way.acknowledged()
            assert under_way.count == left
        await waiting

    asyncio.run(story())
