"""The writing end of a partition: the open segment, and what happens when a write, a flush or the epoch fails."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from delivery.errors import Fenced, HootError, StorageUnavailable
from delivery.storage.base import Append, PartitionKey
from delivery.storage.log.disk import Disk, locked
from delivery.storage.log.epochs import Epochs
from delivery.storage.log.folder import DataFolder
from delivery.storage.log.index import Extent, Index, encode, read_trailer
from delivery.storage.log.segment import LogFile, Segment
from delivery.storage.producers import Producers

RESERVING_BYTES: Final = 64 * 1024
"""For a larger group a flush takes so long anyway that nothing is gained."""
RESERVED_BYTES_MIN: Final = 32 * 1024
RESERVED_BYTES_MAX: Final = 1024 * 1024
_log = logging.getLogger(__name__)


class Writer:
    """Appends to one partition under one epoch, by one thread at a time: `write`, `sync` where asked for, `confirm`.

    The first error breaks the writer: it accepts nothing more, and only opening the partition anew mends it.
    """

    def __init__(self, key: PartitionKey, epoch: int, data: DataFolder, disk: Disk, epochs: Epochs) -> None:
        self.key, self.epoch = key, epoch
        self.folder: Path = data.partition(key)
        self.active: Segment | None = None
        self.last_id = 0
        self.producers = Producers()
        self.broken: HootError | None = None
        self._data, self._disk, self._epochs = data, disk, epochs
        self._pending: Sequence[Append] = ()
        self._flushed = False
        self._synced_end = 0
        self._reserved = 0
        """Up to where the open segment's file has zeros for what comes next."""

    @property
    def stands(self) -> bool:
        """Whether its epoch is the newest one, as of now, and nothing has broken it."""
        return self.broken is None and self._epochs.current(self.key.partition) == self.epoch

    def check(self) -> None:
        """Raise what broke the writer, if anything did."""
        if self.broken is not None:
            raise type(self.broken)(self.broken.message)

    def start(self, base_id: int) -> Segment:
        """Begin a new segment whose first batch is to have `base_id`."""
        segment = Segment(self.folder, self.epoch, base_id, Extent(0, self.last_id, 0))
        with _breaking(self, "start a segment"):
            with self.standing():
                segment.file = LogFile(segment.log_path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            segment.index = Index()
            self._data.sync_places(self.folder)
        self.active, self._synced_end, self._reserved = segment, 0, 0
        return segment

    def write(self, batches: Sequence[Append], *, synced: bool = False) -> None:
        """Put the batches behind what is published. Nobody sees them before `confirm`.

        With `synced` they are brought to the disk in the same system call, if all before them are there: a thread that
        returns from one waits for its turn among the threads of a busy host.
        """
        segment = self.active
        assert segment is not None
        assert segment.file is not None
        self._pending, self._flushed = batches, False
        synced = synced and self._synced_end == segment.extent.end
        parts = [item.batch for item in batches]
        if synced:
            self._reserve(segment.file, segment.extent.end, sum(map(len, parts)))
        with _breaking(self, "write"):
            self._disk.write(segment.file.fd, parts, segment.extent.end, synced=synced)
        self._flushed = synced

    def sync(self) -> None:
        """Bring what was written to the disk, if it is not there. A failure is never tried again."""
        if self._flushed:
            return
        assert self.active is not None
        assert self.active.file is not None
        with _breaking(self, "flush"):
            self._disk.sync(self.active.file.fd)
        self._flushed = True

    def sync_ahead(self) -> None:
        """Bring to the disk what is published, so that `seal` has less to wait for. For any thread, at any time.

        Through a file of its own: the system tells each open file of a failure, so the next `sync` or `seal` meets it.
        """
        segment = self.active
        if segment is not None and self._synced_end < segment.extent.end:
            with suppress(OSError):
                file = LogFile(segment.log_path)
                self._disk.sync(file.fd)

    def confirm(self, *, asking: bool = True) -> int:
        """Publish what was written if the epoch stands: how many of the batches are stored for good.

        When a newer epoch came in between, its owner's seal tells which were in time; the writer is fenced after that.
        Without `asking`, for that owner may still be at it, Fenced is raised: nobody knows then.
        """
        batches = self._pending
        if self._epochs.current(self.key.partition) == self.epoch:
            self._publish(batches)
            return len(batches)
        if not asking:
            self.broken = self._fenced()
            raise self.broken
        with _breaking(self, "read the seal"):
            stored = self._count_sealed(batches)
        self._publish(batches[:stored])
        self.broken = self._fenced()
        return stored

    def seal(self) -> None:
        """Close the open segment: its data and then its index on the disk."""
        segment = self.active
        if segment is None or segment.file is None or segment.index is None:
            return
        with _breaking(self, "close a segment"):
            if self._synced_end < segment.extent.end:
                self._disk.sync(segment.file.fd)
            with self.standing():
                if os.fstat(segment.file.fd).st_size > segment.extent.end:
                    os.ftruncate(segment.file.fd, segment.extent.end)
                content = encode(segment.index, self.producers.snapshot(), segment.extent)
                self._disk.write_file(segment.index_path, content)
        self.active = segment.file = segment.index = None

    def close(self) -> None:
        """Accept nothing more. What a failed write may have left is cut off. Raises StorageUnavailable, OSError."""
        if self._pending:
            self._cut_back()
        self.broken = StorageUnavailable(f"{self.key} was closed here")
        self.active = None

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Hold the partition's lock with the epoch standing. Raises Fenced, StorageUnavailable, OSError.

        Who is fenced does not even take the lock: it might be stopped again while holding it.
        """
        self._check_standing()
        with locked(self.folder / "lock"):
            self._check_standing()
            yield

    def _reserve(self, file: LogFile, start: int, size: int) -> None:
        """Have zeros behind what is written next, if that is little: a flush takes a third less time then.

        The more the segment holds, the more is reserved: a partition with few messages shall take little of the disk.
        """
        if size > RESERVING_BYTES or start + size <= self._reserved:
            return
        wanted = start + size + min(max(start, RESERVED_BYTES_MIN), RESERVED_BYTES_MAX)
        if self._disk.reserve(file.fd, start, wanted):
            self._reserved = wanted

    def _publish(self, batches: Sequence[Append]) -> None:
        segment = self.active
        assert segment is not None
        assert segment.index is not None
        end, _, messages = segment.extent
        for item in batches:
            header = item.header
            segment.index.note(header.base_id, end, messages)
            self.producers.note(header)
            end += header.length
            messages += header.shown
            self.last_id = header.last_id
        segment.extent = Extent(end, self.last_id, messages)
        self._pending = ()
        if self._flushed:
            self._synced_end = end
            self._epochs.note(self.key.partition, segment.base_id, end)

    def _count_sealed(self, batches: Sequence[Append]) -> int:
        """How many of the batches the newer owner's seal includes. Raises StorageUnavailable while that is unknown."""
        segment = self.active
        assert segment is not None
        if not self.folder.exists():
            return 0
        with locked(self.folder / "lock"):
            if not segment.index_path.exists():
                if not segment.extent.end and not segment.log_path.exists():
                    return 0  # The newer owner found no whole batch in it and removed it.
                raise StorageUnavailable(
                    f"no seal of a newer epoch of {self.key} tells what counts of this one's writes"
                )
            room = read_trailer(segment.index_path).extent.end - segment.extent.end
        stored = 0
        for item in batches:
            room -= item.header.length
            stored += room >= 0
        return stored

    def _cut_back(self) -> None:
        """Take back what was written and not published, so that no later owner finds what may not be on the disk."""
        if self.active is not None and self.active.file is not None:
            with self.standing():
                os.ftruncate(self.active.file.fd, self.active.extent.end)
        self._pending = ()

    def fail(self, doing: str, error: OSError | StorageUnavailable) -> StorageUnavailable:
        """Accept nothing more, for this failed while it was `doing` that; the error to raise."""
        reason = error.message if isinstance(error, StorageUnavailable) else error.strerror or str(error)
        self.broken = StorageUnavailable(f"cannot {doing} for {self.key}: {reason}")
        _log.error("%s; it accepts nothing more until it is opened anew", self.broken.message)
        self._try_to_cut_back()
        return self.broken

    def _try_to_cut_back(self) -> None:
        try:
            self._cut_back()
        except (OSError, HootError) as error:
            _log.warning("%s: an unfinished write stays until it is opened anew: %s", self.key, error)

    def _check_standing(self) -> None:
        if self._epochs.current(self.key.partition) != self.epoch:
            raise self._fenced()

    def _fenced(self) -> Fenced:
        newer = self._epochs.current(self.key.partition)
        return Fenced(f"{self.key} has a newer epoch than {self.epoch}: {newer}")


class _breaking:  # noqa: N801 - it reads as the statement that it is
    """What fails inside breaks the writer. A class, for a generator takes five times as long."""

    __slots__ = ("_doing", "_writer")

    def __init__(self, writer: Writer, doing: str) -> None:
        self._writer, self._doing = writer, doing

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Fenced):
            self._writer.broken = error
        elif isinstance(error, OSError | StorageUnavailable):
            raise self._writer.fail(self._doing, error) from error
