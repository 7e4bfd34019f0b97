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

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self, TypeVar

import trio

from delivery.client import client as blocking
from delivery.client.admin import QueueInfo, SubscriptionInfo
from delivery.client.filtering import Explained
from delivery.client.outgoing import Bytes, NewMessage
from delivery.client.publisher import Publisher
from delivery.client.queue import PartitionBounds, Queue
from delivery.client.receipts import PublishedMessage, Receipt
from delivery.client.scanners import FOLLOW_SECONDS, NEXT_BATCH_MAX, Scanner
from delivery.errors import DeadlineExceeded, ScannerClosed
from delivery.ids import MessageId
from delivery.metastore.records import HostRecord, QueueRecord, SubscriptionRecord
from delivery.model import Message, QueueSettings

READ_AHEAD = 1000
"""Messages that a scanner takes per hop to a thread."""

T = TypeVar("T")


async def _hop(call: Callable[..., T], *args: Any, **options: Any) -> T:  # noqa: ANN401
    return await trio.to_thread.run_sync(partial(call, *args, **options))


async def connect(
    zookeeper: str = "127.0.0.1:2181", *, session_timeout: float = 10.0, deadline: float = 5.0
) -> AsyncClient:
    """See client.connect."""
    return AsyncClient(await _hop(blocking.connect, zookeeper, session_timeout=session_timeout, deadline=deadline))


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
            await _hop(self._client.close)

    async def queue(self, name: str) -> AsyncQueue:
        """See Client.queue."""
        return AsyncQueue(await _hop(self._client.queue, name))

    async def create_queue(
        self, name: str, settings: QueueSettings | None = None, /, **changes: Any  # noqa: ANN401
    ) -> AsyncQueue:  # fmt: skip
        """See Client.create_queue."""
        return AsyncQueue(await _hop(self._client.create_queue, name, settings, **changes))

    async def update_queue(
        self, name: str, settings: QueueSettings | None = None, /, **changes: Any  # noqa: ANN401
    ) -> QueueRecord:  # fmt: skip
        """See Client.update_queue."""
        return await _hop(self._client.update_queue, name, settings, **changes)

    async def delete_queue(self, name: str) -> None:
        """See Client.delete_queue."""
        await _hop(self._client.delete_queue, name)

    async def queues(self) -> list[str]:
        """See Client.queues."""
        return await _hop(self._client.queues)

    async def queue_record(self, name: str) -> QueueRecord:
        """See Client.queue_record."""
        return await _hop(self._client.queue_record, name)

    async def queue_records(self) -> list[QueueRecord]:
        """See Client.queue_records."""
        return await _hop(self._client.queue_records)

    async def queue_info(self, name: str) -> QueueInfo:
        """See Client.queue_info."""
        return await _hop(self._client.queue_info, name)

    async def hosts(self) -> list[HostRecord]:
        """See Client.hosts."""
        return await _hop(self._client.hosts)

    async def subscriptions(self, queue: str) -> list[str]:
        """See Client.subscriptions."""
        return await _hop(self._client.subscriptions, queue)

    async def subscription_info(self, queue: str, name: str) -> SubscriptionInfo:
        """See Client.subscription_info."""
        return await _hop(self._client.subscription_info, queue, name)

    async def update_subscription(self, queue: str, name: str, **preferences: Any) -> SubscriptionRecord:  # noqa: ANN401
        """See Client.update_subscription."""
        return await _hop(self._client.update_subscription, queue, name, **preferences)

    async def explain(self, queue: str, name: str, message: int, partition: int | None = None) -> list[Explained]:
        """See Client.explain."""
        return await _hop(self._client.explain, queue, name, message, partition)

    async def delete_subscription(self, queue: str, name: str) -> None:
        """See Client.delete_subscription."""
        await _hop(self._client.delete_subscription, queue, name)


