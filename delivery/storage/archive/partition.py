"""What is archived of one partition: its batches in order, and how many messages lie between two ids."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from delivery.batch import Header
from delivery.batch.select import Refuses, dictionary_in
from delivery.errors import ArchiveUnreadable
from delivery.model import ArchivedRange
from delivery.storage.archive.names import path_of
from delivery.storage.base import NOTHING, Amount, Chunk, PartitionKey

if TYPE_CHECKING:
    from delivery.storage.archive.files import Group, Reader

OPEN_FILES: Final = 64
DECODED_GROUPS: Final = 8
"""Of some 4 MiB each: one read gives less than a row group, and the next ones go on in it."""

Batches = list[tuple[Header, bytes]]
_K = TypeVar("_K")
_V = TypeVar("_V")


class Files:
    """The files of archives that are open, and what was decoded of them last; for any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._readers: OrderedDict[Path, tuple[Reader, Lock]] = OrderedDict()
        self._decoded: OrderedDict[tuple[Path, int], Batches] = OrderedDict()

    def groups(self, path: Path) -> list[Group]:
        """The row groups of a file. Raises ArchiveUnreadable."""
        return self._open(path)[0].groups

    def batches(self, path: Path, group: int) -> Batches:
        """The batches of a row group. Raises ArchiveUnreadable."""
        with self._lock:
            if (found := self._decoded.get((path, group))) is not None:
                self._decoded.move_to_end((path, group))
                return found
        reader, turn = self._open(path)
        with turn:
            found = reader.batches(group)
        with self._lock:
            _keep(self._decoded, (path, group), found, DECODED_GROUPS)
        return found

    def _open(self, path: Path) -> tuple[Reader, Lock]:
        with self._lock:
            if (found := self._readers.get(path)) is not None:
                self._readers.move_to_end(path)
                return found
        made = _reader()(path), Lock()
        with self._lock:
            _keep(self._readers, path, made, OPEN_FILES)
        return made


class ArchivedPartition:
    """The files of one partition's archive, as they were recorded; for any thread."""

    def __init__(self, files: Files, folder: Path, key: PartitionKey, ranges: tuple[ArchivedRange, ...]) -> None:
        self.folder, self.ranges = folder, ranges
        self._files, self._key = files, key
        self._below = (0, 0, 0)

    @property
    def first_id(self) -> int:
        """The first id in it."""
        return self.ranges[0].first_id

    @property
    def until(self) -> int:
        """All that the partition held up to here is in it, but for what retention dropped before."""
        return self.ranges[-1].until

    def read(self, after: int, below: int, bytes_max: int, refuses: Refuses | None) -> Chunk | None:
        """The next whole batches with an id above `after` that begin below `below`; None when there are none.

        As `MessageStore.read` otherwise. Raises ArchiveUnreadable.
        """
        for one in self.ranges[bisect_right(self.ranges, after, key=_until) :]:
            if one.first_id >= below:
                break
            path = self._path(one)
            groups = self._files.groups(path)
            for number in range(bisect_right(groups, after, key=_last_id), len(groups)):
                found = [
                    (header, data)
                    for header, data in self._files.batches(path, number)
                    if header.last_id > after and header.base_id < below
                ]
                if found:
                    return _chunk(found, bytes_max, refuses)
        return None

    def measure(self, after: int, until: int) -> Amount:
        """What has an id above `after` and up to `until`, by the bytes of the files. Raises ArchiveUnreadable."""
        return self._amount(until) - self._amount(after) if until > after else NOTHING

    def below(self, message_id: int) -> tuple[int, int]:
        """About how many messages have an id below `message_id`, and the bytes of the files with such.

        Where a file cannot be read, its messages count whole: that is told to whoever reads them.
        """
        if self._below[0] != message_id:
            before = [one for one in self.ranges if one.first_id < message_id]
            try:
                messages = self._rank(message_id - 1)
            except ArchiveUnreadable:
                messages = sum(one.messages for one in before)
            self._below = (message_id, messages, sum(one.bytes for one in before))
        return self._below[1:]

    def _amount(self, message_id: int) -> Amount:
        """What has this id or a lower one; of a file that it cuts as much as of its messages."""
        rank, place = self._rank(message_id), bisect_right(self.ranges, message_id, key=_until)
        size, before = sum(one.bytes for one in self.ranges[:place]), sum(one.messages for one in self.ranges[:place])
        if rank > before:
            size += self.ranges[place].bytes * (rank - before) // self.ranges[place].messages
        return Amount(rank, size)

    def _rank(self, message_id: int) -> int:
        """How many messages have this id or a lower one."""
        place = bisect_right(self.ranges, message_id, key=_until)
        rank = sum(one.messages for one in self.ranges[:place])
        if place == len(self.ranges) or message_id < self.ranges[place].first_id:
            return rank
        path = self._path(self.ranges[place])
        groups = self._files.groups(path)
        number = bisect_right(groups, message_id, key=_last_id)
        rank += sum(group.messages for group in groups[:number])
        if number == len(groups) or message_id < groups[number].first_id:
            return rank
        return rank + sum(header.shown_up_to(message_id) for header, _ in self._files.batches(path, number))

    def _path(self, one: ArchivedRange) -> Path:
        return path_of(self.folder, self._key.queue, self._key.generation, self._key.partition, one)


def _chunk(found: Batches, bytes_max: int, refuses: Refuses | None) -> Chunk:
    taken, room = 0, bytes_max
    for _, data in found:
        room -= len(data)
        if taken and room < 0:
            break
        taken += 1
    last_id = found[taken - 1][0].last_id
    kept = [
        (header, data)
        for header, data in found[:taken]
        if refuses is None or not refuses(header, dictionary_in(header, data))
    ]
    covered = last_id if len(kept) < taken else None
    return Chunk(b"".join(data for _, data in kept), tuple(header for header, _ in kept), covered)


def _keep(kept: OrderedDict[_K, _V], key: _K, value: _V, count: int) -> None:
    """Keep the newest; what is not kept is closed when its last reader lets go."""
    kept[key] = value
    while len(kept) > count:
        kept.popitem(last=False)


def _until(one: ArchivedRange) -> int:
    return one.until


def _last_id(group: Group) -> int:
    return group.last_id


def _reader() -> Callable[[Path], Reader]:
    try:
        from delivery.storage.archive.files import Reader
    except ModuleNotFoundError as error:
        raise ArchiveUnreadable(
            f"these messages are in the queue's archive, and to read it this host needs {error.name}: install it with"
            " pip install 'hoot[archive]'"
        ) from None
    return Reader


def same(one: ArchivedPartition | None, folder: Path, ranges: Sequence[ArchivedRange]) -> bool:
    """Whether a partition's archive is the one that is known."""
    return one is not None and (one.folder, one.ranges) == (folder, tuple(ranges))
