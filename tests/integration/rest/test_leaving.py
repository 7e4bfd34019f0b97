"""The manager of transactions leaves on purpose: another host has its role before it stops, and nothing fails."""

from __future__ import annotations

import itertools
import time
from contextlib import closing

import pytest

from delivery import connect
from delivery.embedded import EmbeddedZooKeeper
from tests.integration.background import Background
from tests.integration.embedded import eventually
from tests.integration.rest.conftest import client_of, several_on
from tests.integration.several import Several

pytestmark = pytest.mark.integration

PAUSE_SECONDS_MAX = 5.0
"""Some tens of milliseconds on a quiet machine; far below a session's end."""


class Committing(Background):
    """One transaction after another, each with a message."""

    def __init__(self, zookeeper: str, queue: str) -> None:
        super().__init__()
        self._zookeeper, self._queue = zookeeper, queue
        self.committed: list[float] = []

    def work(self) -> None:
        with connect(self._zookeeper) as client:
            while not self._stop.is_set():
                with client.transaction() as tx:
                    tx.publish(self._queue, b"%d" % len(self.committed))
                self.committed.append(time.monotonic())

    def longest_pause(self) -> float:
        return max(later - earlier for earlier, later in itertools.pairwise(self.committed))


def manager(pair: Several) -> int:
    found = pair.catalog.transaction_manager()
    return [host.host for host in pair.hosts].index(found.host if found is not None else "")


def test_a_host_that_drains_or_stops_hands_the_role_over_and_every_transaction_commits(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory, namespace: str
) -> None:
    with several_on(zookeeper, tmp_path_factory.mktemp("leaving"), 2) as pair:
        with closing(client_of(pair, 0, namespace)) as topics:
            topics.create("t")
        with Committing(pair.zookeeper, f"{namespace}.t") as working:
            eventually(lambda: len(working.committed) > 20, "transactions are committed")
            first = manager(pair)
            with pair.connect(first) as leaving:
                leaving.call("drainHost", True)
                eventually(lambda: manager(pair) == 1 - first, "the other host manages transactions")
                leaving.call("drainHost", False)
            done = len(working.committed)
            eventually(lambda: len(working.committed) > done + 20, "and they go on")
            pair.processes[1 - first].stop()
            assert manager(pair) == first
            done = len(working.committed)
            eventually(lambda: len(working.committed) > done + 20, "and go on again")
        print(f"the longest pause of {len(working.committed)} transactions: {working.longest_pause():.3f} s")
        assert working.longest_pause() < PAUSE_SECONDS_MAX
        with closing(client_of(pair, first, namespace)) as topics:
            assert topics.bodies("t") == [b"%d" % number for number in range(len(working.committed))]
