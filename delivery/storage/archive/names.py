"""Where the files of an archive are.

    FOLDER/queue=orders/date=2026-11-21/partition=3/<generation>-<first id>-<until>-<checksum>.parquet

The date is that of the first id, in UTC. A name that begins with a dot is not part of the archive: Spark and every
other reader of partitioned folders leaves it out. The checksum in the name makes two files of one name the same file.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from delivery.ids import first_id_at
from delivery.model import ArchivedRange

SUFFIX: Final = ".parquet"
HIDDEN: Final = "."
"""How the names of what is being written begin."""

_NAME: Final = re.compile(r"([^-]+)-(\d{19})-(\d{19})-([0-9a-f]{8})\.parquet\Z", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Named(NamedTuple):
    """What the name of a file tells."""

    generation: str
    first_id: int
    until: int
    crc: int


def queue_folder(folder: Path, queue: str) -> Path:
    """Where all of a queue is."""
    return folder / f"queue={queue}"


def day_folder(folder: Path, queue: str, partition: int, first_id: int) -> Path:
    """Where the file that begins with this id is."""
    day = _EPOCH + timedelta(milliseconds=first_id >> 15)
    return queue_folder(folder, queue) / f"date={day:%Y-%m-%d}" / f"partition={partition}"


def next_day(message_id: int) -> int:
    """The first id of the day after that of `message_id`."""
    day_ms = 86_400_000
    return first_id_at(((message_id >> 15) // day_ms + 1) * day_ms)


def path_of(folder: Path, queue: str, generation: str, partition: int, file: ArchivedRange) -> Path:
    """A file of the archive."""
    name = f"{generation}-{file.first_id:019}-{file.until:019}-{file.crc:08x}{SUFFIX}"
    return day_folder(folder, queue, partition, file.first_id) / name


def named(name: str) -> Named | None:
    """What a file's name tells, None when it is none of an archive."""
    found = _NAME.match(name)
    return None if found is None else Named(found[1], int(found[2]), int(found[3]), int(found[4], 16))
