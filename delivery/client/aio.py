"""The client for trio programs: the names of the blocking face, awaited.

For example:

    async with await aio.connect("127.0.0.1:2181") as client:
        queue = await client.queue("orders")
        await queue.put(b"one order", key=b"customer-7")
        async with await queue.publisher() as publisher:
            receipt = await publisher.put(b"another")
            print((await receipt.result()).id)
        async for message in await queue.scanner():
            print(message.id, message.body)

It is the blocking client underneath, called in threads: once per call, per batch of a publisher (by the publisher's own
thread) and per READ_AHEAD messages of a scanner. A cancelled `put` leaves its outcome unknown; other calls finish in
their thread before the cancellation is delivered, within their timeouts. Errors are those of the blocking face.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Self

import trio

from delivery.client import client as blocking
from delivery.client.admin import QueueInfo
from delivery.client.aio_publisher import AsyncPublisher, AsyncReceipt, hop
from delivery.client.aio_queue import AsyncQueue, AsyncScanner
from delivery.client.aio_transactions import AsyncManager, AsyncTransaction
from delivery.client.deadletters import DeadLetterQueue, StoredLetter
from delivery.client.explaining import Explained
from delivery.client.looking import SubscriptionInfo
from delivery.client.positions import Move
from delivery.client.replays import Stretch
from delivery.dispatch.verdict import DEFAULTS, Limits
from delivery.ids import Start
from delivery.metastore.managers.records import ParkedKey
from delivery.metastore.managers.snapshots import Snapshot
from delivery.metastore.records import HostRecord, QueueRecord, SubscriptionRecord
from delivery.model import QueueSettings
from delivery.transactions.limits import TIMEOUT_MS

__all__ = [
    "AsyncClient", "AsyncDeadLetterQueue", "AsyncPublisher", "AsyncQueue", "AsyncReceipt", "AsyncScanner",
    "AsyncTransaction", "connect",
]  # fmt: skip


async def connect(
    zookeeper: str = "127.0.0.1:2181", *, session_timeout: float = 10.0, deadline: float = 5.0
) -> AsyncClient:
    """See client.connect."""
    return AsyncClient(await hop(blocking.connect, zookeeper, session_timeout=session_timeout, deadline=deadline))


class AsyncClient:
    """See Client. An async context manager."""

    def __init__(self, client: blocking.Client) -> None:
        """Takes over a blocking client."""
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """See Client.close. Not cancelled."""
        with trio.CancelScope(shield=True):
            await hop(self._client.close)

    async def queue(self, name: str) -> AsyncQueue:
        """See Client.queue."""
        return AsyncQueue(await hop(self._client.queue, name))

    async def create_queue(
        self, name: str, settings: QueueSettings | None = None, /, **changes: Any  # noqa: ANN401
    ) -> AsyncQueue:  # fmt: skip
        """See Client.create_queue."""
        return AsyncQueue(await hop(self._client.create_queue, name, settings, **changes))

    async def update_queue(
        self, name: str, settings: QueueSettings | None = None, /, **changes: Any  # noqa: ANN401
    ) -> QueueRecord:  # fmt: skip
        """See Client.update_queue."""
        return await hop(self._client.update_queue, name, settings, **changes)

    async def delete_queue(self, name: str) -> None:
        """See Client.delete_queue."""
        await hop(self._client.delete_queue, name)

    async def queues(self) -> list[str]:
        """See Client.queues."""
        return await hop(self._client.queues)

    async def queue_record(self, name: str) -> QueueRecord:
        """See Client.queue_record."""
        return await hop(self._client.queue_record, name)

    async def queue_records(self) -> list[QueueRecord]:
        """See Client.queue_records."""
        return await hop(self._client.queue_records)

    async def queue_info(self, name: str) -> QueueInfo:
        """See Client.queue_info."""
        return await hop(self._client.queue_info, name)

    async def hosts(self) -> list[HostRecord]:
        """See Client.hosts."""
        return await hop(self._client.hosts)

    async def subscriptions(self, queue: str) -> list[str]:
        """See Client.subscriptions."""
        return await hop(self._client.subscriptions, queue)

    async def subscription_info(self, queue: str, name: str, limits: Limits = DEFAULTS) -> SubscriptionInfo:
        """See Client.subscription_info."""
        return await hop(self._client.subscription_info, queue, name, limits)

    async def subscription_infos(
        self, queue: str | None = None, name: str | None = None, *, limits: Limits = DEFAULTS
    ) -> list[SubscriptionInfo]:  # fmt: skip
        """See Client.subscription_infos."""
        return await hop(self._client.subscription_infos, queue, name, limits=limits)

    async def seek(self, queue: str, name: str, to: Start, **options: Any) -> list[Move]:  # noqa: ANN401
        """See Client.seek."""
        return await hop(self._client.seek, queue, name, to, **options)

    async def create_snapshot(self, queue: str, name: str, snapshot: str, *, dry_run: bool = False) -> Snapshot:
        """See Client.create_snapshot."""
        return await hop(self._client.create_snapshot, queue, name, snapshot, dry_run=dry_run)

    async def snapshots(self, queue: str, name: str) -> dict[str, Snapshot]:
        """See Client.snapshots."""
        return await hop(self._client.snapshots, queue, name)

    async def snapshot(self, queue: str, name: str, snapshot: str) -> Snapshot:
        """See Client.snapshot."""
        return await hop(self._client.snapshot, queue, name, snapshot)

    async def restore_snapshot(self, queue: str, name: str, snapshot: str, **options: bool) -> list[Move]:
        """See Client.restore_snapshot."""
        return await hop(self._client.restore_snapshot, queue, name, snapshot, **options)

    async def delete_snapshot(self, queue: str, name: str, snapshot: str) -> None:
        """See Client.delete_snapshot."""
        await hop(self._client.delete_snapshot, queue, name, snapshot)

    async def replay(self, queue: str, name: str, into: str, **options: Any) -> list[Stretch]:  # noqa: ANN401
        """See Client.replay."""
        return await hop(self._client.replay, queue, name, into, **options)

    async def promote(self, queue: str, shadow: str, **options: bool) -> tuple[str, list[Move]]:
        """See Client.promote."""
        return await hop(self._client.promote, queue, shadow, **options)

    async def create_subscription(self, queue: str, name: str, **options: Any) -> SubscriptionRecord:  # noqa: ANN401
        """See Client.create_subscription."""
        return await hop(self._client.create_subscription, queue, name, **options)

    async def update_subscription(self, queue: str, name: str, **preferences: Any) -> SubscriptionRecord:  # noqa: ANN401
        """See Client.update_subscription."""
        return await hop(self._client.update_subscription, queue, name, **preferences)

    async def pause(self, queue: str, name: str, **end: Any) -> SubscriptionRecord:  # noqa: ANN401
        """See Client.pause."""
        return await hop(self._client.pause, queue, name, **end)

    async def resume(self, queue: str, name: str) -> SubscriptionRecord:
        """See Client.resume."""
        return await hop(self._client.resume, queue, name)

    async def explain(self, queue: str, name: str, message: int, partition: int | None = None) -> list[Explained]:
        """See Client.explain."""
        return await hop(self._client.explain, queue, name, message, partition)

    async def delete_subscription(self, queue: str, name: str) -> None:
        """See Client.delete_subscription."""
        await hop(self._client.delete_subscription, queue, name)

    async def parked(self, queue: str, subscription: str) -> list[tuple[int, ParkedKey]]:
        """See Client.parked."""
        return await hop(self._client.parked, queue, subscription)

    async def release(self, queue: str, subscription: str, keys: Collection[bytes] | None = None) -> int:
        """See Client.release."""
        return await hop(self._client.release, queue, subscription, keys)

    async def transaction(self, timeout: float = TIMEOUT_MS / 1000) -> AsyncTransaction:
        """See Client.transaction."""
        return AsyncTransaction(await hop(self._client.transaction, timeout))

    @property
    def transactions(self) -> AsyncManager:
        """See Client.transactions."""
        return AsyncManager(self._client.transactions)

    async def dead_letters(self, queue: str, subscription: str) -> AsyncDeadLetterQueue:
        """See Client.dead_letters."""
        return AsyncDeadLetterQueue(await hop(self._client.dead_letters, queue, subscription))


class AsyncDeadLetterQueue:
    """See DeadLetterQueue."""

    def __init__(self, letters: DeadLetterQueue) -> None:
        self._letters = letters

    async def letters(self) -> list[StoredLetter]:
        """See DeadLetterQueue.letters."""
        return await hop(self._letters.letters)

    async def redrive(self, letters: Sequence[StoredLetter]) -> None:
        """See DeadLetterQueue.redrive."""
        await hop(self._letters.redrive, letters)

    async def drop(self, letters: Sequence[StoredLetter]) -> None:
        """See DeadLetterQueue.drop."""
        await hop(self._letters.drop, letters)
