"""What the tests of the metadata share: a ZooKeeper to interfere with, counted hints, and ready-made records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any

from delivery.errors import HootError
from delivery.metastore.catalog import Catalog
from delivery.metastore.ops import InDoubt, Op, Refused
from delivery.metastore.records import HostRecord, ListenerRecord, QueueRecord, SubscriptionRecord
from delivery.metastore.tables.entries import encode_key, encode_value
from delivery.metastore.tables.hashed import BUCKETS
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.zookeeper import ZooKeeperMetaStore
from delivery.metastore.znodes import Aspect, ZNodes
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from tests.integration.embedded import eventually

CREATED_MS = 1
"""When the subscriptions of the tests were made."""
GENERATION = "g"
"""Of the queue that they are for."""
_TWO = QueueSettings(partitions=2)


class Interposed(ZNodes):
    """The same znodes with a hand in between: counts transactions and reads, steps in before one, loses answers."""

    def __init__(self, zk: ZooKeeperClient) -> None:
        self._real = zk
        self.transactions: list[Sequence[Op]] = []
        self.reads = 0
        self.before: Callable[[], object] | None = None
        """Called once, before the next transaction."""
        self.lose_answer = False
        """The next transaction is done, and nobody hears of it."""
        self.down_after: int | None = None
        """So many transactions are done, the others fail."""
        self.down_error = InDoubt

    def watch_value(self, path: str, hint: Callable[[], None]) -> None:
        self._real.watch_value(path, hint)

    def unwatch(self, path: str, hint: Callable[[], None] | None = None) -> None:
        self._real.unwatch(path, hint)

    def _read(self, aspect: Aspect, paths: Sequence[str]) -> list[Any]:
        self.reads += 1
        return self._real._read(aspect, paths)

    def _transact(self, ops: Sequence[Op]) -> list[int] | Refused:
        if self.down_after is not None and len(self.transactions) >= self.down_after:
            raise self.down_error("cut off")
        self.transactions.append(ops)
        step, self.before = self.before, None
        if step is not None:
            step()
        outcome = self._real._transact(ops)
        if self.lose_answer:
            self.lose_answer = False
            raise InDoubt("the answer is lost")
        return outcome


class Hints:
    """Counts the calls of a hint."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1

    def more_than(self, count: int) -> None:
        eventually(lambda: self.count > count, f"a hint after the first {count}")


def refused(call: Callable[[], object]) -> type[HootError] | None:
    try:
        call()
    except HootError as error:
        return type(error)
    return None


def catalog_over(between: Interposed) -> Catalog:
    """The catalog through that hand; its tables are known already, so that what follows is what is asked for."""
    catalog = Catalog(between, ZooKeeperMetaStore(between, between))
    assert catalog.managers is not None
    return catalog


def corrupt(zk: ZooKeeperClient, table: str, key: str, value: bytes) -> None:
    """Put `value` in the place of an entry's bytes, or where there is none."""
    bucket = int.from_bytes(blake2b(key.encode(), digest_size=2).digest()) % BUCKETS
    folder = f"/hoot/metastore/tables/{table}/keys/{bucket:03x}"
    path = f"{folder}/{encode_key(key)}"
    if not zk.exists(folder):
        zk.create(folder)
    if zk.exists(path):
        zk.set(path, value)
    else:
        zk.create(path, value)


def entry(field: str, content: bytes) -> bytes:
    """The bytes of an entry with one field."""
    return encode_value(Value({field: content}))


def host(name: str = "h1", session: int = 1, port: int = 4000) -> HostRecord:
    return HostRecord(name, "127.0.0.1", port, None, session, "0.1.0", 1_700_000_000_000)


def listener(token: str = "t", port: int = 5000) -> ListenerRecord:
    return ListenerRecord(address="127.0.0.1", port=port, token=token)


def make_queue(catalog: Catalog, name: str = "q", settings: QueueSettings = _TWO) -> None:
    """The queue that `subscription` is for."""
    catalog.managers.queues.create_queue(QueueRecord(name, GENERATION, CREATED_MS, settings))


def subscription(queue: str = "q", name: str = "s", created_ms: int = CREATED_MS) -> SubscriptionRecord:
    return SubscriptionRecord(
        name=name, queue=queue, generation=GENERATION, created_ms=created_ms, starts={0: 0, 1: 77}, all_partitions=True,
        topics=("a",),
    )  # fmt: skip


def rewrite(catalog: Catalog, record: SubscriptionRecord) -> None:
    """Other preferences for a subscription that is there."""
    catalog.change_subscription(record.queue, record.name, lambda _: record)


def at_once(calls: Sequence[Callable[[], object]]) -> list[object]:
    """Run all in threads that start together; gives each one's result or its HootError."""
    ready = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> object:
        ready.wait(10)
        try:
            return call()
        except HootError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
