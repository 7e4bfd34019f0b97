"""Transactions on a partition, without a service and without a clock: for tests of those who deliver it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import trio

from delivery.batch import Row, encode, headers_in, open_batch, peek, stamp
from delivery.dispatch.scanner import Source
from delivery.ids import ID_MAX
from delivery.messaging.ledger import Ledger
from delivery.messaging.marks import Rollback, header, rolled_back
from delivery.messaging.transactions import Snapshot
from delivery.model import encode_headers
from tests.unit.test_worker_bound import Counting

End = Literal["committed", "aborted", "invalid"]


class Transactions:
    """What of them is visible (dispatch.committed.Transactions), as late as it may be heard of."""

    def __init__(self) -> None:
        self.partition = Counting([])
        self.open: set[int] = set()
        self.ends: dict[int, End] = {}
        self.last_id = 99
        self.trouble = ""
        self.views_given = self.ledgers_read = 0
        self._known = self._look()
        self._changed = trio.lowlevel.ParkingLot()
        self._ledger = Ledger()

    # -- what happens

    def begin(self) -> int:
        pointer = 1 + len(self.open) + len(self.ends)
        self.open.add(pointer)
        return pointer

    def publish(self, *keys: str, pointer: int | None = None, more: bool = False) -> list[int]:
        """A message for each key, `-` for none; `more` gives those of no transaction headers, too. Their ids."""
        return self.publish_mixed([(key, pointer) for key in keys], more=more)

    def publish_mixed(self, messages: Sequence[tuple[str, int | None]], *, more: bool = False) -> list[int]:
        """Messages of keys and transactions, in one batch."""
        rows: list[Row] = []
        for key, pointer in messages:
            block = encode_headers(header(pointer) if pointer else {"h": b"v"} if more else {})
            rows.append((b"", None if key == "-" else key.encode(), key, block))
        return self._store(rows)

    def take_back(self, pointer: int, first: int = 0, last: int = ID_MAX) -> None:
        """Note that what was published under it was undone."""
        self._store([rolled_back(Rollback(pointer, first, last))])

    def end(self, pointer: int, end: End) -> None:
        """It ends; what is aborted has been undone before."""
        if end == "aborted":
            self.take_back(pointer)
        self.open.discard(pointer)
        self.ends[pointer] = end
        self._changed.unpark_all()

    def _store(self, rows: list[Row]) -> list[int]:
        data = encode(rows, 0)
        own = peek(data)
        assert own is not None
        first = self.last_id + 1
        self.last_id += len(rows)
        self.partition.add(stamp(own, data, first, 1)[1])
        return list(range(first, self.last_id + 1))

    # -- what is told of it

    async def view(self) -> Snapshot:
        self.views_given += 1
        await trio.lowlevel.checkpoint()
        return self._known

    async def ended(self, pointer: int) -> None:
        while pointer in self.open:
            await self._changed.park()
        self._known = self._look()

    async def ledger(self, partition: Source) -> Ledger:
        assert partition is self.partition
        self.ledgers_read += 1
        for data in self.partition.batches:
            for _, own in headers_in(data):
                if own.last_id > self._ledger.position:
                    for message in open_batch(data, own).messages("orders"):
                        self._ledger.note(message)
                    self._ledger.position = own.last_id
        await trio.lowlevel.checkpoint()
        return self._ledger

    def _look(self) -> Snapshot:
        invalid = sorted(one for one, end in self.ends.items() if end == "invalid")
        return Snapshot(
            transaction=0, write_pointer=0, read_pointer=max(self.ends, default=0), invalid=invalid,
            in_progress=sorted(self.open),
        )  # fmt: skip


def ids_of(groups: Iterable[list[int]]) -> list[int]:
    """All of them."""
    return [number for group in groups for number in group]
