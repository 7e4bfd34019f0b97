"""The tools of the chaos tests do what they say: the proxy's faults, the ensemble's roles, nothing left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos.children import Child, Keeper
from tests.chaos.cluster import Cluster, Shape
from tests.chaos.ensemble import Ensemble
from tests.chaos.nemesis import Nemesis
from tests.chaos.plan import CLOCK_STEPS, FAULTS, QUIET_EVERY, plan
from tests.chaos.ports import new_port
from tests.chaos.proxy import HEALTHY, Faults, Proxy
from tests.chaos.report import again
from tests.integration.embedded import ROOT, eventually, running

PROXIED, SECONDS = "127.0.0.5", 0.3


class Echo:
    """A server that answers whatever it gets, and remembers it."""

    def __init__(self) -> None:
        self.port = new_port()
        self.got = b""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while piece := connection.recv(65536):
                    self.got += piece
                    connection.sendall(piece)
            except ConnectionError:
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy() as made:
        made.add("leg", PROXIED, ("127.0.0.1", echo.port))
        yield made


@pytest.fixture
def client(proxy: Proxy, echo: Echo) -> Iterator[socket.socket]:
    with socket.create_connection((PROXIED, echo.port), 5) as connection:
        yield connection


def answer(client: socket.socket, said: bytes, seconds: float = 5.0) -> bytes:
    client.settimeout(seconds)
    client.sendall(said)
    return client.recv(65536)


def answers(client: socket.socket, *said: bytes) -> list[bytes]:
    """Of a connection that was reset, the first may still come or be empty, the second cannot."""
    return [answer(client, one) for one in said]


def test_a_healthy_leg_passes_everything_both_ways(client: socket.socket, proxy: Proxy) -> None:
    assert answer(client, b"hello") == b"hello"
    eventually(lambda: proxy.legs["leg"].carried == 10, "both ways are counted")
    assert proxy.legs["leg"].greeting == b"hello"


def test_a_cut_leg_resets_what_is_open_and_what_comes_until_it_is_healed(
    client: socket.socket, proxy: Proxy, echo: Echo
) -> None:
    assert answer(client, b"1") == b"1"
    proxy.set("leg", Faults(mode="cut"))
    with pytest.raises(ConnectionError):
        answers(client, b"2", b"3")
    with socket.create_connection((PROXIED, echo.port), 5) as other, pytest.raises(ConnectionError):
        answers(other, b"4", b"5")
    proxy.set("leg", HEALTHY)
    with socket.create_connection((PROXIED, echo.port), 5) as other:
        assert answer(other, b"6") == b"6"
    assert echo.got == b"16"


def test_a_silent_leg_accepts_and_says_nothing_and_what_was_said_arrives_when_it_is_healed(
    client: socket.socket, proxy: Proxy, echo: Echo
) -> None:
    assert answer(client, b"1") == b"1"
    proxy.set("leg", Faults(mode="silent"))
    with socket.create_connection((PROXIED, echo.port), 5) as other:
        for one in (client, other):
            with pytest.raises(TimeoutError):
                answer(one, b"2", SECONDS)
        assert echo.got == b"1"
        proxy.set("leg", HEALTHY)
        for one in (client, other):
            one.settimeout(5)
            assert one.recv(10) == b"2"


def test_a_leg_that_drops_replies_delivers_what_is_asked_and_is_reset_when_it_is_healed(
    client: socket.socket, proxy: Proxy, echo: Echo
) -> None:
    proxy.set("leg", Faults(drop_replies=True))
    with pytest.raises(TimeoutError):
        answer(client, b"1", SECONDS)
    assert echo.got == b"1"
    proxy.set("leg", HEALTHY)
    with pytest.raises(ConnectionError):
        answers(client, b"2", b"3")
    with socket.create_connection((PROXIED, echo.port), 5) as other:
        assert answer(other, b"4") == b"4"


@pytest.mark.parametrize("faults", [Faults(delay=SECONDS / 2), Faults(bytes_per_second=round(2 / SECONDS))])
def test_a_slow_leg_passes_everything_later(client: socket.socket, proxy: Proxy, faults: Faults) -> None:
    proxy.set("leg", faults)
    begun = time.monotonic()
    assert answer(client, b"1") == b"1"
    assert time.monotonic() - begun >= SECONDS * 0.9


@pytest.mark.integration
@pytest.mark.chaos
def test_an_ensemble_outlives_its_leader_and_not_its_majority_and_comes_back(tmp_path: Path) -> None:
    with Ensemble(tmp_path) as ensemble:
        [leader] = ensemble.by_role("leader")
        assert len(ensemble.by_role("follower")) == 2
        leader.end()
        ensemble.wait()
        [second] = ensemble.by_role("leader")
        assert second is not leader
        second.end()
        eventually(lambda: not ensemble.serves, "one alone does not serve")
        for node in (leader, second):
            ensemble.start(node)
        ensemble.wait(everybody=True)


# Starts an ensemble and a child that is then stopped, prints the ids of all processes, and waits to be killed.
RUN = """\
import signal, sys, threading
from pathlib import Path
from tests.chaos.children import Child, Keeper
from tests.chaos.ensemble import Ensemble
from tests.integration.embedded import descendants
import os
folder = Path(sys.argv[1])
with Keeper() as keeper, Ensemble(folder) as ensemble:
    child = Child("child", keeper, folder / "log", lambda _: ["-c", "import time; time.sleep(600)"])
    child.start()
    child.signal(signal.SIGSTOP)
    ensemble.nodes[0].signal(signal.SIGSTOP)
    print(*descendants(os.getpid()), flush=True)
    threading.Event().wait()