class AsyncQueue:
    """See Queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    @property
    def name(self) -> str:
        """Its name."""
        return self._queue.name

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return self._queue.partitions

    @property
    def settings(self) -> QueueSettings:
        """The settings as they were when this object was made."""
        return self._queue.settings

    async def put(
        self, body: Bytes, *, key: Bytes | None = None, topic: str = "", headers: Mapping[str, bytes] | None = None,
        partition: int | None = None, timeout: float = 30.0,
    ) -> PublishedMessage:  # fmt: skip
        """See Queue.put. Cancelled, it leaves the outcome unknown."""
        call = partial(
            self._queue.put, body, key=key, topic=topic, headers=headers, partition=partition, timeout=timeout
        )
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True)

    async def put_many(
        self, messages: Iterable[Bytes | NewMessage], *, timeout: float = 30.0
    ) -> list[PublishedMessage]:  # fmt: skip
        """See Queue.put_many. Cancelled, it leaves the outcome unknown."""
        call = partial(self._queue.put_many, list(messages), timeout=timeout)
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True)

    async def publisher(self, **options: Any) -> AsyncPublisher:  # noqa: ANN401
        """See Queue.publisher."""
        return AsyncPublisher(self._queue.publisher(**options, hop=True))

    async def scanner(self, **options: Any) -> AsyncScanner:  # noqa: ANN401
        """See Queue.scanner."""
        return AsyncScanner(await _hop(self._queue.scanner, **options))

    async def partition_scanner(self, partition: int, **options: Any) -> AsyncScanner:  # noqa: ANN401
        """See Queue.partition_scanner."""
        return AsyncScanner(await _hop(self._queue.partition_scanner, partition, **options))

    async def combined_scanner(self, partitions: Iterable[int], **options: Any) -> AsyncScanner:  # noqa: ANN401
        """See Queue.combined_scanner."""
        return AsyncScanner(await _hop(self._queue.combined_scanner, list(partitions), **options))

    async def bounds(self, partition: int) -> PartitionBounds:
        """See Queue.bounds."""
        return await _hop(self._queue.bounds, partition)

    async def count(self, partition: int, after: int, until: int = 0) -> int:
        """See Queue.count."""
        return await _hop(self._queue.count, partition, after, until)


class AsyncReceipt:
    """See Receipt."""

    __slots__ = ("_receipt",)

    def __init__(self, receipt: Receipt) -> None:
        self._receipt = receipt

    def done(self) -> bool:
        """See Receipt.done."""
        return self._receipt.done()

    async def result(self, timeout: float | None = None) -> PublishedMessage:
        """See Receipt.result. Cancelling it changes nothing for the message."""
        if not self._receipt.done():
            told, token = trio.Event(), trio.lowlevel.current_trio_token()

            def tell(_: Receipt) -> None:
                with contextlib.suppress(trio.RunFinishedError):
                    token.run_sync_soon(told.set)

            self._receipt.add_done_callback(tell)
            with trio.move_on_after(float("inf") if timeout is None else timeout):
                await told.wait()
            if not self._receipt.done():
                raise DeadlineExceeded(f"no answer within {timeout:g} s; the message is still on its way")
        return self._receipt.result(0)

    async def id(self) -> MessageId:
        """The id that the host gave; waits and raises as `result` does."""
        return (await self.result()).id


class AsyncPublisher:
    """See Publisher. An async context manager."""

    def __init__(self, publisher: Publisher) -> None:
        """Takes over a publisher made with `hop`."""
        self._publisher = publisher

    async def put(
        self, body: Bytes, *, key: Bytes | None = None, topic: str = "", headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
    ) -> AsyncReceipt:  # fmt: skip
        """See Publisher.put. Hops to a thread only to wait for room; cancelled then, it may still be put."""
        call = partial(self._publisher.put, body, key=key, topic=topic, headers=headers, partition=partition)
        if self._publisher.has_room():
            await trio.lowlevel.checkpoint()
            return AsyncReceipt(call())
        return AsyncReceipt(await trio.to_thread.run_sync(call, abandon_on_cancel=True))

    async def put_many(self, messages: Iterable[Bytes | NewMessage]) -> list[AsyncReceipt]:
        """See Publisher.put_many."""
        return [AsyncReceipt(receipt) for receipt in await _hop(self._publisher.put_many, list(messages))]

    async def flush(self, timeout: float | None = None) -> None:
        """See Publisher.flush."""
        await _hop(self._publisher.flush, timeout)

    async def close(self) -> None:
        """See Publisher.close. Not cancelled."""
        with trio.CancelScope(shield=True):
            await _hop(self._publisher.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with trio.CancelScope(shield=True):
            await _hop(self._publisher.__exit__, kind, error, trace)


class AsyncScanner:
    """See Scanner. For one task at a time; an async context manager and iterator."""

    def __init__(self, scanner: Scanner) -> None:
        """Takes over a blocking scanner."""
        self._scanner = scanner
        self._ready: deque[Message] = deque()
        self._closed = False

    async def next(self, timeout: float | None = None) -> Message | None:
        """See Scanner.next. A cancelled one takes up to a second to end."""
        found = await self.next_batch(1, timeout)
        return found[0] if found else None

    async def next_batch(self, count: int, timeout: float | None = None) -> list[Message]:
        """See Scanner.next_batch."""
        if self._closed:
            raise ScannerClosed("the scanner is closed")
        end = trio.current_time() + (float("inf") if timeout is None else timeout)
        while not self._ready:
            left = min(FOLLOW_SECONDS, end - trio.current_time())
            ahead = min(max(count, READ_AHEAD), NEXT_BATCH_MAX)
            self._ready += await _hop(self._scanner.next_batch, ahead, max(0.0, left))
            if not self._scanner.follows or left <= 0:
                break
        return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    async def close(self) -> None:
        """See Scanner.close."""
        self._closed = True
        self._ready.clear()
        self._scanner.close()
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        message = self._ready.popleft() if self._ready else await self.next()
        if message is None:
            raise StopAsyncIteration
        return message
