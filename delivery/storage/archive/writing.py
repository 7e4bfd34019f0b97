"""Writing one file of an archive under a name that nobody looks for, and checking it before it gets its own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow as pa

from delivery.batch import Header
from delivery.errors import ArchiveRefused
from delivery.model import ArchivedRange
from delivery.storage.archive.files import Writer, check, checksum
from delivery.storage.archive.folder import refusing, temporary


class Stretch(msgspec.Struct, frozen=True):
    """What of a partition becomes a file: the batches that begin above `after` and up to `until`."""

    queue: str
    generation: str
    partition: int
    after: int
    until: int
    messages: int = 0
    """About how many."""


class Written(msgspec.Struct, frozen=True):
    """A file that is whole and on the disk, and has no name yet."""

    partition: int
    temporary: str
    file: ArchivedRange
    last_id: int
    bytes: int
    """Of the batches."""


def write(folder: Path, stretch: Stretch, batches: Iterable[tuple[Header, bytes]]) -> Written | None:
    """Write the batches of a stretch, read them again and compare; None when there are none.

    Raises ArchiveRefused, ArchiveUnreadable when what is read is not what was written, and what the batches raise.
    """
    waiting = iter(batches)
    first = next(waiting, None)
    if first is None:
        return None
    path = temporary(folder, stretch.queue)
    with refusing(f"write to {folder}"):
        try:
            writer = Writer(path)
            writer.add(first[1], first[0])
            for header, data in waiting:
                writer.add(data, header)
            until = max(stretch.until, writer.last_id)
            writer.close({**msgspec.structs.asdict(stretch), "until": until, "messages": writer.messages})
        except pa.ArrowException as error:
            raise ArchiveRefused(f"cannot write to {folder}: {str(error)[:200]}") from error
        with path.open("rb") as file:
            os.fsync(file.fileno())
        check(path, writer.messages, writer.digest)
        size, crc = checksum(path)
    archived = ArchivedRange(writer.first_id, until, writer.messages, size, crc)
    return Written(stretch.partition, path.name, archived, writer.last_id, writer.bytes)
