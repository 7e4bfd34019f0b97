"""The data folder: its layout version and the places of queues and partitions in it."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Final

import msgspec

from delivery.errors import DataFolderError, InvalidRequest, LayoutMismatch
from delivery.model import check_name
from delivery.storage.base import PartitionKey
from delivery.storage.log.disk import Disk, locked, refusals

KIND: Final = "hoot-log"
VERSION: Final = 2


class Layout(msgspec.Struct, frozen=True):
    """The content of `layout.json`."""

    kind: str = KIND
    version: int = VERSION
    id: str = ""
    """A random word that tells this folder from others."""


class DataFolder:
    """The folder that the hosts of one machine share."""

    def __init__(self, path: Path, disk: Disk) -> None:
        """Make the folder where it is missing and check its layout version.

        Raises LayoutMismatch when it is of another version (and touches nothing), DataFolderError when it cannot be
        made, read or written.
        """
        self.path = path
        self._disk = disk
        try:
            path.mkdir(parents=True, exist_ok=True)
            self.id = self._layout().id
            (path / "queues").mkdir(exist_ok=True)
        except OSError as error:
            raise DataFolderError(f"data folder {path}: {error.strerror or error}") from error
        if not os.access(path / "queues", os.R_OK | os.W_OK | os.X_OK):
            raise DataFolderError(f"data folder {path}: no permission to write")

    def queue(self, queue: str, generation: str) -> Path:
        """The folder of one generation of a queue. Raises InvalidRequest for a name that is none."""
        check_name("queue", queue)
        if "~" in generation or "/" in generation or not generation.isprintable() or not 1 <= len(generation) <= 64:
            raise InvalidRequest(f"{generation[:60]!r} is no generation of a queue")
        return self.path / "queues" / f"{queue}~{generation}"

    def queues(self) -> list[tuple[str, str]]:
        """The queues that have a folder: name and generation. Raises StorageUnavailable."""
        with refusals("list the queues"):
            names = [place.name.partition("~") for place in (self.path / "queues").iterdir()]
        return [(queue, generation) for queue, tilde, generation in names if tilde]

    def usage(self, queue: str, generation: str) -> tuple[int, int | None]:
        """Bytes of a queue's files, and when a segment was changed last, in ms; None without any.

        Raises StorageUnavailable.
        """
        with refusals(f"look at {queue}"):
            places = [place for place in self.queue(queue, generation).rglob("*") if place.is_file()]
            files = [(place.suffix, place.stat()) for place in places]
        written = [found.st_mtime_ns // 1_000_000 for suffix, found in files if suffix == ".log"]
        return sum(found.st_size for _, found in files), max(written, default=None)

    def partition(self, key: PartitionKey) -> Path:
        """The folder of a partition."""
        return self.queue(key.queue, key.generation) / f"{key.partition:05}"

    def sync_places(self, partition: Path) -> None:
        """Bring the entries of a partition's folder and of those above it to the disk."""
        for folder in (partition, partition.parent, partition.parent.parent):
            self._disk.sync_folder(folder)

    def remove(self, queue_folder: Path) -> None:
        """Delete the folder of a queue; a missing one is fine. Raises StorageUnavailable when it cannot be."""
        with refusals(f"delete {queue_folder.name}"):
            if queue_folder.exists():
                shutil.rmtree(queue_folder)
                self._disk.sync_folder(queue_folder.parent)

    def _layout(self) -> Layout:
        place = self.path / "layout.json"
        if not place.exists():
            # Hosts may start at once, and all of them would write the same draft.
            with locked(self.path / "layout.lock"):
                if not place.exists():
                    self._disk.write_file(place, msgspec.json.encode(Layout(id=secrets.token_hex(8))))
        return _read_layout(self.path)


def check_layout(path: Path) -> None:
    """Raises LayoutMismatch for a data folder of another layout version; one without any is fine."""
    if (path / "layout.json").exists():
        _read_layout(path)


def _read_layout(path: Path) -> Layout:
    place = path / "layout.json"
    try:
        found = msgspec.json.decode(place.read_bytes(), type=Layout)
    except msgspec.MsgspecError as error:
        raise LayoutMismatch(f"{place} does not parse: {error}") from error
    if (found.kind, found.version) != (KIND, VERSION) or not found.id:
        raise LayoutMismatch(
            f"data folder {path} has layout {found.kind} {found.version}; this version of Hoot reads"
            f" {KIND} {VERSION}: start the version that wrote it, or name another folder"
        )
    return found
