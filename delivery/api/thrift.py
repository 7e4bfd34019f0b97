"""The calls of `idl/delivery.thrift`, as the RPC server hands them over: begun in order of arrival, then waited for.

A publish takes its batch when it begins, so the batches of a connection are stored in the order in which they were
sent; everything else starts when it is waited for.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

import trio

from delivery.api.observing import Deliveries
from delivery.api.plain import PlainCalls
from delivery.api.publishing import Publishing
from delivery.api.reading import Reading, check_number
from delivery.api.subscribing import SubscribingCalls
from delivery.cluster.queues import QueueTable
from delivery.config import HostConfig
from delivery.errors import CorruptRecord, InvalidRequest
from delivery.metastore.live import LiveHosts
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.records import HostRecord
from delivery.model import check_name
from delivery.publish.pending import Stored
from delivery.rpc.promise import Promise
from delivery.rpc.protocol import Call, load_idl
from delivery.rpc.server import ServerLimits


class Owners(Protocol):
    """Who owns what (metastore.catalog.Catalog); blocking."""

    def readable_owners(self, queue: str) -> tuple[dict[int, OwnerInfo], list[CorruptRecord]]:
        """The owner of each partition that has one, and what cannot be read."""

    def readable_hosts(self) -> tuple[list[HostRecord], list[CorruptRecord]]:
        """The live hosts, and what cannot be read."""


class Shared(Protocol):
    """This host among the others (cluster.sharing.sharing.Sharing)."""

    async def take(self, queue: str, partition: int) -> None:
        """Take a partition that is given to this host."""

    async def freed(self, queue: str, partitions: Sequence[int], unable: str) -> None:
        """Hear that nobody owns these partitions, since the host `unable` could not."""

    async def move(self, queue: str, partition: int, host: str) -> None:
        """Give a partition to another host."""

    async def drain(self, draining: bool) -> int:
        """Begin or end draining; how many partitions are left."""


Outcome = Promise[Any] | Callable[[], Awaitable[Any]]
"""The result of a call that has begun, or what waits for it."""


class ThriftApi:
    """The handler of the RegionHost service."""

    def __init__(
        self, publishing: Publishing, reading: Reading, plain: PlainCalls, queues: QueueTable, owners: Owners,
        shared: Shared, *, subscribing: SubscribingCalls, deliveries: Deliveries,
    ) -> None:  # fmt: skip
        self._publishing, self._reading, self._plain = publishing, reading, plain
        self._queues, self._owners, self._shared, self._subscribing = queues, owners, shared, subscribing
        self._deliveries = deliveries
        self._idl = load_idl("delivery")

    def begin(self, call: Call) -> Outcome:
        """Begin a call of RegionHost; see `rpc.server.Handler`. Raises HootError when it is refused at once."""
        if call.method == "publish":
            return self._begin_publish(call.args)
        return partial(getattr(self, f"_call_{call.method}"), call.args)

    def _begin_publish(self, args: Any) -> Promise[Any]:
        queue, partition = check_name("queue", args.queue), check_number(args.partition)
        if not args.batch:
            raise InvalidRequest("a publish needs a batch")
        begun = self._publishing.begin(queue, partition, args.batch, args.generation or "")
        return begun.map(self._publish_reply)

    def _publish_reply(self, stored: Stored) -> Any:
        return self._idl.PublishReply(
            baseId=stored.base_id, count=stored.count, durability=stored.durability, duplicate=stored.duplicate
        )

    async def _call_importBatches(self, args: Any) -> int:  # noqa: N802 - named as in the IDL
        queue, partition = check_name("queue", args.queue), check_number(args.partition)
        data, generation = args.batches or b"", args.generation or ""
        return await self._publishing.copied(queue, partition, args.after or 0, data, generation)

    async def _call_read(self, args: Any) -> Any:
        return await self._reading.read(args.request)

    async def _call_partitionInfo(self, args: Any) -> Any:  # noqa: N802 - named as in the IDL
        return await self._reading.info(args.queue, args.partition)

    async def _call_countMessages(self, args: Any) -> int:  # noqa: N802
        return await self._reading.count(args.queue, args.partition, args.after, args.upTo)

    async def _call_locateMessages(self, args: Any) -> list[int]:  # noqa: N802
        return await self._reading.locate(args.queue, args.partition, args.after, args.upTo, args.counts or ())

    async def _call_decidedUpTo(self, args: Any) -> int:  # noqa: N802
        return await self._reading.decided(args.queue, args.partition, args.after, args.upTo, args.transaction)

    async def _call_takePartition(self, args: Any) -> None:  # noqa: N802
        await self._shared.take(check_name("queue", args.queue), check_number(args.partition))

    async def _call_partitionsFreed(self, args: Any) -> None:  # noqa: N802
        partitions = [check_number(partition) for partition in args.partitions or ()]
        await self._shared.freed(check_name("queue", args.queue), partitions, check_name("host", args.unable))

    async def _call_movePartition(self, args: Any) -> None:  # noqa: N802
        queue, partition = check_name("queue", args.queue), check_number(args.partition)
        await self._shared.move(queue, partition, check_name("host", args.host))

    async def _call_drainHost(self, args: Any) -> int:  # noqa: N802
        return await self._shared.drain(bool(args.draining))

    async def _call_observe(self, args: Any) -> list[Any]:
        return await self._deliveries.observe(args.queue, args.subscription, args.after, args.limit)

    async def _call_putMessage(self, args: Any) -> int:  # noqa: N802
        return (await self._plain.put(args.queue, None, [args.message]))[0]

    async def _call_putMessageWithPid(self, args: Any) -> int:  # noqa: N802
        return (await self._plain.put(args.queue, check_number(args.partition), [args.message]))[0]

    async def _call_putMessages(self, args: Any) -> list[int]:  # noqa: N802
        return await self._plain.put(args.queue, None, args.messages or ())

    async def _call_putMessagesWithPid(self, args: Any) -> list[int]:  # noqa: N802
        return await self._plain.put(args.queue, check_number(args.partition), args.messages or ())

    async def _call_openQueueScanner(self, args: Any) -> int:  # noqa: N802
        return await self._plain.open_scanner(args.queue, None, args.scan)

    async def _call_openPartitionScanner(self, args: Any) -> int:  # noqa: N802
        return await self._plain.open_scanner(args.queue, [check_number(args.partition)], args.scan)

    async def _call_openCombinedPartitionScanner(self, args: Any) -> int:  # noqa: N802
        return await self._plain.open_scanner(args.queue, args.partitions or (), args.scan)

    async def _call_messageScannerGet(self, args: Any) -> list[Any]:  # noqa: N802
        return await self._plain.next(args.scannerId, 1)

    async def _call_messageScannerGetList(self, args: Any) -> list[Any]:  # noqa: N802
        return await self._plain.next(args.scannerId, args.count or 0)

    async def _call_messageScannerClose(self, args: Any) -> None:  # noqa: N802
        self._plain.close_scanner(args.scannerId)

    async def _call_createSubscription(self, args: Any) -> None:  # noqa: N802
        await self._subscribing.create(args.queue, args.name, args.options)

    async def _call_updateSubscription(self, args: Any) -> None:  # noqa: N802
        await self._subscribing.update(args.queue, args.name, args.changes)

    async def _call_pauseSubscription(self, args: Any) -> None:  # noqa: N802
        await self._subscribing.pause(args.queue, args.name, args.forMs)

    async def _call_resumeSubscription(self, args: Any) -> None:  # noqa: N802
        await self._subscribing.resume(args.queue, args.name)

    async def _call_deleteSubscription(self, args: Any) -> None:  # noqa: N802
        await self._subscribing.delete(args.queue, args.name)

    async def _call_attachListener(self, args: Any) -> None:  # noqa: N802
        await self._subscribing.attach(args.queue, args.subscription, args.listener, args.leaseMs, args.force)

    async def _call_detachListener(self, args: Any) -> None:  # noqa: N802
        await self._subscribing.detach(args.queue, args.subscription, args.listener)

    async def _call_getQueueLocations(self, args: Any) -> list[Any]:  # noqa: N802
        """Per partition the host to ask: its live owner, or any live host where nobody has touched it yet."""
        record = await self._queues.get(check_name("queue", args.queue))
        owners = (await trio.to_thread.run_sync(self._owners.readable_owners, record.name))[0]
        live = LiveHosts((await trio.to_thread.run_sync(self._owners.readable_hosts))[0])
        if not live.able:
            return []
        places = []
        for partition in range(record.settings.partitions):
            host = live.owner(owners.get(partition)) or random.choice(live.able)
            places.append(self._idl.QueueLocation(partition=partition, host=host.address, port=host.port))
        return places


def limits_of(config: HostConfig) -> ServerLimits:
    """What a host lets its callers do."""
    return ServerLimits(
        frame_bytes_max=config.frame_bytes_max, connections_max=config.connections_max,
        pipeline_max=config.calls_in_flight_max, frame_seconds=config.frame_seconds,
        idle_seconds=config.idle_seconds, write_seconds=config.frame_seconds,
    )  # fmt: skip
