"""What the catalog's parts share: settling writes in doubt, decoding, and errors that tell what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from delivery.errors import BadVersion, CorruptRecord, UnknownQueue
from delivery.metastore import records
from delivery.metastore.ops import InDoubt, Op, Refused
from delivery.metastore.znodes import ZNodes
from delivery.model import PARTITIONS_MAX, check_partition, near_names

ATTEMPTS: Final = 8
"""How often a compare-and-set is tried against others before the caller is told."""

R = TypeVar("R", bound=msgspec.Struct)


class Access:
    """Base of the catalog's parts. Blocking; as thread-safe as the znodes underneath."""

    def __init__(self, zk: ZNodes) -> None:
        self._zk = zk

    def _apply(self, ops: Sequence[Op], path: str, value: bytes) -> Refused | None:
        """`multi`, with an answer that got lost settled by looking: nobody else writes this very value to `path`."""
        try:
            return self._zk.multi(ops)
        except InDoubt:
            found = self._zk.get(path)
            if found is None or found[0] != value:
                raise
            return None

    def _get(self, path: str, kind: type[R]) -> R | None:
        found = self._zk.get(path)
        return None if found is None else records.decode(found[0], kind, path)

    def _get_many(self, paths: Sequence[str], kind: type[R]) -> list[R | None]:
        """Per path its record, None for those that went away since they were listed."""
        found = self._zk.get_many(paths)
        return [one and records.decode(one[0], kind, path) for path, one in zip(paths, found, strict=True)]

    def _names(self, folder: str, queue: str) -> list[str]:
        """The names in a folder of a queue, sorted. Raises UnknownQueue."""
        names = self._zk.children(folder)
        if names is None:
            raise self._unknown_queue(queue)
        return names

    def _partitions(self, folder: str, names: Sequence[str]) -> list[int]:
        """Names of partitions as numbers. Raises CorruptRecord on a foreign name."""
        for name in names:
            if not (len(name) == 5 and name.isdecimal() and name.isascii() and int(name) < PARTITIONS_MAX):
                raise CorruptRecord(f"{folder}/{name} is not Hoot's: partitions have names of five digits")
        return [int(name) for name in names]

    def _unknown_queue(self, name: str) -> UnknownQueue:
        near = near_names(name, self._zk.children(records.QUEUES) or ())
        hint = f"did you mean {' or '.join(near)}?" if near else f"create it with `hoot queue create {name}`"
        return UnknownQueue(f"there is no queue {name!r}: {hint}")


def crowded(what: str) -> BadVersion:
    """Others changed `what` under us, time and again."""
    return BadVersion(f"{what} is being changed by others at this moment; try again")


def checked_partition(queue: str, partition: int) -> int:
    """`partition` if any queue can have it. Raises UnknownPartition."""
    return check_partition(partition, PARTITIONS_MAX, queue)
