"""A producer's sequence in one partition: what is new, what is there already, what came too early.

A producer numbers its batches per partition by one (see batch.sequences). A repeated number is answered with the first
one's ids, so that a lost reply costs nothing; with another payload it is refused. So is a gap, so that a batch that got
lost cannot be overtaken, unless its producer gave it up and begins anew. A producer that is not remembered (new, or
silent for longer than thousands of others, see storage.producers) may start anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from delivery.batch.sequences import follows
from delivery.errors import AnsweredLongAgo, OutOfSequence, SequenceReused
from delivery.storage.base import StoredBatch
from delivery.storage.producers import Producers as Remembered

P = TypeVar("P")


class Producers(Generic[P]):
    """The sequences of one partition's producers; `P` stands for a publish that is under way. Plain."""

    def __init__(self, stored: Iterable[StoredBatch]) -> None:
        """`stored` is what the store remembered, oldest first."""
        self._stored = Remembered(stored)
        self._underway: dict[int, dict[int, tuple[P, int]]] = {}
        """By producer and sequence, in their order, with the checksums of their payloads."""

    def find(self, producer_id: int, sequence: int, crc: int = 0) -> StoredBatch | P | None:
        """What became of this batch: stored, under way, or None when it is new and may be taken now.

        `crc` is the checksum of its payload, 0 where it is not known. Raises SequenceReused when another payload was
        taken under its number, OutOfSequence when its predecessor is missing, AnsweredLongAgo when it is so old that
        its ids are forgotten (more than 16 batches of the producer were stored since, or one, if it has been silent
        for long).
        """
        underway, stored = self._underway.get(producer_id, {}), self._stored.of(producer_id)
        if sequence in underway:
            publish, before = underway[sequence]
            _check_same(producer_id, sequence, crc, before)
            return publish
        if not underway and not stored:
            return None
        last = next(reversed(underway)) if underway else stored[-1].sequence
        if follows(sequence, last):
            return None
        if sequence > last:
            raise OutOfSequence(
                f"batch {sequence} of producer {producer_id} came after {last}: send what is between, in order"
            )
        for batch in stored:
            if batch.sequence == sequence:
                _check_same(producer_id, sequence, crc, batch.crc)
                return batch
        raise AnsweredLongAgo(
            f"batch {sequence} of producer {producer_id} was answered long ago: {last} was taken since, and only the"
            " last batches of a producer are remembered"
        )

    def take(self, producer_id: int, sequence: int, publish: P, crc: int = 0) -> None:
        """A batch that `find` called new is under way."""
        self._underway.setdefault(producer_id, {})[sequence] = publish, crc

    def stored(self, batch: StoredBatch) -> None:
        """A batch that was under way is stored."""
        underway = self._underway[batch.producer_id]
        del underway[batch.sequence]
        if not underway:
            del self._underway[batch.producer_id]
        self._stored.keep(batch)


def _check_same(producer_id: int, sequence: int, crc: int, before: int) -> None:
    if crc and before and crc != before:
        raise SequenceReused(
            f"batch {sequence} of producer {producer_id} is not the one that was taken under this number before"
        )
