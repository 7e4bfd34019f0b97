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
"""Of the producer that has been silent for longest only the last batch is remembered above this."""
SILENT_MAX: Final = 10_000
"""Of so many. It is for producers that come once and may come again, as the tasks of a job do that is repeated."""


class Producers:
    """Remembers stored batches by producer. Not thread-safe: it belongs to the partition's writer."""

    __slots__ = ("_batches", "_silent")

    def __init__(self, stored: Iterable[StoredBatch] = ()) -> None:
        """`stored` in the order in which it was stored, as `snapshot` gives it."""
        self._batches: OrderedDict[int, deque[StoredBatch]] = OrderedDict()
        self._silent: OrderedDict[int, StoredBatch] = OrderedDict()
        for batch in stored:
            self.keep(batch)

    def note(self, header: Header, *, published: bool = True) -> None:
        """A batch with this header is stored now. Producer id 0 means that nobody will ask.

        `published` says whether the payload is the one that was published, byte for byte.
        """
        if header.producer_id:
            crc = header.payload_crc if published else 0
            self.keep(StoredBatch(header.producer_id, header.producer_sequence, header.base_id, header.count, crc))

    def keep(self, batch: StoredBatch) -> None:
        """Remember a batch that is stored now."""
        batches = self._batches.get(batch.producer_id)
        if batches is None:
            before = self._silent.pop(batch.producer_id, None)
            batches = self._batches[batch.producer_id] = deque([before] if before else (), BATCHES_PER_PRODUCER)
            if len(self._batches) > PRODUCERS_MAX:
                self._silence()
        else:
            self._batches.move_to_end(batch.producer_id)
        batches.append(batch)

    def of(self, producer_id: int) -> tuple[StoredBatch, ...]:
        """The batches of a producer that are remembered, oldest first."""
        silent = self._silent.get(producer_id)
        return (silent,) if silent else tuple(self._batches.get(producer_id, ()))

    def snapshot(self) -> tuple[StoredBatch, ...]:
        """Everything remembered, oldest first; noting it again in that order gives the same memory."""
        recent = (batch for each in self._batches.values() for batch in each)
        return tuple(sorted((*recent, *self._silent.values()), key=lambda batch: batch.base_id))

    def _silence(self) -> None:
        producer_id, batches = self._batches.popitem(last=False)
        self._silent[producer_id] = batches[-1]
        if len(self._silent) > SILENT_MAX:
            self._silent.popitem(last=False)
