"""Waiting for ZooKeeper: not for servers that all refuse, and for everything else until the deadline."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from delivery.metastore.probe import PATIENCE_SECONDS, all_refuse, why_unanswered

HOST = "127.0.0.1"
NEVER = threading.Event()


@pytest.fixture
def refusing() -> Iterator[int]:
    """A port that is taken and on which nobody listens."""
    with closing(socket.socket()) as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def test_servers_that_all_refuse_are_not_waited_for(refusing: int) -> None:
    begun = time.monotonic()
    assert why_unanswered(NEVER, [(HOST, refusing), ("localhost", refusing)], 60.0) == "(connection refused)"
    assert PATIENCE_SECONDS <= time.monotonic() - begun < 10


def test_one_that_does_not_refuse_is_waited_for_until_the_deadline(refusing: int, listening: int) -> None:
    servers = [(HOST, refusing), (HOST, listening)]
    assert not all_refuse(servers)
    assert why_unanswered(NEVER, servers, 1.5) == "within 1.5 s"


def test_a_name_that_is_unknown_now_is_waited_for(refusing: int) -> None:
    assert not all_refuse([(HOST, refusing), ("no-such-host.invalid", 2181)])


def test_a_deadline_before_the_patience_ends_is_kept(refusing: int) -> None:
    begun = time.monotonic()
    assert why_unanswered(NEVER, [(HOST, refusing)], 0.1) == "within 0.1 s"
    assert time.monotonic() - begun < PATIENCE_SECONDS


def test_a_server_that_is_just_starting_is_found() -> None:
    """It listens before the patience is over, and opens a session later."""

    class Opened(threading.Event):
        waits = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.waits += 1
            if self.waits == 1:
                server.listen()
            else:
                self.set()
            return super().wait(timeout)

    with closing(socket.socket()) as server:
        server.bind((HOST, 0))
        opened = Opened()
        assert why_unanswered(opened, [(HOST, server.getsockname()[1])], 30.0) is None
    assert opened.waits == 2