"""


@pytest.mark.integration
@pytest.mark.chaos
def test_a_run_that_is_killed_leaves_nothing_behind_not_even_what_it_had_stopped(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with run:
        assert run.stdout is not None
        pids = {int(word) for word in run.stdout.readline().split()}
        assert len(pids) >= 8, "a keeper, a child, three guards and three servers"
        assert all(running(pid) for pid in pids)
        run.kill()
        run.wait()
        eventually(lambda: not any(running(pid) for pid in pids), "all are gone", 20)


def test_a_child_can_be_started_again_and_is_gone_when_it_is_closed(tmp_path: Path) -> None:
    with Keeper() as keeper:
        child = Child("child", keeper, tmp_path / "log", lambda _: ["-c", "import time; time.sleep(600)"])
        child.start()
        pid = child.pid
        assert not child.stop(5), "it does not handle SIGTERM"
        child.start()
        assert child.incarnation == 2
        assert child.pid != pid
        child.close()
        assert not child.alive
    assert not running(pid)


def test_what_ended_by_itself_is_told_and_started_again_and_what_was_retired_is_not(tmp_path: Path) -> None:
    cluster, told = Cluster(tmp_path, Shape()), list[str]()
    nemesis = Nemesis(cluster, told.append)
    with Keeper() as keeper:
        for name in ("falls", "retires"):
            child = Child(name, keeper, tmp_path / "log", lambda _: ["-c", "import time; time.sleep(600)"])
            cluster.publishers[name] = child
            child.start()
        nemesis.retire(cluster.publishers["retires"])
        for child in cluster.children():
            child.kill()

        def revived() -> bool:
            nemesis.revive()
            return cluster.publishers["falls"].alive

        eventually(revived, "it runs again")
        assert not cluster.publishers["retires"].alive
        assert len(told) == 1
        assert "falls ended by itself with status -9" in told[0]
        assert nemesis.problems == [], "it was young"
        for child in cluster.children():
            child.close()


TARGETS = {"host": ["h1", "h2"], "subscriber": ["s1"], "publisher": ["p1"]}


def test_a_seed_has_one_schedule_and_every_fault_comes_in_some() -> None:
    assert plan(1, 120, 4, TARGETS) == plan(1, 120, 4, TARGETS) != plan(2, 120, 4, TARGETS)
    named = {strike.fault for seed in range(60) for step in plan(seed, 180, 4, TARGETS) for strike in step.strikes}
    assert named == set(FAULTS)


def test_a_schedule_ends_all_faults_in_time_and_keeps_its_steps_apart() -> None:
    for seed in range(20):
        steps = plan(seed, 100, 4, TARGETS)
        assert all(step.over <= 100 for step in steps)
        assert all(after.at > before.over for before, after in pairwise(steps))
        amounts = {strike.amount for step in steps for strike in step.strikes if strike.fault == "clock-step"}
        assert amounts <= set(CLOCK_STEPS)
    assert {s.fault for step in plan(3, 100, 4, TARGETS, ["churn"]) for s in step.strikes} == {"churn"}


def test_behind_each_quiet_while_comes_a_fault_of_one_subscriber_alone() -> None:
    for seed in range(20):
        for step in plan(seed, 200, 4, TARGETS)[QUIET_EVERY::QUIET_EVERY]:
            [strike] = step.strikes
            assert strike.target in TARGETS["subscriber"]


def test_the_command_that_plays_a_run_again_has_its_seed_its_length_and_what_was_chosen() -> None:
    assert again(7, 1.5, Shape().session_seconds) == "make chaos MINUTES=1.5 SEED=7"
    command = again(7, 3.0, 6.0, ("host-kill", "churn"))
    assert command == "python -m tests.chaos --minutes 3 --seed 7 --session 6 --only host-kill,churn"
