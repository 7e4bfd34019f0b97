"""The folder of a queue's archive as the job that grows it sees it: one job at a time, and files that come in one step.

    queue=orders/.lock       held by the job that is at work (flock: gone with its process, however that ends)
    queue=orders/.writing/   files that are being written; whatever is there when a job begins is a dead one's

A file gets its name when it is whole, checked and on the disk, and counts from when the partition's persistence info
has it. One that a killed job named and did not record is taken up by the next, or hidden where it does not fit.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from delivery.errors import ArchiveRefused, ArchiveUnreadable
from delivery.model import ArchivedRange
from delivery.storage.archive.files import Reader, checksum
from delivery.storage.archive.names import HIDDEN, SUFFIX, Named, named, path_of, queue_folder

WRITING = ".writing"


@contextmanager
def refusing(doing: str) -> Iterator[None]:
    """OSErrors as ArchiveRefused."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
        raise ArchiveRefused(f"cannot {doing}: {reason}") from error


class ArchiveFolder:
    """The folder of one queue. Blocking."""

    def __init__(self, folder: Path, queue: str, generation: str) -> None:
        self.folder, self.queue, self.generation = folder, queue, generation
        self._place = queue_folder(folder, queue)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """For this job alone, made where it is not there, and cleaned. Raises ArchiveRefused."""
        with refusing(f"use {self.folder} as an archive"):
            (self._place / WRITING).mkdir(parents=True, exist_ok=True)
            lock = os.open(self._place / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ArchiveRefused(f"another job archives queue {self.queue!r} to {self.folder} now") from None
            with refusing(f"clean {self._place / WRITING}"):
                for left in (self._place / WRITING).iterdir():
                    left.unlink()
                _sync(self._place)
            yield
        finally:
            os.close(lock)

    def unrecorded(self, recorded: dict[int, tuple[ArchivedRange, ...]]) -> dict[int, list[ArchivedRange]]:
        """Files of a killed job that go on where the partition's record ends; others without a record are hidden.

        Raises ArchiveRefused.
        """
        found: dict[int, list[ArchivedRange]] = {partition: [] for partition in recorded}
        with refusing(f"look through {self._place}"):
            for path, name, partition in sorted(self._files(), key=lambda one: one[1].first_id):
                if name.generation != self.generation or partition not in recorded:
                    continue
                known = [*recorded[partition], *found[partition]]
                if any(one.first_id == name.first_id and one.crc == name.crc for one in recorded[partition]):
                    continue
                made = _described(path, name, known[-1].until if known else 0)
                if made is None:
                    os.replace(path, path.with_name(HIDDEN + path.name))
                else:
                    found[partition].append(made)
        return found

    def bring_in(self, partition: int, written: Sequence[tuple[str, ArchivedRange]]) -> None:
        """Give files that were written under these names theirs, for good. Raises ArchiveRefused."""
        with refusing(f"add files to {self._place}"):
            for temporary, file in written:
                path = path_of(self.folder, self.queue, self.generation, partition, file)
                path.parent.mkdir(parents=True, exist_ok=True)
                os.replace(self._place / WRITING / temporary, path)
                for folder in (path.parent, path.parent.parent, self._place):
                    _sync(folder)

    def _files(self) -> Iterator[tuple[Path, Named, int]]:
        for path in self._place.glob(f"date=*/partition=*/*{SUFFIX}"):
            name, number = named(path.name), path.parent.name.removeprefix("partition=")
            if name is not None and number.isdecimal():
                yield path, name, int(number)


def temporary(folder: Path, queue: str) -> Path:
    """A new name for a file that is to be written. Raises ArchiveRefused where the folder is not the job's."""
    place = queue_folder(folder, queue) / WRITING
    if not place.is_dir():
        raise ArchiveRefused(
            f"{folder} is not the archive's folder on this machine: it must be on a file system that the job, its"
            " executors and the region hosts share"
        )
    return place / f"{secrets.token_hex(8)}{SUFFIX}"


def _described(path: Path, name: Named, end: int) -> ArchivedRange | None:
    """The range of a file that goes on behind `end`; None when it does not, or is damaged."""
    if name.first_id <= end:
        return None
    try:
        reader = Reader(path)
        about = reader.about
        reader.close()
        size, crc = checksum(path)
        fits = int(about["after"]) <= end and crc == name.crc
        return ArchivedRange(name.first_id, name.until, int(about["messages"]), size, crc) if fits else None
    except (ArchiveUnreadable, KeyError, ValueError):
        return None


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
