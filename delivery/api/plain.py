"""The plain calls: one struct per message, for any stock Thrift client (seed 004; HQueue's multi-language calls).

It opens every message, for compatibility and not for speed. A put without a partition goes to one at random, as the
seed has it; the messages of one `putMessages` stay together in it, in order, and are stored all or none.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import trio

from delivery.api.publishing import Publishing
from delivery.api.reading import asked_filter
from delivery.api.scanners import Cursor, ReadPartition, Scanner, ScannerTable, check_range
from delivery.batch import BATCH_COUNT_MAX, Row, encode
from delivery.cluster.queues import QueueTable
from delivery.errors import InvalidRequest
from delivery.model import check_partition, check_topic, encode_headers
from delivery.publish.pending import Stored
from delivery.rpc.messages import plain_struct
from delivery.rpc.protocol import load_idl

LIST_MAX: Final = 10_000
"""Messages that one messageScannerGetList gives."""


class PlainCalls:
    """Puts and scanners. `None` from the wire means that the client left a field out."""

    def __init__(self, publishing: Publishing, queues: QueueTable, scanners: ScannerTable, read: ReadPartition) -> None:
        self._publishing, self._queues, self._scanners, self._read = publishing, queues, scanners, read
        self._struct = load_idl("delivery").Message

    async def put(self, queue: str, partition: int | None, messages: Sequence[Any]) -> list[int]:
        """Store messages in a partition, without one in a random one; their ids."""
        if not 1 <= len(messages) <= BATCH_COUNT_MAX:
            raise InvalidRequest(f"put 1 to {BATCH_COUNT_MAX} messages at once, not {len(messages)}")
        record = await self._queues.get(queue)
        if partition is None:
            partition = random.randrange(record.settings.partitions)
        check_partition(partition, record.settings.partitions, queue)
        batch = encode([_row(message) for message in messages], partition)
        stored: Stored = await self._publishing.begin(queue, partition, batch).wait()
        return list(range(stored.base_id, stored.base_id + stored.count))

    async def open_scanner(self, queue: str, partitions: Sequence[int] | None, scan: Any) -> int:
        """A scanner of some partitions, of all without any named; its id."""
        record = await self._queues.get(queue)
        total = record.settings.partitions
        chosen = list(range(total)) if partitions is None else list(dict.fromkeys(partitions))
        if not chosen:
            raise InvalidRequest("a scanner needs at least one partition")
        for partition in chosen:
            check_partition(partition, total, queue)
        topics = asked_filter((scan and scan.topics) or ())
        wanted = check_range(scan and scan.startId, scan and scan.stopId, topics)
        scanner = Scanner([Cursor(queue, partition, wanted) for partition in chosen])
        return self._scanners.add(scanner, trio.current_time())

    async def next(self, scanner_id: int, count: int) -> list[Any]:
        """Up to `count` messages as structs; empty when there are none now."""
        if not 1 <= count <= LIST_MAX:
            raise InvalidRequest(f"ask for 1 to {LIST_MAX} messages, not {count}")
        scanner = self._scanners.use(scanner_id, trio.current_time())
        return [plain_struct(self._struct, message) for message in await scanner.take(count, self._read)]

    def close_scanner(self, scanner_id: int) -> None:
        """Close a scanner; fine when it is closed."""
        self._scanners.close(scanner_id)


def _row(message: Any) -> Row:
    if message is None or message.body is None:
        raise InvalidRequest("a message needs a body; it may be empty")
    return message.body, message.key, check_topic(message.topic or ""), encode_headers(message.headers or {})
