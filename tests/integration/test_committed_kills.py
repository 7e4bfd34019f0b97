"""Transactions while hosts are killed between publish and commit, and before a rollback: all of one comes, or nothing.

A participant strikes: it is asked for its keys when everything has been published, right before the commit.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from random import Random

import pytest

from delivery import Client, connect
from delivery.client import Transaction
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import HootError
from delivery.metastore.catalog import open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from subscriber import Message, RetryPolicy, Subscriber
from tests.integration.embedded import eventually
from tests.integration.several import Several, several
from tests.integration.verdicts import judged

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

QUEUE, PARTITIONS, EACH = "orders", 2, 2
KINDS: Mapping[str, dict[str, object]] = {
    "mail": {},
    "keys": {"kind": "key_shared", "retry": RetryPolicy(order="key", first_seconds=0.05)},
}


class Undone(Exception):
    """What a participant does not want to be committed."""


class Strike:
    """A participant that kills a host between publish and commit, and may have everything rolled back after that."""

    def __init__(self, strike: Callable[[], object], *, undo: bool) -> None:
        self._strike, self._undo = strike, undo

    def changes(self) -> Iterable[bytes]:
        self._strike()
        if self._undo:
            raise Undone
        return ()

    def prepare(self, transaction: Transaction) -> None: ...
    def commit(self, transaction: Transaction) -> None: ...
    def rollback(self, transaction: Transaction) -> None: ...


class Story:
    """Hosts, a client, subscribers of both kinds in this process, and what became of each transaction."""

    def __init__(self, hosts: Several, client: Client, random: Random) -> None:
        self.hosts, self.client, self.random = hosts, client, random
        self.begun: dict[int, int] = {}
        """Per number of a transaction its write pointer."""
        self.seen: dict[str, list[tuple[int, int, int]]] = {name: [] for name in KINDS}
        """Number of the transaction, partition and place."""

    def subscribers(self) -> Iterator[Subscriber]:
        for name, options in KINDS.items():
            found = Subscriber(name, self.hosts.zookeeper, member="m" if name == "keys" else None)
            seen = self.seen[name]

            def note(message: Message, seen: list[tuple[int, int, int]] = seen) -> None:
                number, place = map(int, message.body.split())
                if self.random.random() < 0.05:
                    raise ValueError("not now")
                seen.append((number, message.partition, place))

            found.subscribe(QUEUE, start="earliest", isolation="committed", **options).listener(note)  # type: ignore[arg-type]
            yield found

    def transaction(self, number: int, strike: Callable[[], object], *, undo: bool) -> None:
        with suppress(HootError, Undone), self.client.transaction(timeout=20) as tx:
            self.begun[number] = tx.pointer
            tx.join(Strike(strike, undo=undo))
            for place in range(EACH):
                for partition in range(PARTITIONS):
                    body = b"%d %d" % (number, place)
                    tx.publish(QUEUE, body, partition=partition, key=b"%d" % self.random.randrange(3))

    def kill(self) -> None:
        """The manager or the owner of a partition; what is left, or another one, takes over."""
        alive = {host.host for host in self.hosts.catalog.hosts()}
        manager = self.hosts.catalog.transaction_manager()
        numbers = [number for number, host in enumerate(self.hosts.hosts) if host.host in alive]
        chosen = [number for number in numbers if manager and self.hosts.hosts[number].host == manager.host]
        number = self.random.choice(chosen or numbers) if self.random.random() < 0.5 else self.random.choice(numbers)
        self.hosts.processes[number].kill()

    def standing(self, number: int) -> str:
        return self.client.transactions.standing(self.begun[number])

    def check(self) -> None:
        for number in self.begun:
            eventually(lambda number=number: self.standing(number) != "in_progress", "all have ended", 60)  # type: ignore[misc]
        committed = {number for number in self.begun if self.standing(number) == "committed"}
        assert 0 < len(committed) < len(self.begun)
        whole = {(number, part, place) for number in committed for part in range(PARTITIONS) for place in range(EACH)}
        for name, seen in self.seen.items():
            eventually(lambda seen=seen: set(seen) >= whole, f"{name} got what was committed", 60)  # type: ignore[misc]
            assert set(seen) == whole, "and nothing else"
            judged(self.client, QUEUE, name, "idle")


@pytest.mark.parametrize("kills", [1, 8])
def test_what_is_committed_comes_whole_and_nothing_else_comes(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory, kills: int
) -> None:
    address = f"{zookeeper.address}/kills-{secrets.token_hex(6)}"
    with ZooKeeperClient(address) as zk:
        catalog = open_catalog(zk)
        catalog.ensure_layout()
        folder = tmp_path_factory.mktemp("kills")
        with several(address, catalog, folder, 2) as hosts, connect(address) as client:
            client.create_queue(QUEUE, partitions=PARTITIONS)
            story = Story(hosts, client, Random(kills))
            first, second = story.subscribers()
            with first, second:
                number = 0
                for kill in range(kills):
                    for strike in (bool, bool, story.kill, bool):
                        number += 1
                        story.transaction(number, strike, undo=(kill + number) % 3 == 2)
                    if kill + 1 < kills:
                        hosts.start()
                assert len(story.begun) == number
                story.check()
