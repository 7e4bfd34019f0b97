"""The ZooKeeper client against a real server: connecting, sessions and watches."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from delivery.embedded.ports import free_port
from delivery.errors import Closed, MetadataUnavailable
from delivery.metastore.ops import InDoubt
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.integration.embedded import eventually
from tests.integration.metastore import Hints, refused

pytestmark = pytest.mark.integration


# -- connecting


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a program that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free() -> int:
    return free_port(None)


def check_says_what_to_do(error: MetadataUnavailable, *details: str) -> None:
    for words in (*details, "`hoot zookeeper`", "`hoot serve --embedded`", "--zookeeper"):
        assert words in error.message
    assert error.retryable


@pytest.mark.parametrize("there", ["nobody", "another program"])
def test_where_no_zookeeper_answers_the_start_fails_by_its_deadline_and_says_what_to_do(
    there: str, silent: int, free: int
) -> None:
    port = silent if there == "another program" else free
    client = ZooKeeperClient(f"127.0.0.1:{port}", deadline=0.5)
    began = time.monotonic()
    with pytest.raises(MetadataUnavailable) as caught:
        client.start()
    assert time.monotonic() - began < 10
    check_says_what_to_do(caught.value, f"127.0.0.1:{port}", "0.5 s")
    assert client.state == "lost"
    with pytest.raises(Closed):
        client.get("/a")


def test_where_every_server_refuses_the_connection_the_deadline_is_not_waited_for(free: int) -> None:
    client = ZooKeeperClient(f"127.0.0.1:{free},localhost:{free}/folder", deadline=60)
    began = time.monotonic()
    with pytest.raises(MetadataUnavailable) as caught:
        client.start()
    assert time.monotonic() - began < 10
    check_says_what_to_do(caught.value, f"127.0.0.1:{free}", "refused")
    assert client.state == "lost"


def test_a_host_name_that_does_not_resolve_is_unavailable_not_a_crash() -> None:
    with pytest.raises(MetadataUnavailable):
        ZooKeeperClient("no-such-host.invalid:2181", deadline=0.5).start()


def test_a_folder_of_several_levels_is_created_and_separates_trees(zookeeper_hosts: str) -> None:
    with ZooKeeperClient(f"{zookeeper_hosts}/a/b") as one, ZooKeeperClient(f"{zookeeper_hosts}/a/c") as other:
        one.create("/x", b"one")
        assert other.get("/x") is None
        with ZooKeeperClient(zookeeper_hosts) as above:
            assert above.get("/a/b/x") == (b"one", 0)


# -- sessions


def test_ephemeral_znodes_go_with_the_session_and_persistent_ones_stay(
    zk: ZooKeeperClient, zookeeper_hosts: str
) -> None:
    with ZooKeeperClient(zookeeper_hosts) as other:
        other.create("/ephemeral", ephemeral=True)
        other.create("/persistent")
        assert zk.exists("/ephemeral")
        assert other.session_id not in (0, zk.session_id)
    assert not zk.exists("/ephemeral")
    assert zk.exists("/persistent")
    assert (other.session_id, other.state) == (0, "lost")


def test_calls_before_the_start_and_after_the_stop_say_so(zookeeper_hosts: str) -> None:
    client = ZooKeeperClient(zookeeper_hosts)
    assert refused(lambda: client.get("/a")) is Closed
    client.start()
    client.stop()
    client.stop()
    assert refused(lambda: client.get("/a")) is Closed
    assert refused(lambda: client.create("/a")) is Closed


def test_a_client_can_be_started_again_after_its_stop(zookeeper_hosts: str) -> None:
    client = ZooKeeperClient(zookeeper_hosts)
    for _ in range(2):
        client.start()
        assert client.state == "steady"
        client.stop()


def test_when_a_session_is_over_the_state_says_lost_and_a_new_session_follows(
    zk: ZooKeeperClient, zookeeper_hosts: str
) -> None:
    """The session is ended from outside, as ZooKeeper's FAQ does it: by a second client under the same id."""
    states: list[tuple[str, int]] = []
    hints = Hints()
    zk.on_state(lambda state: states.append((state, zk.session_id)))
    zk.on_state(lambda state: 1 / 0)  # type: ignore[arg-type]
    zk.create("/ephemeral", ephemeral=True)
    zk.watch_value("/ephemeral", hints)
    hints.more_than(0)
    before, count = zk.session_id, hints.count
    double = KazooClient(zookeeper_hosts, client_id=zk._client.client_id)
    double.start()
    double.stop()
    double.close()
    eventually(lambda: states[-1:] == [("steady", zk.session_id)] and zk.session_id != before, "a new session")
    lost = [(state, session) for state, session in states if state == "lost"]
    assert lost == [("lost", 0)]
    hints.more_than(count)
    assert not zk.exists("/ephemeral")


