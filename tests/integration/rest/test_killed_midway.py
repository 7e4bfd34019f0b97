"""Hosts are killed at each point of a transaction: no group is seen in part, and what was committed stays.

Two topics: in one a group of stored bodies, in the other messages with their bodies. A reader looks all the time, and a
subscription gets what is committed.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from delivery import connect
from delivery.embedded import EmbeddedZooKeeper
from tests.integration.background import Background
from tests.integration.embedded import NEVER, eventually
from tests.integration.rest.conftest import several_on
from tests.integration.several import Several, Watcher

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

GROUPS, INLINE = "groups", "inline"
SIZES = {GROUPS: 3, INLINE: 2}
"""Messages of one transaction in each topic."""
COMMITTING, UNDOING = ("begun", "stored", "shown", "published"), ("published", "undone in one", "undone")
"""What has just been done when a host is killed."""
MAYBE_DONE = {"unknown_outcome", "deadline_exceeded", "host_unreachable"}


class GivenUp(Exception):
    """Nobody knows whether something of the transaction was stored."""


class Cluster:
    """Two hosts, whichever of them live, and a client that asks any of them."""

    def __init__(self, hosts: Several, namespace: str) -> None:
        self._hosts, self.topics = hosts, f"/v1/namespaces/{namespace}/topics"
        self._queue = f"{namespace}.{GROUPS}"

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The answer of any host: status 0 where nobody listens, 1 where none came."""
        if not (hosts := self._hosts.catalog.hosts()):
            return 0, None
        host = random.choice(hosts)
        assert host.http_port is not None
        connection = http.client.HTTPConnection(host.address, host.http_port, timeout=60)
        try:
            connection.connect()
        except OSError:
            return 0, None
        try:
            sent = None if body is None else json.dumps(body).encode()
            connection.request(method, path, sent, {"content-type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            return 1, None
        finally:
            connection.close()
        return answer.status, json.loads(data) if data else None

    def insist(self, method: str, path: str, body: object = None, *, fine: tuple[int, ...] = (200,)) -> Any:
        """Of what may be asked again: until somebody answers."""
        found: list[Any] = []

        def answered() -> bool:
            status, answer = self.ask(method, path, body)
            assert status in (0, 1, 503, *fine), (path, status, answer)
            found.append(answer)
            return status in fine

        eventually(answered, f"{method} {path}", 90)
        return found[-1]

    def once(self, path: str, body: object) -> Any:
        """Of what may not: asked again only where nothing can have been stored. Raises GivenUp."""
        found: list[Any] = []

        def settled() -> bool:
            status, answer = self.ask("POST", self.topics + path, body)
            if status == 1 or (status == 503 and answer["code"] in MAYBE_DONE):
                raise GivenUp
            assert status in (0, 200, 503), (path, status, answer)
            found.append(answer)
            return status == 200

        eventually(settled, path, 90)
        return found[-1]

    def kill(self, victim: str) -> None:
        """Kill -9 the owner of the groups, the one who manages transactions, or `both` hosts; and start them again.

        Of both the owner first, and the other one while it takes over.
        """
        catalog = self._hosts.catalog
        found = catalog.transaction_manager() if victim == "manager" else catalog.partition(self._queue, 0)[0]
        names = [host.host for host in self._hosts.hosts]
        first = names.index(found.host if found is not None else "")
        self._hosts.processes[first].kill()
        if victim == "both":
            self._kill_taking_over(1 - first)
            self._start(1 - first)
        self._start(first)
        for topic in SIZES:
            self.insist("POST", f"{self.topics}/{topic}/poll", {"limit": 1})

    def _kill_taking_over(self, number: int) -> None:
        with ThreadPoolExecutor(1) as asking:
            asked = asking.submit(self.ask, "POST", f"{self.topics}/{GROUPS}/poll", {"limit": 1})
            NEVER.wait(random.random() / 2)  # anywhere in what it does for that
            self._hosts.processes[number].kill()
            asked.result()

    def _start(self, number: int) -> None:
        known = {host.host for host in [*self._hosts.catalog.hosts(), *self._hosts.hosts]}
        self._hosts.processes[number].start()
        (new,) = [host for host in self._hosts.catalog.hosts() if host.host not in known]
        self._hosts.hosts[number] = new

    def committed(self, topic: str, transaction: str) -> list[str]:
        found = self.insist("POST", f"{self.topics}/{topic}/poll", {"transaction": transaction})
        return [base64.b64decode(one["payload"]).decode() for one in found]

    def look(self) -> str:
        return str(self.insist("GET", "/v1/transactions")["transaction"])


class Looking(Background):
    """Reads what is committed, over and over: each transaction whole, and none that is gone again."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.looks = 0

    def work(self) -> None:
        seen: dict[str, set[str]] = {topic: set() for topic in SIZES}
        while not self._stop.is_set():
            transaction = self._cluster.look()
            for topic in SIZES:
                found = whole(topic, self._cluster.committed(topic, transaction))
                assert seen[topic] <= found, "what was committed is gone"
                seen[topic] = found
            self.looks += 1


def whole(topic: str, bodies: list[str]) -> set[str]:
    """The transactions that are seen in a topic."""
    counts = Counter(body.partition(":")[0] for body in bodies)
    assert set(counts.values()) <= {SIZES[topic]}, f"a part of a transaction is seen in {topic}: {counts}"
    return set(counts)


def perform(cluster: Cluster, name: str, kill: Callable[[str], None], *, undo: bool) -> bool:
    """One transaction; whether it was committed. `kill` hears of each gap."""
    begun = cluster.insist("POST", "/v1/transactions", {"timeout": 600})
    pointer = begun["transactionWritePointer"]
    ending = f"/v1/transactions/{pointer}"

    def messages(count: int, first: int = 0) -> dict[str, object]:
        bodies = [base64.b64encode(f"{name}:{number}".encode()).decode() for number in range(first, first + count)]
        return {"transactionWritePointer": pointer, "messages": bodies}

    try:
        kill("begun")
        cluster.once(f"/{GROUPS}/store", messages(2))
        cluster.once(f"/{GROUPS}/store", messages(1, 2))
        kill("stored")
        records = {GROUPS: cluster.once(f"/{GROUPS}/publish", messages(0))}
        kill("shown")
        records[INLINE] = cluster.once(f"/{INLINE}/publish", messages(2))
        kill("published")
    except GivenUp:
        cluster.insist("POST", f"{ending}/invalidate")
        return False
    if not undo:
        cluster.insist("POST", f"{ending}/commit")
        return True
    for gap, (topic, record) in zip(("undone in one", "undone"), records.items(), strict=True):
        cluster.insist("POST", f"{cluster.topics}/{topic}/rollback", record)
        kill(gap)
    cluster.insist("POST", f"{ending}/abort")
    return False


@pytest.mark.parametrize("victim", ["owner", "manager", "both"])
def test_no_group_is_seen_in_part_and_nothing_is_lost_that_was_committed(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory, namespace: str, victim: str
) -> None:
    with several_on(zookeeper, tmp_path_factory.mktemp("midway"), 2) as pair:
        cluster = Cluster(pair, namespace)
        for topic in SIZES:
            cluster.insist("PUT", f"{cluster.topics}/{topic}")
            cluster.committed(topic, cluster.look())
        done: dict[str, bool] = {}
        queue = f"{namespace}.{GROUPS}"
        with Watcher(pair.zookeeper, queue, isolation="committed") as watcher, Looking(cluster) as looking:
            for number, deadly in enumerate(COMMITTING + UNDOING):

                def kill(gap: str, deadly: str = deadly) -> None:
                    if gap == deadly:
                        cluster.kill(victim)

                done[f"{number}"] = perform(cluster, f"{number}", kill, undo=number >= len(COMMITTING))
            looks = looking.looks
            eventually(lambda: looking.looks > looks + 1, "one more look at all of it", 90)
            pushed = SIZES[GROUPS] * sum(done.values())
            eventually(lambda: watcher.distinct() >= pushed, "all that was committed is pushed", 90)
        assert watcher.in_order() == {0: pushed}
        committed = {name for name, is_committed in done.items() if is_committed}
        assert committed, "some survive the kills"
        transaction = cluster.look()
        for topic in SIZES:
            assert whole(topic, cluster.committed(topic, transaction)) == committed
        with connect(pair.zookeeper) as client:
            for isolation, least in (("committed", committed), ("uncommitted", set(done))):
                with client.queue(queue).scanner(start="earliest", isolation=isolation) as scanner:
                    found = whole(GROUPS, [message.body.decode() for message in scanner])
                assert committed <= found <= least
