"""Which partition a message goes to: the one named, the one of its key, or a random one that is kept for a while.

Seed 004, section 3.2: a message without a partition goes to a random one. Hoot keeps the random choice until the batch
that it fills is closed, so that messages without a key travel in few large batches rather than in many small ones.
Pure: the random source is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from delivery.errors import InvalidRequest
from delivery.model import check_partition, partition_of


class Router:
    """Routes the messages of one publisher. Not thread-safe: its owner holds a lock."""

    __slots__ = ("_choices", "_queue", "_random", "_sticky")

    def __init__(self, queue: str, partitions: int, random: Random) -> None:
        self._queue = queue
        self._choices: Sequence[int] = range(partitions)
        self._random = random
        self._sticky = random.choice(self._choices)

    @property
    def sticky(self) -> int:
        """Where messages with neither a partition nor a key go now."""
        return self._sticky

    def change(self) -> None:
        """Choose another partition at random, the present one only where there is no other."""
        count = len(self._choices)
        if count > 1:
            step = self._random.randrange(1, count)
            self._sticky = (self._sticky + step) % count

    def route(self, key: bytes | None, partition: int | None) -> int:
        """The partition of a message. Raises UnknownPartition; a partition named wins over a key."""
        if partition is not None:
            if isinstance(partition, bool):
                raise InvalidRequest(f"a partition is a number, not {partition}")
            return check_partition(partition, len(self._choices), self._queue)
        return self._sticky if key is None else partition_of(key, len(self._choices))
