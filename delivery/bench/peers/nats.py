"""NATS JetStream through nats-py: publishing without waiting, a push consumer that acknowledges many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from delivery.bench.checking import BenchFailed
from delivery.bench.peers.arriving import UnderWay, arriving, awaited
from delivery.bench.peers.base import Inbox, Peer, Send, Take
from delivery.bench.peers.servers import LOOPBACK, a_port, running

_UNDER_WAY: Final = 10_000
_UNACKNOWLEDGED: Final = 50_000
_TOGETHER: Final = 500
"""Acknowledged at once: the last covers all before it."""
_QUIET_SECONDS: Final = 0.05


class Nats(Peer):
    """JetStream as it comes: files, synced every two minutes."""

    name = "nats-jetstream"
    durability = "page cache, fsync every 2 minutes"
    share = 0.25
    library, module = "nats-py", "nats"
    commands = ("nats-server",)
    sync_interval: ClassVar[str] = "2m"

    @contextmanager
    def server(self, folder: Path) -> Iterator[str]:
        """See Peer."""
        port, configuration = a_port(), folder / "nats.conf"
        configuration.write_text(
            f'listen: "{LOOPBACK}:{port}"\njetstream {{ store_dir: "{folder}", sync_interval: {self.sync_interval} }}\n'
        )
        with running(folder, ["nats-server", "-c", str(configuration)], port):
            yield f"nats://{LOOPBACK}:{port}"

    def server_version(self, address: str) -> str:
        """See Peer."""

        async def ask() -> str:
            client = await _connected(address)
            found = str(client.connected_server_version).strip("<>")
            await client.close()
            return found

        return asyncio.run(ask())

    def prepare(self, address: str, queue: str, groups: Sequence[str]) -> None:
        """See Peer. Consumers are made by who subscribes, and begin with the first message."""

        async def make() -> None:
            client = await _connected(address)
            await client.jetstream().add_stream(name=queue, subjects=[queue])
            await client.close()

        asyncio.run(make())

    def publisher(self, address: str, queue: str) -> AbstractContextManager[Send]:
        """See Peer."""
        return awaited(_Publishing(queue), address)

    def consume(self, address: str, queue: str, group: str, inbox: Inbox, take: Take) -> None:
        """See Peer."""
        asyncio.run(_consume(address, queue, group, inbox, take))


class NatsAlways(Nats):
    """With an fsync for each message."""

    name = "nats-jetstream-fsync"
    durability = "fsync before the acknowledgement"
    share = 0.01
    sync_interval = "always"


async def _connected(address: str) -> Any:
    import nats

    return await nats.connect(address, pending_size=1 << 26)


class _Publishing:
    """Publishes, and counts what the stream has not answered yet: its answers all come to one subject."""

    client: Any

    def __init__(self, queue: str) -> None:
        self._queue, self._inbox = queue, ""
        self._under_way = UnderWay()
        self._refused = b""

    async def open(self, address: str) -> None:
        """Connect."""
        self.client = await _connected(address)
        self._inbox = self.client.new_inbox()
        await self.client.subscribe(self._inbox, cb=self._answered, pending_msgs_limit=-1, pending_bytes_limit=-1)

    async def close(self) -> None:
        """End the connection."""
        await self.client.close()

    async def send(self, bodies: Iterable[bytes]) -> None:
        """See base.Send. Raises BenchFailed."""
        if isinstance(bodies, Sequence):
            for body in bodies:
                await self._publish(body)
                if self._under_way.count > _UNDER_WAY:
                    await self._under_way.until(_UNDER_WAY // 2)
        else:
            async for body in arriving(bodies):
                await self._publish(body)
        await self._under_way.until(0)
        if self._refused:
            raise BenchFailed(f"NATS did not store a message: {self._refused.decode()}")

    async def _publish(self, body: bytes) -> None:
        self._under_way.count += 1
        await self.client.publish(self._queue, body, reply=self._inbox)

    async def _answered(self, message: Any) -> None:
        if b'"error"' in message.data:
            self._refused = message.data
        self._under_way.acknowledged()


async def _consume(address: str, queue: str, group: str, inbox: Inbox, take: Take) -> None:
    from nats.js.api import AckPolicy, ConsumerConfig

    client = await _connected(address)
    waiting: list[Any] = []

    async def callback(message: Any) -> None:
        take(message.data)
        waiting.append(message)
        if len(waiting) >= _TOGETHER:
            waiting.clear()
            await message.ack()

    config = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=_UNACKNOWLEDGED)
    await client.jetstream().subscribe(
        queue, durable=group, cb=callback, manual_ack=True, config=config, pending_msgs_limit=-1,
        pending_bytes_limit=-1,
    )  # fmt: skip
    while not inbox.over:
        await asyncio.sleep(_QUIET_SECONDS)
        if waiting:
            last = waiting[-1]
            waiting.clear()
            await last.ack()
    if waiting:
        await waiting[-1].ack_sync()
    await client.close()
