"""What a reader with a transaction takes of a partition's batches, for `batch.select`."""

from __future__ import annotations

from collections.abc import Sequence

from delivery.batch import Batch, Header
from delivery.batch.layout import HEADERS
from delivery.batch.select import Wanted
from delivery.messaging.ledger import Ledger
from delivery.messaging.marks import pointer_in
from delivery.messaging.transactions import Snapshot, Verdict


class Committed:
    """Takes what the transaction sees and `rest` takes, up to the first message of one that is in progress."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, after: int, rest: Wanted | None = None) -> None:
        """`ledger` knows at least what was there when the snapshot was taken; up to `after` nothing is looked at."""
        self._snapshot, self._ledger, self._after, self._rest = snapshot, ledger, after, rest
        self.stopped_at: int | None = None
        """The id of that message, once it was met."""
        self.waits_for = 0
        """Its transaction."""

    def decide(self, header: Header, dictionary: bytes) -> bool | None:
        """See Wanted. Messages of transactions have headers."""
        if self.stopped_at is not None:
            return False
        decided = True if self._rest is None else self._rest.decide(header, dictionary)
        return None if decided and header.flags & HEADERS else decided

    def choose(self, batch: Batch) -> Sequence[int]:
        """See Wanted."""
        places = range(batch.header.count) if self._rest is None else self._rest.choose(batch)
        ids, blocks = batch.ids(), batch.columns(places).blocks
        taken = []
        for place, block in zip(places, blocks, strict=True):
            pointer = pointer_in(block) if block else None
            verdict = self._judge(ids[place], pointer) if ids[place] > self._after else Verdict.SKIP
            if verdict is Verdict.STOP:
                self.stopped_at, self.waits_for = ids[place], pointer or 0
                break
            if verdict is Verdict.TAKE:
                taken.append(place)
        return taken

    def _judge(self, number: int, pointer: int | None) -> Verdict:
        if pointer is None:
            return Verdict.TAKE
        return self._snapshot.judge(pointer, rolled_back=self._ledger.is_rolled_back(pointer, number))
