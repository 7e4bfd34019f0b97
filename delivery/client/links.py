"""A pipelined connection to one region host, and the partitions whose batches are under way on it."""

from __future__ import annotations

import select
from collections import deque
from typing import Final

from delivery.client.hosts import Owners, Route
from delivery.client.inflight import Lane
from delivery.errors import HootError
from delivery.metastore.live import Address
from delivery.rpc.blocking import BlockingConnection

CONNECT_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 10.0
"""A host that does not answer a publish within this time is given up; another attempt follows."""
SILENT_SECONDS: Final = 0.5
"""One that does not within this time is looked for in ZooKeeper, as often: its partition may have another owner."""


class Stream:
    """One partition of a publisher: its lane, the way to its owner, and the link that its batches in flight are on."""

    __slots__ = ("lane", "link", "partition", "reason", "route", "trouble")

    def __init__(self, owners: Owners, queue: str, partition: int, window: int) -> None:
        self.partition = partition
        self.lane = Lane(window)
        self.route = Route(owners, queue, partition)
        self.link: Link | None = None
        self.trouble: HootError | None = None
        """The first error since the lane began to drain."""
        self.reason: HootError | None = None
        """What last kept its batches from being stored; None since one was."""


class Link(BlockingConnection):
    """Publishes go out with `send`; their answers come in the same order, when `ready`."""

    def __init__(self, address: Address) -> None:
        """Connect. Raises HostUnreachable, DeadlineExceeded."""
        super().__init__(*address, connect_deadline=CONNECT_SECONDS, call_deadline=ANSWER_SECONDS)
        self.under_way: deque[tuple[Stream, float]] = deque()
        """Who waits for an answer, and since when."""
        self.looked_at = 0.0
        """When its silence was last looked into."""
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def fileno(self) -> int:
        """Of the socket, to wait on."""
        return self._socket.fileno()

    def ready(self) -> bool:
        """Whether an answer has begun to arrive, or the connection has ended."""
        return self._buffer.partial or bool(self._poll.poll(0))
