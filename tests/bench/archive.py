"""How fast one core makes archive files, and how much of an archive a range of time reads.

    python -m tests.bench.archive [MEGABYTES] [BODY_BYTES]

Batches of 500 messages over ten hours, in files as `hoot spark archive` makes them: written, flushed, read again and
compared. Then 1 % of the time is read from all of it, once by pyarrow's data sets and once by a region host's reader.
Prints one JSON line.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow.dataset as ds

from delivery.batch import Header, encode, peek, stamp
from delivery.ids import first_id_at
from delivery.model import ArchivedRange
from delivery.storage.archive.folder import ArchiveFolder
from delivery.storage.archive.partition import ArchivedPartition, Files
from delivery.storage.archive.writing import Stretch, write
from delivery.storage.base import PartitionKey

START_MS = 1_732_150_000_000
HOURS_MS = 10 * 3_600_000
BATCH = 500
FILES = 4
SHARE = "1 % of the time reads, % of the bytes"


def batches(megabytes: int, body_bytes: int) -> list[tuple[Header, bytes]]:
    """Bodies of which half is noise, spread evenly."""
    random, found = Random(1), []
    count = megabytes * 1_000_000 // (BATCH * body_bytes)
    for number in range(count):
        rows = [
            (
                random.randbytes(body_bytes // 2) + b"x" * (body_bytes - body_bytes // 2),
                b"k%d" % (at % 50),
                "topic",
                b"",
            )
            for at in range(BATCH)
        ]
        data = encode(rows, 0, 7, number)
        header = peek(data)
        assert header is not None
        found.append(stamp(header, data, first_id_at(START_MS + number * HOURS_MS // count), 1))
    return found


def read_bytes() -> int:
    """What this process has read so far, from wherever."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(lines[0].partition(":")[2])


def measure(megabytes: int, body_bytes: int) -> dict[str, float]:
    """What is told, by its names."""
    made = batches(megabytes, body_bytes)
    size = sum(len(data) for _, data in made)
    key = PartitionKey("bench", "g", 0)
    with tempfile.TemporaryDirectory() as name:
        folder, ranges = Path(name), list[ArchivedRange]()
        place = ArchiveFolder(folder, key.queue, key.generation)
        began, busy = time.perf_counter(), time.process_time()
        with place.taken():
            for part in range(FILES):
                share = made[len(made) * part // FILES : len(made) * (part + 1) // FILES]
                last_id = share[-1][0].last_id
                written = write(folder, Stretch(key.queue, key.generation, 0, 0, last_id), iter(share))
                assert written is not None
                place.bring_in(0, [(written.temporary, written.file)])
                ranges.append(written.file)
        seconds, cpu = time.perf_counter() - began, time.process_time() - busy
        total = sum(one.bytes for one in ranges)
        assert sum(one.messages for one in ranges) == sum(header.count for header, _ in made), "all is archived"
        return {
            "MB": round(size / 1e6), "body bytes": body_bytes, "MB/s": round(size / seconds / 1e6, 1),
            "MB/s of processor time": round(size / cpu / 1e6, 1), "archive MB": round(total / 1e6, 1),
            SHARE: round(100 * by_pyarrow(folder) / total, 2),
            "by a host": round(100 * by_host(folder, key, ranges) / total, 2),
        }  # fmt: skip


def by_pyarrow(folder: Path) -> int:
    """Bytes read for 1 % of the time by a data set over the folder."""
    low, high = (datetime.fromtimestamp((START_MS + at) / 1000, UTC) for at in (HOURS_MS // 2, HOURS_MS * 51 // 100))
    times = ds.field("timestamp")
    before = read_bytes()
    table = ds.dataset(folder, partitioning="hive").to_table(filter=(times >= low) & (times < high))
    assert table.num_rows
    return read_bytes() - before


def by_host(folder: Path, key: PartitionKey, ranges: list[ArchivedRange]) -> int:
    """The same by the reader of a region host."""
    archive = ArchivedPartition(Files(), folder, key, tuple(ranges))
    after, until = (first_id_at(START_MS + at) - 1 for at in (HOURS_MS // 2, HOURS_MS * 51 // 100))
    before = read_bytes()
    for last_id in ids(archive, after):
        if last_id >= until:
            break
    return read_bytes() - before


def ids(archive: ArchivedPartition, after: int) -> Iterator[int]:
    """Where each chunk behind an id ends."""
    while (chunk := archive.read(after, 2**63 - 1, 1 << 20, None)) is not None:
        after = chunk.last_id
        yield after


if __name__ == "__main__":
    os.nice(5)
    given = [int(one) for one in sys.argv[1:]]
    print(json.dumps(measure(*given, *(512, 1000)[len(given) :])))