# -- Ctrl-C


class Interrupted:
    """The end of the pipe by which a request is handed to kazoo's thread; the signal comes in the midst of that."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._connection = client._client._connection
        self._real = self._connection._write_sock
        self._connection._write_sock = self

    def send(self, data: bytes) -> None:
        self._connection._write_sock = self._real
        self._real.send(data)
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    "call",
    [lambda zk: zk.get("/a"), lambda zk: zk.create("/a"), lambda zk: zk.children("/a")],
    ids=["read", "write", "list"],
)
def test_an_interrupt_is_heard_while_a_request_is_handed_over(
    zk: ZooKeeperClient, call: Callable[[ZooKeeperClient], object]
) -> None:
    Interrupted(zk)
    with pytest.raises(KeyboardInterrupt):
        call(zk)
    zk.create("/after")
    assert zk.exists("/after"), "the client goes on"


def test_one_that_comes_while_whoever_was_interrupted_cleans_up_is_heard_as_well(zk: ZooKeeperClient) -> None:
    with pytest.raises(KeyboardInterrupt, match="first"):  # noqa: PT012 - what is raised in the end is the point
        try:
            raise KeyboardInterrupt("first")
        finally:
            assert zk.get("/a") is None, "cleaning up may ask"
            connection = zk._client._connection
            pipe, connection._write_sock = connection._write_sock, None
            assert refused(lambda: zk.create("/b")) is InDoubt, "and hear of a closed connection"
            connection._write_sock = pipe
            Interrupted(zk)
            with pytest.raises(KeyboardInterrupt) as second:
                zk.get("/a")
            assert str(second.value) == ""


# -- watches


def test_a_watch_hints_once_at_first_and_then_at_each_change_that_a_reader_sees(
    zk: ZooKeeperClient, zookeeper_hosts: str
) -> None:
    children, value = Hints(), Hints()
    zk.watch_children("/a", children)
    zk.watch_value("/a", value)
    children.more_than(0)
    value.more_than(0)
    steps: list[tuple[Callable[[ZooKeeperClient], object], tuple[Hints, ...]]] = [
        (lambda other: other.create("/a"), (children, value)),
        (lambda other: other.create("/a/b"), (children,)),
        (lambda other: other.set("/a", b"new"), (value,)),
        (lambda other: other.create("/a/c"), (children,)),
        (lambda other: other.delete_tree("/a"), (children, value)),
        (lambda other: other.create("/a"), (children, value)),
        (lambda other: other.create("/a/d"), (children,)),
    ]
    with ZooKeeperClient(zookeeper_hosts) as other:
        for step, hinted in steps:
            before = [hint.count for hint in hinted]
            step(other)
            for hint, count in zip(hinted, before, strict=True):
                hint.more_than(count)


def test_after_unwatch_nothing_comes_and_the_others_stay(zk: ZooKeeperClient) -> None:
    one, other, last = Hints(), Hints(), Hints()
    zk.create("/a")
    zk.watch_value("/a", one)
    zk.watch_value("/a", other)
    one.more_than(0)
    other.more_than(0)
    zk.unwatch("/a", one)
    seen, count = one.count, other.count
    zk.set("/a", b"1")
    other.more_than(count)
    zk.unwatch("/a")
    zk.unwatch("/a")
    zk.set("/a", b"2")
    zk.watch_value("/a", last)
    last.more_than(0)
    assert one.count == seen


def test_a_hint_that_raises_does_not_keep_others_from_coming(zk: ZooKeeperClient) -> None:
    good = Hints()
    zk.watch_value("/a", lambda: 1 / 0)  # type: ignore[arg-type]
    zk.watch_value("/a", good)
    good.more_than(0)
    count = good.count
    zk.create("/a")
    good.more_than(count)


def test_what_is_read_after_the_last_hint_is_the_last_state(zk: ZooKeeperClient, zookeeper_hosts: str) -> None:
    """A reader that reads in full after each hint ends with what the writer wrote last, however fast it wrote."""
    hinted, seen = threading.Event(), b""
    zk.create("/a", b"0")
    zk.watch_value("/a", hinted.set)
    with ZooKeeperClient(zookeeper_hosts) as other:
        writer = threading.Thread(target=lambda: [other.set("/a", b"%d" % n) for n in range(300)])
        writer.start()
        while seen != b"299":
            assert hinted.wait(10), f"no hint after {seen!r}"
            hinted.clear()
            found = zk.get("/a")
            assert found is not None
            seen = found[0]
        writer.join()
