"""What executors do for a compaction in place: bring chosen messages of a partition to a closed copy, with their ids.

As with `client.copying`, what is in the copy is what was brought: a task that runs again, or twice at a time, goes on
behind the last id that is there, and the ids that it is given are the same ones each time.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any, Final

import msgspec

from delivery.batch import headers_in, open_batch
from delivery.batch.pick import dense
from delivery.client.calls import partition_info
from delivery.errors import OutOfPlace
from delivery.rpc.idl import load_idl
from delivery.spark.planning import PATIENCE_SECONDS, Engine, engine

READ_BYTES: Final = 4 << 20
AT_ONCE: Final = 1000
"""Batches are stored together: each that is read may become very many."""
_PAUSE_SECONDS: Final = 0.1


Choice = tuple[int, int, bool, bool]
"""Partition and offset of a message, whether it is a deletion that can go, and whether it is its partition's last."""


class Copying(msgspec.Struct, frozen=True):
    """From where to where."""

    zookeeper: str
    source: str
    target: str
    generation: str
    """Of the target."""

    def __call__(self, chosen: Iterable[Any]) -> Iterator[tuple[int, int]]:
        """Take the Choices of a task, in order, each partition's in one task; gives how many are kept and deleted."""
        with engine(self.zookeeper, PATIENCE_SECONDS) as hosts:
            for partition, rows in groupby(chosen, key=lambda row: row[0]):
                tally = Tally()
                Bringing(hosts, self, partition).run(tally.staying(rows))
                yield tally.kept, tally.deleted


class Tally:
    """Counts what is chosen of a partition as it is brought."""

    def __init__(self) -> None:
        self.kept = self.deleted = 0

    def staying(self, rows: Iterator[Choice]) -> Iterator[int]:
        """The ids that stay, each once, though one may be there for two reasons."""
        before = None
        for _, number, gone, end in rows:
            if not end:
                self.kept, self.deleted = self.kept + (not gone), self.deleted + gone
            if (end or not gone) and number != before:
                before = number
                yield number


class Bringing:
    """One partition, for one task."""

    def __init__(self, hosts: Engine, copying: Copying, partition: int) -> None:
        self._hosts, self._copying, self._partition = hosts, copying, partition

    def run(self, chosen: Iterator[int]) -> None:
        """Bring the messages with these ids, which rise. Raises as reading and storing do."""
        last, ahead = self._last(), Ahead(chosen)
        while (first := ahead.first()) is not None:
            reply = self._read(first - 1)
            staying = self._staying(reply.batches, ahead)
            while parts := list(islice(staying, AT_ONCE)):
                last = self._stored(b"".join(parts), last)
            if reply.position < first:  # retention has dropped the rest
                break
            ahead.up_to(reply.position)

    @staticmethod
    def _staying(batches: bytes, ahead: Ahead) -> Iterator[bytes]:
        """What stays of whole batches."""
        for at, header in headers_in(batches):
            if numbers := ahead.up_to(header.last_id):
                yield from dense(open_batch(bytes(batches[at : at + header.length]), header), numbers)

    def _stored(self, data: bytes, last: int) -> int:
        """Have batches stored behind the id `last`, and give the last one that is there then."""
        copying, deadline = self._copying, time.monotonic() + PATIENCE_SECONDS
        data = behind(data, last)
        while data:
            try:
                return int(self._hosts.call(
                    copying.target, self._partition, "importBatches", copying.target, self._partition, last, data,
                    copying.generation,
                ))  # fmt: skip
            except OutOfPlace:  # another try of this task is at it, or the answer to an earlier one was lost
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
                last = self._last()
                data = behind(data, last)
        return last

    def _last(self) -> int:
        return int(partition_info(self._hosts.call, self._copying.target, self._partition).lastId)

    def _read(self, after: int) -> Any:
        source = self._copying.source
        request = load_idl("delivery").ReadRequest(
            queue=source, partition=self._partition, after=after, upTo=0, topics=[], bytesMax=READ_BYTES, waitMs=0
        )
        return self._hosts.call(source, self._partition, "read", request)


class Ahead:
    """Ids that rise, taken bit by bit."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers, self._waiting = numbers, list[int]()

    def first(self) -> int | None:
        """The next one, which stays."""
        if not self._waiting and (number := next(self._numbers, None)) is not None:
            self._waiting.append(number)
        return self._waiting[0] if self._waiting else None

    def up_to(self, last: int) -> list[int]:
        """All up to this one."""
        while (not self._waiting or self._waiting[-1] <= last) and (number := next(self._numbers, None)) is not None:
            self._waiting.append(number)
        at = bisect_right(self._waiting, last)
        found, self._waiting = self._waiting[:at], self._waiting[at:]
        return found


def behind(data: bytes, last: int) -> bytes:
    """Of whole batches those above an id."""
    return b"".join(data[at : at + one.length] for at, one in headers_in(data) if one.base_id > last)
