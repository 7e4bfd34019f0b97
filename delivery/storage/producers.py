"""The recent batches of recent producers in one partition: what a repeated publish is answered from."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from delivery.batch import Header
from delivery.storage.base import StoredBatch

BATCHES_PER_PRODUCER: Final = 16
"""As many as a publisher may have in flight, so that each of them can be asked about again."""
PRODUCERS_MAX: Final = 1000
"""The producer that has been silent for longest is forgotten above this."""


class Producers:
    """Remembers stored batches by producer. Not thread-safe: it belongs to the partition's writer."""

    __slots__ = ("_batches",)

    def __init__(self, stored: Iterable[StoredBatch] = ()) -> None:
        """`stored` in the order in which it was stored, as `snapshot` gives it."""
        self._batches: OrderedDict[int, deque[StoredBatch]] = OrderedDict()
        for batch in stored:
            self._keep(batch)

    def note(self, header: Header) -> None:
        """A batch with this header is stored now. Producer id 0 means that nobody will ask."""
        if header.producer_id:
            self._keep(StoredBatch(header.producer_id, header.producer_sequence, header.base_id, header.count))

    def snapshot(self) -> tuple[StoredBatch, ...]:
        """Everything remembered, oldest first; noting it again in that order gives the same memory."""
        return tuple(sorted((b for each in self._batches.values() for b in each), key=lambda batch: batch.base_id))

    def _keep(self, batch: StoredBatch) -> None:
        batches = self._batches.get(batch.producer_id)
        if batches is None:
            batches = self._batches[batch.producer_id] = deque(maxlen=BATCHES_PER_PRODUCER)
            if len(self._batches) > PRODUCERS_MAX:
                self._batches.popitem(last=False)
        else:
            self._batches.move_to_end(batch.producer_id)
        batches.append(batch)
