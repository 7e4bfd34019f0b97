"""The queues and scanners of the trio face (see `aio`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Self

import trio

from delivery.client.aio_publisher import AsyncPublisher, hop
from delivery.client.outgoing import Bytes, NewMessage
from delivery.client.queue import PartitionBounds, Queue
from delivery.client.receipts import PublishedMessage
from delivery.client.scanners import FOLLOW_SECONDS, NEXT_BATCH_MAX, Scanner
from delivery.errors import ScannerClosed
from delivery.model import Message, QueueSettings

READ_AHEAD = 1000
"""Messages that a scanner takes per hop to a thread."""


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
        return AsyncScanner(await hop(self._queue.scanner, **options))

    async def partition_scanner(self, partition: int, **options: Any) -> AsyncScanner:  # noqa: ANN401
        """See Queue.partition_scanner."""
        return AsyncScanner(await hop(self._queue.partition_scanner, partition, **options))

    async def combined_scanner(self, partitions: Iterable[int], **options: Any) -> AsyncScanner:  # noqa: ANN401
        """See Queue.combined_scanner."""
        return AsyncScanner(await hop(self._queue.combined_scanner, list(partitions), **options))

    async def bounds(self, partition: int) -> PartitionBounds:
        """See Queue.bounds."""
        return await hop(self._queue.bounds, partition)

    async def count(self, partition: int, after: int, until: int = 0) -> int:
        """See Queue.count."""
        return await hop(self._queue.count, partition, after, until)


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
            self._ready += await hop(self._scanner.next_batch, ahead, max(0.0, left))
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
