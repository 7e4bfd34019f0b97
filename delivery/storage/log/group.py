"""Committing a group of batches over several partitions: all writes, then all flushes, then all confirmations.

The flushes come together so that the disk can merge them, and so that one flush per partition serves the whole group.
What is for one partition only is written and flushed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile

from delivery.errors import Fenced, HootError, StorageUnavailable
from delivery.storage.base import Append, PartitionKey
from delivery.storage.log.partition import Partition
from delivery.storage.log.volatile import VolatilePartition


class Share:
    """One partition's part of a group, and how each of its batches fared."""

    __slots__ = ("_batches", "_error", "_partition", "_stored")

    def __init__(self, partition: Partition | VolatilePartition | None, batches: Sequence[Append]) -> None:
        """`partition` is None when it is not open; batches of another epoch than its own, and what follows, fail."""
        self._partition = partition
        self._error: HootError | None = None
        self._stored = 0
        self._batches = batches
        if partition is None:
            self._fail(StorageUnavailable(f"{batches[0].key} is not open here"))
        else:
            self._batches = list(takewhile(lambda item: item.epoch == partition.epoch, batches))
            if len(self._batches) < len(batches):
                self._error = Fenced(f"{partition.key} is open under epoch {partition.epoch} here")

    def write(self, *, alone: bool) -> None:
        """The first step; also the second one where no other share's flush could be merged with it."""
        if self._partition is not None and self._batches:
            synced = alone and self._durable
            self._try(partial(self._partition.write, self._batches, synced=synced))

    def sync(self) -> None:
        """The second step, where a batch must be on the disk before it is acknowledged."""
        if self._partition is not None and self._durable:
            self._try(self._partition.sync)

    def confirm(self) -> None:
        """The last step."""
        if self._partition is not None and self._batches:
            confirmed = self._try(self._partition.confirm)
            if confirmed is not None:
                self._stored = confirmed
                if confirmed < len(self._batches):
                    self._error = Fenced(
                        f"{self._partition.key} has a newer owner, which does not count what came late"
                    )

    def answer(self, place: int) -> HootError | None:
        """What became of the batch at this place in the share: None when it is stored."""
        return None if place < self._stored else self._error

    @property
    def _durable(self) -> bool:
        return any(item.durability == "fsync" for item in self._batches)

    def _try(self, step: Callable[[], int | None]) -> int | None:
        try:
            return step()
        except HootError as error:
            self._fail(error)
            return None

    def _fail(self, error: HootError) -> None:
        self._error, self._partition = error, None


def commit(
    group: Sequence[Append], partitions: Mapping[PartitionKey, Partition | VolatilePartition]
) -> list[HootError | None]:
    """Store a group and answer each of its batches. The caller holds the locks of all partitions in it."""
    places: dict[PartitionKey, list[int]] = {}
    for place, item in enumerate(group):
        places.setdefault(item.key, []).append(place)
    shares = {key: Share(partitions.get(key), [group[place] for place in of]) for key, of in places.items()}
    for step in (partial(Share.write, alone=len(shares) == 1), Share.sync, Share.confirm):
        for share in shares.values():
            step(share)
    answers: list[HootError | None] = [None] * len(group)
    for key, of in places.items():
        for number, place in enumerate(of):
            answers[place] = shares[key].answer(number)
    return answers


def commit_alone(item: Append, partition: Partition | VolatilePartition) -> HootError | None:
    """`commit` of one batch of the partition's own epoch, in fewer steps: who waits for it waits for nothing else.

    Fenced, too, where it may have been in time: to know that takes waiting for the newer owner.
    """
    durable = item.durability == "fsync"
    try:
        partition.write((item,), synced=durable)
        if durable:
            partition.sync()
        partition.confirm(asking=False)
    except HootError as error:
        return error
    return None
