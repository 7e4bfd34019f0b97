"""RabbitMQ's streams through rstream: batches with confirms, offsets stored for many messages at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from delivery.bench.peers.arriving import UnderWay, arriving, awaited
from delivery.bench.peers.base import Inbox, Peer, Send, Take
from delivery.bench.peers.rabbitmq import rabbitmq
from delivery.bench.peers.servers import LOOPBACK

_BATCH: Final = 1000
_UNCONFIRMED: Final = 20_000
_TOGETHER: Final = 5000
_USER: Final = {"username": "guest", "password": "guest"}
_LOOK_SECONDS: Final = 0.01


class RabbitMqStreams(Peer):
    """A stream, of one node here."""

    name = "rabbitmq-streams"
    durability = "page cache"
    share = 0.5
    library, module = "rstream", "rstream"
    commands = ("epmd", "rabbitmq-server")

    @contextmanager
    def server(self, folder: Path) -> Iterator[str]:
        """See Peer."""
        with rabbitmq(folder) as (_, port):
            yield f"{LOOPBACK}:{port}"

    def server_version(self, address: str) -> str:
        """See Peer."""
        return "RabbitMQ"

    def prepare(self, address: str, queue: str, groups: Sequence[str]) -> None:
        """See Peer. A subscription is a stored offset."""

        async def make() -> None:
            producer = _producer(address)
            await producer.start()
            await producer.create_stream(queue)
            await producer.close()

        asyncio.run(make())

    def publisher(self, address: str, queue: str) -> AbstractContextManager[Send]:
        """See Peer."""
        return awaited(_Publishing(queue), address)

    def consume(self, address: str, queue: str, group: str, inbox: Inbox, take: Take) -> None:
        """See Peer."""
        asyncio.run(_consume(address, queue, group, inbox, take))


class _Publishing:
    """Publishes, and counts what is not confirmed yet."""

    producer: Any

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._under_way = UnderWay()

    async def open(self, address: str) -> None:
        """Connect."""
        self.producer = _producer(address)
        await self.producer.start()

    async def close(self) -> None:
        """End the connection."""
        await self.producer.close()

    async def send(self, bodies: Iterable[bytes]) -> None:
        """See base.Send."""
        if isinstance(bodies, Sequence):
            for at in range(0, len(bodies), _BATCH):
                await self._batch(bodies[at : at + _BATCH])
                await self._under_way.until(_UNCONFIRMED)
        else:
            async for body in arriving(bodies):
                await self._batch([body])
        await self._under_way.until(0)

    async def _batch(self, bodies: Sequence[bytes]) -> None:
        self._under_way.count += len(bodies)
        await self.producer.send_batch(self._queue, list(bodies), on_publish_confirm=self._confirmed)

    def _confirmed(self, status: Any) -> None:
        if status.is_confirmed:
            self._under_way.acknowledged()


def _producer(address: str) -> Any:
    from rstream import Producer

    host, _, port = address.partition(":")
    return Producer(host, int(port), **_USER)


async def _consume(address: str, queue: str, group: str, inbox: Inbox, take: Take) -> None:
    from rstream import Consumer, ConsumerOffsetSpecification, OffsetType

    host, _, port = address.partition(":")
    consumer = Consumer(host, int(port), **_USER)
    await consumer.start()
    count, offset = 0, 0

    async def callback(body: Any, context: Any) -> None:
        nonlocal count, offset
        take(body)
        count, offset = count + 1, context.offset
        if count >= _TOGETHER:
            count = 0
            await consumer.store_offset(queue, group, offset)

    first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
    await consumer.subscribe(queue, callback, decoder=bytes, offset_specification=first, initial_credit=50)
    while not inbox.over:  # noqa: ASYNC110 (the callback has no event to set)
        await asyncio.sleep(_LOOK_SECONDS)
    await consumer.store_offset(queue, group, offset)
    await consumer.close()
