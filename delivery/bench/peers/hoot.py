"""Hoot: a region host and its ZooKeeper, as `hoot serve` starts them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

from delivery.bench.peers.base import Inbox, Peer, Send, Take
from delivery.client import connect
from delivery.config import software_version
from delivery.local import LocalEngine
from delivery.model import Durability, Message
from subscriber import Subscriber

_LOOK_SECONDS: Final = 0.01


class Hoot(Peer):
    """Group commit: one fdatasync for all that came during the one before."""

    name = "hoot"
    durability = "fsync before the acknowledgement"
    library, module = "hoot", "delivery"
    of_the_queue: ClassVar[Durability] = "fsync"

    @contextmanager
    def server(self, folder: Path) -> Iterator[str]:
        """See Peer."""
        with LocalEngine(folder) as engine:
            yield engine.address

    def server_version(self, address: str) -> str:
        """See Peer."""
        return software_version()

    def prepare(self, address: str, queue: str, groups: Sequence[str]) -> None:
        """See Peer. Subscriptions are made by who subscribes, to a queue from its first message on."""
        with connect(address) as client:
            client.create_queue(queue, durability=self.of_the_queue)

    @contextmanager
    def publisher(self, address: str, queue: str) -> Iterator[Send]:
        """See Peer."""
        with connect(address) as client:
            orders = client.queue(queue)
            with orders.publisher() as fast, orders.publisher(linger_ms=0) as prompt:

                def send(bodies: Iterable[bytes]) -> None:
                    publisher = fast if isinstance(bodies, Sequence) else prompt
                    put = publisher.put
                    for body in bodies:
                        put(body)
                    publisher.flush()

                yield send

    def consume(self, address: str, queue: str, group: str, inbox: Inbox, take: Take) -> None:
        """See Peer. That the checkpoint is saved is what leaving waits for."""
        subscriber = Subscriber(group, zookeeper=address)

        def listener(message: Message) -> None:
            take(message.body)

        subscriber.subscribe(queue, start="earliest").listener(listener)
        with subscriber:
            while not inbox.over:
                time.sleep(_LOOK_SECONDS)


class HootOs(Hoot):
    """Without fsync."""

    name = "hoot-os"
    durability = "page cache"
    of_the_queue = "os"
