"""What a reader with a transaction takes of a partition's batches, for `batch.select`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delivery.batch import Batch, Header
from delivery.batch.layout import HEADERS
from delivery.batch.select import Wanted
from delivery.messaging.ledger import Ledger
from delivery.messaging.marks import pointer_in
from delivery.messaging.transactions import Snapshot, Verdict

_TAKEN: Final = (0, Verdict.TAKE)


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
        """See Wanted. Where a batch is of transactions that are committed as a whole, no message is looked at."""
        places = range(batch.header.count) if self._rest is None else self._rest.choose(batch)
        ids, blocks = batch.ids(), batch.blocks()
        standings = {block: self._standing(block) for block in set(blocks)}
        if ids[0] > self._after and all(one == _TAKEN for one in standings.values()):
            return places
        taken = []
        for place in places:
            pointer, verdict = standings[blocks[place]]
            number = ids[place]
            if number <= self._after or (pointer and self._ledger.is_rolled_back(pointer, number)):
                continue
            if verdict is Verdict.STOP:
                self.stopped_at, self.waits_for = number, pointer
                break
            if verdict is Verdict.TAKE:
                taken.append(place)
        return taken

    def _standing(self, block: bytes) -> tuple[int, Verdict]:
        """What becomes of messages with these headers, but for those that were rolled back; their transaction.

        The latter is 0 where that need not be known.
        """
        pointer = pointer_in(block) if block else None
        if pointer is None:
            return _TAKEN
        verdict = self._snapshot.judge(pointer, rolled_back=False)
        return _TAKEN if verdict is Verdict.TAKE and not self._ledger.has_rolled_back(pointer) else (pointer, verdict)
