"""A program in any language: it has Apache Thrift, the address of a host, and nothing of Hoot but its documentation.

Calls are written by hand (apache.py). An argument of a call is a (type, value).
"""

from __future__ import annotations

import itertools
import json
import queue
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from msgspec.structs import replace
from thrift.Thrift import TType

from delivery.embedded import EmbeddedZooKeeper
from delivery.metastore.catalog import open_catalog
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from tests.integration.apache import SECONDS, Client, Fields, Server
from tests.integration.embedded import client as zookeeper_session
from tests.integration.engine import Engine, hosted

OK, FAILED = 0, 1
RETRY_SECONDS = 0.3
NUMBERS = itertools.count()


class Foreign:
    """A running engine as such a program sees it."""

    def __init__(self, running: Engine, znodes: KazooClient) -> None:
        self.running, self.znodes = running, znodes
        (host,) = znodes.get_children("/hoot/hosts")
        record = read_json(znodes, f"/hoot/hosts/{host}")
        assert record["address"] == "127.0.0.1"
        self.port: int = record["port"]

    def new_queue(self) -> str:
        """A queue of three partitions."""
        name = f"flights-{next(NUMBERS)}"
        with ZooKeeperClient(self.running.address) as session:
            open_catalog(session).create_queue(name, QueueSettings(partitions=3, body_bytes_max=1000))
        return name


@contextmanager
def foreign(zookeeper: EmbeddedZooKeeper, folder: Path) -> Iterator[Foreign]:
    with hosted(zookeeper, folder) as running, zookeeper_session(running.address) as znodes:
        yield Foreign(running, znodes)


def read_json(znodes: KazooClient, path: str) -> Any:
    return json.loads(znodes.get(path)[0])


def text(value: str | bytes) -> tuple[int, Any]:
    return TType.STRING, value


def i32(value: int) -> tuple[int, Any]:
    return TType.I32, value


def struct(fields: Fields) -> tuple[int, Any]:
    return TType.STRUCT, fields


def structs(fields: list[Fields]) -> tuple[int, Any]:
    return TType.LIST, (TType.STRUCT, fields)


def partitions(*numbers: int) -> tuple[int, Any]:
    return TType.LIST, (TType.I32, list(numbers))


def message(
    body: bytes, topic: str | None = None, key: bytes | None = None, headers: dict[str, bytes] | None = None
) -> Fields:
    fields: Fields = {6: text(body)}
    if topic is not None:
        fields[3] = text(topic)
    if key is not None:
        fields[4] = text(key)
    if headers is not None:
        fields[5] = (TType.MAP, (TType.STRING, TType.STRING, headers))
    return fields


def scan(start: int | None = None, stop: int | None = None, *topics: str) -> tuple[int, Any]:
    fields: Fields = {3: (TType.LIST, (TType.STRING, list(topics)))}
    if start is not None:
        fields[1] = (TType.I64, start)
    if stop is not None:
        fields[2] = (TType.I64, stop)
    return struct(fields)


def put(client: Client, queue: str, partition: int, *messages: Fields) -> list[int]:
    found: list[int] = client.result("putMessagesWithPid", text(queue), i32(partition), structs(list(messages)))
    return found


def drained(client: Client, scanner: int, count: int = 100) -> list[dict[int, Any]]:
    """Everything that a scanner has now."""
    found: list[dict[int, Any]] = []
    while got := client.result("messageScannerGetList", i32(scanner), i32(count)):
        found += got
    return found


def stored(client: Client, queue: str) -> list[dict[int, Any]]:
    """Everything in a queue."""
    scanner = client.result("openQueueScanner", text(queue), scan())
    found = drained(client, scanner)
    client.result("messageScannerClose", i32(scanner))
    return found


# -- a listener -------------------------------------------------------------------------------------------------------


class Received:
    """The handler of a PlainListener; takes the answers it is told to give, then answers OK."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.answers: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()
        self.calls: list[tuple[float, list[dict[int, Any]]]] = []
        """All that came, with the time: also what was answered with a failure."""
        self.messages: list[dict[int, Any]] = []
        """What was answered with OK."""
        self.gate = threading.Event()
        self.gate.set()

    def answer(self, method: str, arguments: dict[int, Any]) -> Fields:
        if method == "hello":
            return {0: text(self.token)}
        assert method == "onMessages"
        self.calls.append((time.monotonic(), arguments[3]))
        assert self.gate.wait(SECONDS)
        outcome = OK if self.answers.empty() else self.answers.get()
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == OK:
            self.messages += arguments[3]
        return {0: i32(outcome)}

    def bodies(self, partition: int | None = None) -> list[bytes]:
        return [one[6] for one in self.messages if partition in (None, one[2])]


def subscribing(*topics: str, start: str = "earliest", **starts: str) -> tuple[int, Any]:
    """SubscriptionOptions; `p0="latest"` gives partition 0 a start of its own."""
    own = {int(name[1:]): text(place)[1] for name, place in starts.items()}
    fields: Fields = {2: (TType.LIST, (TType.STRING, list(topics))), 4: (TType.MAP, (TType.I32, TType.STRING, own))}
    if not own:
        fields[3] = text(start)
    return struct(fields)


def create_subscription(client: Client, queue: str, name: str, *topics: str) -> None:
    """Make a subscription that begins at the oldest message of every partition."""
    client.result("createSubscription", text(queue), text(name), subscribing(*topics))


def retry_soon(site: Foreign, queue: str, name: str) -> None:
    """Have what a subscription does not handle come again after RETRY_SECONDS, as whoever administers Hoot does."""
    policy = RetryPolicy(first_seconds=RETRY_SECONDS, factor=1, jitter=0)
    with ZooKeeperClient(site.running.address) as session:
        open_catalog(session).change_subscription(queue, name, lambda known: replace(known, retry=policy))


def listening(port: int, token: str, protocol: str | None = None) -> tuple[int, Any]:
    """A ListenerAddress on this machine."""
    fields: Fields = {1: text("127.0.0.1"), 2: i32(port), 3: text(token)}
    if protocol is not None:
        fields[4] = text(protocol)
    return struct(fields)


def attach(client: Client, queue: str, name: str, listener: tuple[int, Any], ms: int = 0, force: bool = False) -> None:
    """Attach a listener, or renew its lease."""
    client.result("attachListener", text(queue), text(name), listener, i32(ms), (TType.BOOL, force))


@contextmanager
def attached(client: Client, queue: str, name: str) -> Iterator[Received]:
    """Serve a PlainListener and have it attached for as long as the block lasts; the lease outlives the test."""
    received = Received(f"token {secrets.token_hex(8)}")
    with Server(received.answer) as server:
        attach(client, queue, name, listening(server.port, received.token), 600_000)
        try:
            yield received
        finally:
            received.gate.set()
            client.result("detachListener", text(queue), text(name), listening(server.port, received.token))


def checkpoint(site: Foreign, queue: str, name: str, partition: int) -> int:
    """How far the subscription has come, 0 before it has begun."""
    with ZooKeeperClient(site.running.address) as session:
        state = open_catalog(session).states(queue, name).get(partition)
        return 0 if state is None else state.position
