"""RabbitMQ's queues through aio-pika: confirmed publishes side by side, acknowledgements of many at once.

A subscription is a queue of its own, bound to a fanout exchange.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

from delivery.bench.peers.arriving import arriving
from delivery.bench.peers.base import Inbox, Peer, Send, Take
from delivery.bench.peers.servers import LOOPBACK, a_port, running

_UNDER_WAY: Final = 1000
_PREFETCH: Final = 2000
_TOGETHER: Final = 200
_QUIET_SECONDS: Final = 0.05


class RabbitMq(Peer):
    """Classic queues, which write in the background what is marked as persistent."""

    name = "rabbitmq-classic"
    durability = "on disk, synced in groups"
    share = 0.05
    library, module = "aio-pika", "aio_pika"
    commands = ("epmd", "rabbitmq-server")
    kind: ClassVar[str] = "classic"

    @contextmanager
    def server(self, folder: Path) -> Iterator[str]:
        """See Peer."""
        with rabbitmq(folder) as (port, _):
            yield f"amqp://guest:guest@{LOOPBACK}:{port}/"

    def server_version(self, address: str) -> str:
        """See Peer."""

        async def ask() -> str:
            connection = await _connected(address)
            found = connection.transport.connection.server_properties["version"]
            await connection.close()
            return f"RabbitMQ {found if isinstance(found, str) else found.decode()}"

        return asyncio.run(ask())

    def prepare(self, address: str, queue: str, groups: Sequence[str]) -> None:
        """See Peer."""

        async def make() -> None:
            connection = await _connected(address)
            channel = await connection.channel()
            exchange = await channel.declare_exchange(queue, "fanout", durable=True)
            for group in groups:
                made = await channel.declare_queue(
                    f"{queue}.{group}", durable=True, arguments={"x-queue-type": self.kind}
                )  # fmt: skip
                await made.bind(exchange)
            await connection.close()

        asyncio.run(make())

    @contextmanager
    def publisher(self, address: str, queue: str) -> Iterator[Send]:
        """See Peer."""
        with asyncio.Runner() as runner:
            connection, exchange = runner.run(_exchange(address, queue))
            yield lambda bodies: runner.run(_publish(exchange, bodies))
            runner.run(connection.close())

    def consume(self, address: str, queue: str, group: str, inbox: Inbox, take: Take) -> None:
        """See Peer."""
        asyncio.run(_consume(address, f"{queue}.{group}", inbox, take))


class RabbitMqQuorum(RabbitMq):
    """Quorum queues, of one node here."""

    name = "rabbitmq-quorum"
    durability = "fsync before the acknowledgement"
    kind = "quorum"


@contextmanager
def rabbitmq(folder: Path) -> Iterator[tuple[int, int]]:
    """A node with its own port mapper; gives its ports for AMQP and for streams."""
    amqp, streams, mapper, nodes = (a_port() for _ in range(4))
    configuration, plugins = folder / "rabbitmq.conf", folder / "plugins"
    configuration.write_text(f"listeners.tcp.1 = {LOOPBACK}:{amqp}\nstream.listeners.tcp.1 = {LOOPBACK}:{streams}\n")
    plugins.write_text("[rabbitmq_stream].\n")
    names = {
        "HOME": folder, "RABBITMQ_NODENAME": f"bench{amqp}@localhost", "RABBITMQ_MNESIA_BASE": folder / "data",
        "RABBITMQ_LOG_BASE": folder, "RABBITMQ_LOGS": "-", "RABBITMQ_CONFIG_FILE": configuration,
        "RABBITMQ_ENABLED_PLUGINS_FILE": plugins, "RABBITMQ_DIST_PORT": nodes, "ERL_EPMD_PORT": mapper,
        "ERL_EPMD_ADDRESS": LOOPBACK,
    }  # fmt: skip
    environment = {name: str(value) for name, value in names.items()}
    (folder / "mapper").mkdir()
    with (
        running(folder / "mapper", ["epmd", "-address", LOOPBACK, "-port", str(mapper)], mapper),
        running(folder, ["rabbitmq-server"], streams, environment),
    ):
        yield amqp, streams


async def _connected(address: str) -> Any:
    import aio_pika

    return await aio_pika.connect(address)


async def _exchange(address: str, name: str) -> tuple[Any, Any]:
    connection = await _connected(address)
    channel = await connection.channel(publisher_confirms=True)
    return connection, await channel.get_exchange(name)


async def _publish(exchange: Any, bodies: Iterable[bytes]) -> None:
    from aio_pika import Message

    def published(body: bytes) -> asyncio.Task[object]:
        return asyncio.ensure_future(exchange.publish(Message(body, delivery_mode=2), ""))

    if isinstance(bodies, Sequence):
        rest = iter(bodies)
        while some := list(islice(rest, _UNDER_WAY)):
            await asyncio.gather(*map(published, some))
    else:
        await asyncio.gather(*[published(body) async for body in arriving(bodies)])


async def _consume(address: str, queue: str, inbox: Inbox, take: Take) -> None:
    connection = await _connected(address)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=_PREFETCH)
    waiting: list[Any] = []

    async def callback(message: Any) -> None:
        take(message.body)
        waiting.append(message)
        if len(waiting) >= _TOGETHER:
            waiting.clear()
            await message.ack(multiple=True)

    await (await channel.get_queue(queue)).consume(callback)
    while not inbox.over:
        await asyncio.sleep(_QUIET_SECONDS)
        if waiting:
            last = waiting[-1]
            waiting.clear()
            await last.ack(multiple=True)
    if waiting:
        await waiting[-1].ack(multiple=True)
    await connection.close()
