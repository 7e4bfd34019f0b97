"""One segment: its name, its extent, its open files."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Final

from delivery.storage.log.index import Extent, Index, read_index

CLOSED_FILES_MAX: Final = 256
"""Closed segments kept open for reading, over all partitions of a store; an index in memory comes with each."""
_STEM: Final = re.compile(r"(\d{10})-(\d{20})", re.ASCII)


class LogFile:
    """An open segment file. Closed when the last one who uses it lets go, so no reader meets a reused descriptor."""

    __slots__ = ("fd", "index")

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        """Raises OSError."""
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        self.index: Index | None = None

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)


class Segment:
    """A segment of one partition. Only its writer moves `extent`, in one assignment; readers take it once."""

    __slots__ = ("base_id", "epoch", "extent", "file", "folder", "index")

    def __init__(self, folder: Path, epoch: int, base_id: int, extent: Extent) -> None:
        self.folder, self.epoch, self.base_id, self.extent = folder, epoch, base_id, extent
        self.file: LogFile | None = None
        """Set while the segment is open for appends."""
        self.index: Index | None = None
        """The same; the index of a closed segment is in its file."""

    @property
    def log_path(self) -> Path:
        """The file with the batches."""
        return self.folder / f"{self.epoch:010}-{self.base_id:020}.log"

    @property
    def index_path(self) -> Path:
        """The file that closes the segment."""
        return self.folder / f"{self.epoch:010}-{self.base_id:020}.index"

    def last_id(self) -> int:
        """The highest id; of an empty segment the highest of the one before."""
        return self.extent.last_id


def find_segments(folder: Path) -> tuple[dict[tuple[int, int], os.stat_result], set[tuple[int, int]], list[Path]]:
    """What lies in a partition's folder: the log files by (epoch, base id), the indexes, and abandoned drafts."""
    logs: dict[tuple[int, int], os.stat_result] = {}
    indexes: set[tuple[int, int]] = set()
    drafts = []
    with os.scandir(folder) as entries:
        for entry in entries:
            stem, _, kind = entry.name.partition(".")
            if kind == "index.tmp":
                drafts.append(Path(entry.path))
            elif (parts := _STEM.fullmatch(stem)) and kind == "log":
                logs[int(parts[1]), int(parts[2])] = entry.stat()
            elif parts and kind == "index":
                indexes.add((int(parts[1]), int(parts[2])))
    return logs, indexes, drafts


class ClosedFiles:
    """The closed segments that are open for reading, least recently used out. Thread-safe."""

    def __init__(self, files_max: int = CLOSED_FILES_MAX) -> None:
        self._files_max = files_max
        self._files: OrderedDict[Path, LogFile] = OrderedDict()
        self._lock = Lock()

    def open(self, segment: Segment) -> LogFile:
        """The file of a segment, closed or open for appends. Raises OSError."""
        if (appended := segment.file) is not None:
            return appended
        path = segment.log_path
        with self._lock:
            if (file := self._files.get(path)) is not None:
                self._files.move_to_end(path)
                return file
            file = self._files[path] = LogFile(path)
            if len(self._files) > self._files_max:
                self._files.popitem(last=False)
            return file

    def index(self, segment: Segment) -> Index:
        """The index of a segment. Raises OSError, CorruptRecord."""
        if (appended := segment.index) is not None:
            return appended
        file = self.open(segment)
        if file.index is None:
            file.index, _ = read_index(segment.index_path)
        return file.index

    def forget(self, folder: Path) -> None:
        """Close the files of a partition that is not served any more."""
        with self._lock:
            for path in [path for path in self._files if path.parent == folder]:
                del self._files[path]
