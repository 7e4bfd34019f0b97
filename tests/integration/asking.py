"""For tests of bad input: an engine with a queue, and what must not change when something wrong is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from delivery import Client, HootError, Queue, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.rpc.blocking import BlockingConnection
from subscriber import Subscriber
from tests.integration.embedded import client as zookeeper_session
from tests.integration.engine import Engine, hosted

QUEUE = "flights"
TEXT_MAX = 300


class Site:
    """A running engine, and a queue of two partitions with a message in each."""

    def __init__(self, running: Engine, client: Client, znodes: KazooClient) -> None:
        self.running, self.client, self.znodes = running, client, znodes
        self.queue: Queue = client.create_queue(QUEUE, partitions=2, body_bytes_max=1000)
        self.last = [self.queue.put(b"first", partition=partition).id for partition in (0, 1)]
        (host,) = client.hosts()
        self.connection = BlockingConnection(host.address, host.port)
        """To the host, without the checks that a client makes before it sends."""

    def subscriber(self, name: Any = "auditor", **options: Any) -> Subscriber:
        return Subscriber(name, self.running.address, **options)

    def tree(self, path: str = "/hoot") -> dict[str, tuple[bytes, int, int]]:
        """Every znode: its value, its version, and the session that it is bound to; of a host the last alone.

        A host tells of its load in its record whenever that changed.
        """
        value, stat = self.znodes.get(path)
        of_host = path.startswith("/hoot/hosts/")
        found = {path: (b"" if of_host else value, 0 if of_host else stat.version, stat.ephemeralOwner)}
        for name in self.znodes.get_children(path):
            found |= self.tree(f"{path}/{name}")
        return found

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Assert that what is done in the block changes nothing in ZooKeeper, and nothing in the queue."""
        before = self.tree(), [self.queue.bounds(partition) for partition in (0, 1)]
        yield
        assert (self.tree(), [self.queue.bounds(partition) for partition in (0, 1)]) == before


@contextmanager
def asked(zookeeper: EmbeddedZooKeeper, folder: Path) -> Iterator[Site]:
    """A site as long as the block lasts."""
    with (
        hosted(zookeeper, folder) as running,
        zookeeper_session(running.address) as znodes,
        connect(running.address) as client,
    ):
        site = Site(running, client, znodes)
        with site.connection:
            yield site


def refused(error: type[HootError], part: str, call: Callable[..., object], *args: Any, **options: Any) -> HootError:
    """The error of a call that must fail with this very one, in a line that a person can read and `part` is in."""
    given = f"{getattr(call, '__name__', call)}, {args}, {options}"[:200]
    try:
        result = call(*args, **options)
    except HootError as caught:
        found = caught
    else:
        pytest.fail(f"{given} was taken, and gave {result!r}")
    assert type(found) is error, f"{given}: {found!r}"
    text = found.message
    assert part in text, f"{given}: {text}"
    assert text.isprintable(), f"{given}: {text!r}"
    assert len(text) <= TEXT_MAX, f"{given}: {len(text)} characters"
    return found
