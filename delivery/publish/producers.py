"""A producer's sequence in one partition: what is new, what is there already, what came too early.

A producer numbers its batches per partition by one (see batch.sequences). A repeated number is answered with the first
one's ids, so that a lost reply costs nothing; a gap is refused, so that a batch that got lost cannot be overtaken,
unless its producer gave it up and begins anew. A producer that is not remembered (new, or silent for longer than a
thousand others) may start anywhere.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from delivery.batch.sequences import follows
from delivery.errors import InvalidRequest, OutOfSequence
from delivery.storage.base import StoredBatch
from delivery.storage.producers import BATCHES_PER_PRODUCER, PRODUCERS_MAX

P = TypeVar("P")


class _Producer(Generic[P]):
    __slots__ = ("last", "stored", "underway")

    def __init__(self, last: int) -> None:
        self.last = last
        self.underway: dict[int, P] = {}
        self.stored: deque[StoredBatch] = deque(maxlen=BATCHES_PER_PRODUCER)


class Producers(Generic[P]):
    """The sequences of one partition's producers; `P` stands for a publish that is under way. Plain."""

    def __init__(self, stored: Iterable[StoredBatch]) -> None:
        """`stored` is what the store remembered, oldest first."""
        self._producers: OrderedDict[int, _Producer[P]] = OrderedDict()
        for batch in stored:
            self._producer(batch.producer_id, batch.sequence).stored.append(batch)
            self._producers[batch.producer_id].last = batch.sequence

    def find(self, producer_id: int, sequence: int) -> StoredBatch | P | None:
        """What became of this batch: stored, under way, or None when it is new and may be taken now.

        Raises OutOfSequence when its predecessor is missing, InvalidRequest when it is so old that its ids are
        forgotten (more than 16 batches of the producer were stored since).
        """
        producer = self._producers.get(producer_id)
        if producer is None or follows(sequence, producer.last):
            return None
        if sequence > producer.last:
            raise OutOfSequence(
                f"batch {sequence} of producer {producer_id} came after {producer.last}: send what is between, in order"
            )
        if (underway := producer.underway.get(sequence)) is not None:
            return underway
        for batch in producer.stored:
            if batch.sequence == sequence:
                return batch
        raise InvalidRequest(
            f"batch {sequence} of producer {producer_id} was answered long ago: {producer.last} was taken since, and"
            f" only the last {BATCHES_PER_PRODUCER} are remembered"
        )

    def take(self, producer_id: int, sequence: int, publish: P) -> None:
        """A batch that `find` called new is under way."""
        producer = self._producer(producer_id, sequence)
        producer.last = sequence
        producer.underway[sequence] = publish

    def stored(self, batch: StoredBatch) -> None:
        """A batch that was under way is stored."""
        producer = self._producer(batch.producer_id, batch.sequence)
        producer.underway.pop(batch.sequence, None)
        producer.stored.append(batch)

    def _producer(self, producer_id: int, sequence: int) -> _Producer[P]:
        producer = self._producers.get(producer_id)
        if producer is not None:
            self._producers.move_to_end(producer_id)
            return producer
        producer = self._producers[producer_id] = _Producer(sequence)
        if len(self._producers) > PRODUCERS_MAX:
            self._producers.popitem(last=False)
        return producer
