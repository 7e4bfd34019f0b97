"""The few things that the log does to a disk, in one place: tests stand a failing disk in for it.

An error of `write` or `sync` is final for the file: after a failed fsync the kernel may call the lost pages clean, so
that a second fsync reports success for bytes that are nowhere (Rebello et al., ATC '20). Nothing here tries again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from delivery.errors import StorageUnavailable

IOV_MAX: Final = os.sysconf("SC_IOV_MAX")
LOCK_SECONDS: Final = 5.0
"""How long to wait for another process at a partition's lock: it is held for one recovery or one roll at most.

A process that is stopped (SIGSTOP, a debugger) in the middle of one holds it for as long as it is stopped, and until
then nobody may take the partition over: what it would do next could not be told from damage.
"""
_LOCK_RETRY_SECONDS: Final = 0.005


class Disk:
    """Writes and flushes. Stateless; safe for any number of threads; raises OSError as the system does."""

    def write(self, fd: int, parts: Sequence[bytes], offset: int, *, synced: bool = False) -> None:
        """Write `parts` one after another at `offset`, all of them or OSError.

        With `synced` they are on the disk then, and what is needed to find them; not what was written before.
        """
        waiting: list[bytes | memoryview] = list(parts)
        at = 0
        while at < len(waiting):
            written = self.write_some(fd, waiting[at : at + IOV_MAX], offset, synced=synced)
            if written <= 0:
                raise OSError(errno.EIO, "the system wrote nothing and gave no reason")
            offset += written
            while at < len(waiting) and written >= len(waiting[at]):
                written -= len(waiting[at])
                at += 1
            if written:
                waiting[at] = memoryview(waiting[at])[written:]

    def write_some(self, fd: int, parts: Sequence[bytes | memoryview], offset: int, *, synced: bool = False) -> int:
        """One system call, where the system knows how; may write less than it was given."""
        if synced:
            try:
                return os.pwritev(fd, parts, offset, os.RWF_DSYNC)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:  # as gVisor says
                    raise
        written = os.pwritev(fd, parts, offset)
        if synced:
            self.sync(fd)
        return written

    def sync(self, fd: int) -> None:
        """Bring a file's data, and what is needed to find it, to the disk."""
        os.fdatasync(fd)

    def reserve(self, fd: int, start: int, end: int) -> bool:
        """Have the file reach to `end`, with zeros from its end on; False where the system does not.

        Then a synced write there changes nothing but the bytes: the file system has nothing to write down about it.
        """
        try:
            os.posix_fallocate(fd, start, end - start)
        except (OSError, AttributeError):  # it is full, or knows no such thing; macOS has no such call
            return False
        return True

    def sync_folder(self, folder: Path) -> None:
        """Bring a folder's entries to the disk: without it a crash may lose a new file whose data was synced."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def write_file(self, path: Path, content: bytes) -> None:
        """Put a whole small file in place: after a crash it is there complete or not at all."""
        draft = path.with_name(path.name + ".tmp")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            self.write(fd, [content], 0)
            self.sync(fd)
        finally:
            os.close(fd)
        draft.rename(path)
        self.sync_folder(path.parent)


@contextmanager
def locked(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock file at `path` against other processes and other stores of this one.

    Raises StorageUnavailable, which says who it is, when somebody holds it for longer than `seconds`. The system frees
    it with its holder.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + seconds
        while not _try_lock(fd):
            if time.monotonic() >= deadline:
                raise StorageUnavailable(f"{_holder(fd)} has held {path.parent.name}/{path.name} for {seconds} s")
            time.sleep(_LOCK_RETRY_SECONDS)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(fd: int) -> str:
    """Who holds the lock of an open file, as far as the system says: `process 77, which is stopped,`."""
    inode = os.fstat(fd).st_ino
    try:
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines() if f":{inode} " in line]
        pid = next(int(fields[4]) for fields in held if fields[1] == "FLOCK")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError, StopIteration):
        return "another process"
    whose = f"process {pid}" if pid != os.getpid() else "another store of this process"
    return f"{whose}, which is stopped," if state in "Tt" else whose


@contextmanager
def refusals(doing: str) -> Iterator[None]:
    """Turn what the system refuses while `doing` something into StorageUnavailable."""
    try:
        yield
    except OSError as error:
        raise StorageUnavailable(f"cannot {doing}: {error.strerror or error}") from error
