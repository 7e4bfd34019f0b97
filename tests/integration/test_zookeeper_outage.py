"""The ZooKeeper client while the server hangs, dies and comes back: deadlines, states, sessions, watches."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import Closed, HootError, MetadataUnavailable
from delivery.metastore.ops import Create, InDoubt
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.integration.embedded import eventually
from tests.integration.metastore import Hints

pytestmark = pytest.mark.integration


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path / "own") as server:
        yield server


@pytest.fixture
def client(server: EmbeddedZooKeeper) -> Iterator[ZooKeeperClient]:
    with ZooKeeperClient(f"{server.address}/outage", session_timeout=4.0, deadline=1.0) as client:
        yield client


def signalled(server: EmbeddedZooKeeper, number: signal.Signals) -> None:
    assert server.pid is not None
    os.kill(server.pid, number)
    tasks = Path(f"/proc/{server.pid}/task")
    stopping = number == signal.SIGSTOP

    def done() -> bool:
        try:
            states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()]
        except FileNotFoundError:  # a thread has ended meanwhile
            return False
        return all((state == "T") == stopping for state in states)

    # The kernel stops thread after thread: one that still runs would answer.
    eventually(done, f"all threads of ZooKeeper have taken {number.name}")


def seconds_to_fail(client: ZooKeeperClient, kind: type[MetadataUnavailable], *, write: bool) -> float:
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        client.set("/a", b"late") if write else client.get("/a")
    assert type(caught.value) is kind
    return time.monotonic() - began


def test_while_zookeeper_hangs_calls_fail_by_their_deadline_and_then_it_recovers(
    server: EmbeddedZooKeeper, client: ZooKeeperClient
) -> None:
    states: list[str] = []
    hints = Hints()
    client.on_state(states.append)
    client.create("/a", b"0")
    client.watch_value("/a", hints)
    hints.more_than(0)
    signalled(server, signal.SIGSTOP)
    try:
        assert seconds_to_fail(client, MetadataUnavailable, write=False) < 3
        assert client.state == "steady"  # nobody can know better yet
        eventually(lambda: client.state == "suspended", "the silence is noticed")
        assert client.session_id != 0
        assert seconds_to_fail(client, MetadataUnavailable, write=False) < 3
        assert seconds_to_fail(client, MetadataUnavailable, write=True) < 3
        count = hints.count
    finally:
        signalled(server, signal.SIGCONT)
    eventually(lambda: client.state == "steady", "the connection is back")
    hints.more_than(count)
    # What was refused while suspended was never sent, and is not sent now.
    assert client.get("/a") == (b"0", 0)
    assert client.set("/a", b"1") == 1
    assert states[0] == "suspended"
    assert states[-1] == "steady"


def test_a_write_without_an_answer_is_in_doubt(server: EmbeddedZooKeeper, client: ZooKeeperClient) -> None:
    client.create("/a", b"0")
    signalled(server, signal.SIGSTOP)
    try:
        assert seconds_to_fail(client, InDoubt, write=True) < 3
    finally:
        signalled(server, signal.SIGCONT)
    eventually(lambda: client.state == "steady", "the connection is back")
    assert client.get("/a") in ((b"0", 0), (b"late", 1))


def test_killed_and_started_again_zookeeper_has_its_data_and_the_session_its_ephemeral_znodes(
    server: EmbeddedZooKeeper,
) -> None:
    with ZooKeeperClient(f"{server.address}/outage", session_timeout=20.0, deadline=1.0) as client:
        outlives_a_restart(server, client)


def outlives_a_restart(server: EmbeddedZooKeeper, client: ZooKeeperClient) -> None:
    hints = [Hints() for _ in range(400)]
    client.create("/persistent", b"p")
    client.create("/ephemeral", b"e", ephemeral=True)
    for n, hint in enumerate(hints):
        client.watch_children(f"/watched-{n}", hint)
    eventually(lambda: all(hint.count for hint in hints), "every watch is set")
    session, counts = client.session_id, [hint.count for hint in hints]
    server.kill()
    eventually(lambda: client.state == "suspended", "the death is noticed")
    assert seconds_to_fail(client, MetadataUnavailable, write=True) < 3
    server.start()
    eventually(lambda: client.state == "steady", "the connection is back", 20)
    assert client.session_id == session
    assert client.get("/persistent") == (b"p", 0)
    assert client.get("/ephemeral") == (b"e", 0)
    # Every watch hints after the reconnect, though nothing changed, and goes on watching.
    eventually(lambda: all(h.count > n for h, n in zip(hints, counts, strict=True)), "every watch hints again")
    count = hints[399].count
    assert client.multi([Create("/watched-399"), Create("/watched-399/child")]) is None
    hints[399].more_than(count)


def test_a_handshake_that_is_never_answered_is_given_up_while_the_session_lives(server: EmbeddedZooKeeper) -> None:
    """ZooKeeper listens before it has opened its database, and forgets, without closing it, who says something then."""
    host, _, port = server.address.partition(":")
    with ZooKeeperClient(server.address, session_timeout=6.0) as client:
        session = client.session_id
        server.kill()
        with contextlib.ExitStack() as taken:
            forgetful = taken.enter_context(socket.create_server((host, int(port))))
            forgetful.settimeout(15.0)
            for _ in range(2):
                taken.enter_context(forgetful.accept()[0])
        server.start()
        eventually(lambda: client.state == "steady", "the connection is back", 20)
        assert client.session_id == session


def test_reads_over_a_restart_are_repeated_until_they_are_answered(server: EmbeddedZooKeeper) -> None:
    with ZooKeeperClient(server.address, deadline=15.0) as client:
        client.create("/a", b"0")
        done, read, failures = threading.Event(), 0, list[BaseException]()

        def reading() -> None:
            nonlocal read
            try:
                while not done.is_set():
                    assert client.get("/a") == (b"0", 0)
                    read += 1
            except (AssertionError, HootError) as error:
                failures.append(error)

        reader = threading.Thread(target=reading)
        reader.start()
        eventually(lambda: read > 20, "reading")
        server.kill()
        server.start()
        before = read
        eventually(lambda: read > before + 20 or bool(failures), "reading again", 15)
        done.set()
        reader.join(20)
        assert failures == []


def test_a_stop_ends_the_waiting_of_other_threads_and_is_not_held_up_by_a_server_that_hangs(
    server: EmbeddedZooKeeper,
) -> None:
    client = ZooKeeperClient(server.address, session_timeout=20.0, deadline=10.0)
    client.start()
    server.kill()
    eventually(lambda: client.state == "suspended", "the death is noticed")
    outcomes: list[type[Exception]] = []

    def waiting() -> None:
        try:
            client.get("/a")
        except (Closed, MetadataUnavailable) as error:
            outcomes.append(type(error))

    waiters = [threading.Thread(target=waiting) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    began = time.monotonic()
    client.stop()
    for waiter in waiters:
        waiter.join(15)
    assert outcomes == [Closed] * 3
    assert time.monotonic() - began < 15

    server.start()
    client = ZooKeeperClient(server.address, session_timeout=20.0, deadline=2.0)
    client.start()
    signalled(server, signal.SIGSTOP)
    try:
        began = time.monotonic()
        client.stop()
        assert time.monotonic() - began < 15
    finally:
        signalled(server, signal.SIGCONT)
