"""One file of an archive: writing it batch by batch, checking what was written, and reading the same batches again.

A row is a message: `offset` (its id as a number), `timestamp`, `topic`, `key`, `value`, `headers` (the header block,
see `model.encode_headers`). The first row of each batch has the batch's 64 bytes of header in the column `batch`, so
that the batch is made again byte for byte from its rows; the payload's checksum in it is compared each time. A batch
never lies in two row groups, and rows are in the order of their ids: the statistics of `offset` and `timestamp` tell
which files and row groups a range of either needs.

A batch whose publisher packed it in another way than this program does (sections that hold nothing, topics in another
order) is packed anew: the same messages, ids and producer with other bytes.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import google_crc32c
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delivery.batch import HEADER_BYTES, Header, is_aside, open_batch, peek
from delivery.batch.arrow import pack
from delivery.errors import ArchiveUnreadable, CorruptRecord

GROUP_BYTES: Final = 4 << 20
"""Of batches in a row group: what the shortest read of a file decodes."""
_TIME: Final = pa.timestamp("us", tz="UTC")
_SCHEMA: Final = pa.schema([
    ("offset", pa.int64()), ("timestamp", _TIME), ("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary()),
    ("headers", pa.binary()), ("batch", pa.binary()),
])  # fmt: skip
_PACKED: Final = {"topic": "topic", "key": "key", "headers": "block", "value": "body"}
"""The columns that make a payload, and what `batch.arrow` calls them."""
_ABOUT: Final = "hoot."
"""How the names of what a file tells of itself begin."""
_BEYOND: Final = "beyond"
Beyond = tuple[int, int]
"""Of a row group with batches of the engine's own: the last id that one covers, and how many messages more it has than
rows; fewer where rows are none."""


class Writer:
    """Writes one file. `close` must be called; what was not closed is no Parquet file."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        settings = {"compression": "zstd", "use_dictionary": ["topic"], "write_statistics": ["offset", "timestamp"]}
        self._file = pq.ParquetWriter(
            path, _SCHEMA, **settings, store_schema=False, sorting_columns=[pq.SortingColumn(0)]
        )
        self._group: list[pa.RecordBatch] = []
        self._group_bytes = self._groups = 0
        self._beyond: dict[int, Beyond] = {}
        self.messages = 0
        self.bytes = 0
        """Of the batches."""
        self.digest = 0
        """Of the headers of all batches, whose checksums cover the payloads."""
        self.first_id = 0
        self.last_id = 0

    def add(self, data: bytes, header: Header) -> None:
        """The next batch. Raises CorruptRecord, OSError."""
        rows, raw = _rows_of(data, header)
        self._group.append(rows)
        self.messages += header.shown
        self.bytes += len(data)
        self.digest = google_crc32c.extend(self.digest, raw)
        self.first_id = self.first_id or header.base_id
        self.last_id = header.last_id
        if is_aside(header):
            more = self._beyond.get(self._groups, (0, 0))[1] + header.shown - header.count
            self._beyond[self._groups] = (header.last_id, more)
        self._group_bytes += len(data)
        if self._group_bytes >= GROUP_BYTES:
            self._flush()

    def close(self, about: Mapping[str, str | int]) -> None:
        """End the file; it tells `about` itself. Raises OSError."""
        if self._group:
            self._flush()
        told = {**about, _BEYOND: json.dumps(self._beyond)}
        self._file.add_key_value_metadata({_ABOUT + name: str(value) for name, value in told.items()})
        self._file.close()

    def _flush(self) -> None:
        self._file.write_table(pa.Table.from_batches(self._group, _SCHEMA), row_group_size=1 << 30)
        self._group, self._group_bytes, self._groups = [], 0, self._groups + 1


class Reader:
    """A file that is open for reading; by one thread at a time. `close` it."""

    def __init__(self, path: Path) -> None:
        """Raises ArchiveUnreadable when it is missing or no file of an archive."""
        self.path = path
        try:
            self._file = pq.ParquetFile(path)
            metadata = self._file.metadata
            beyond = json.loads(self.about.get(_BEYOND, "{}"))
            self.groups = [
                _group(metadata.row_group(number), *beyond.get(str(number), (0, 0)))
                for number in range(metadata.num_row_groups)
            ]
        except FileNotFoundError:
            raise ArchiveUnreadable(f"{path} is missing: bring it back, or mount the archive's folder here") from None
        except (OSError, pa.ArrowException, AttributeError, ValueError) as error:
            raise ArchiveUnreadable(f"{path} is no whole file of an archive: {str(error)[:200]}") from error

    @property
    def about(self) -> dict[str, str]:
        """What the file tells of itself."""
        found = self._file.metadata.metadata or {}
        mark = _ABOUT.encode()
        return {name[len(mark) :].decode(): found[name].decode() for name in found if name.startswith(mark)}

    def batches(self, group: int) -> list[tuple[Header, bytes]]:
        """The batches of a row group. Raises ArchiveUnreadable."""
        try:
            return list(_batches(self._file.read_row_group(group, use_threads=False)))
        except (OSError, pa.ArrowException, CorruptRecord, KeyError) as error:
            raise ArchiveUnreadable(f"{self.path} is damaged: {str(error)[:200]}") from error

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


class Group(msgspec.Struct, frozen=True):
    """A row group: the first and the last id that its batches cover, and how many messages it has."""

    first_id: int
    last_id: int
    messages: int


def check(path: Path, messages: int, digest: int) -> None:
    """Read a whole file and compare it with what was written. Raises ArchiveUnreadable."""
    reader = Reader(path)
    try:
        found, count, last_id = 0, 0, 0
        for group in range(len(reader.groups)):
            for header, data in reader.batches(group):
                found = google_crc32c.extend(found, data[:HEADER_BYTES])
                count += header.shown
                if header.base_id <= last_id:
                    raise ArchiveUnreadable(f"{path}: its batches are not in the order of their ids")
                last_id = header.last_id
    finally:
        reader.close()
    if (count, found) != (messages, digest):
        raise ArchiveUnreadable(f"{path} holds {count} messages that are not the {messages} that were written to it")


def checksum(path: Path) -> tuple[int, int]:
    """The bytes of a file, and their CRC-32C. Raises OSError."""
    crc, size = 0, 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            crc, size = google_crc32c.extend(crc, piece), size + len(piece)
    return size, crc


def _group(metadata: Any, end: int, more: int) -> Group:  # noqa: ANN401 - pyarrow has no types
    statistics = metadata.column(0).statistics
    return Group(statistics.min, max(statistics.max, end), metadata.num_rows + more)


def _rows_of(data: bytes, header: Header) -> tuple[pa.RecordBatch, bytes]:
    """The rows of a batch, and the header under which they become the batch again."""
    batch = open_batch(data, header)
    parts = batch.columns()
    topics = pa.array(parts.topics, pa.string())
    keys, values = pa.array(parts.keys, pa.binary()), pa.array(parts.bodies, pa.binary())
    blocks = pa.array(parts.blocks, pa.binary())
    packed = pack(_packable({"topic": topics, "key": keys, "headers": blocks, "value": values}), header.partition)
    raw = data[:HEADER_BYTES]
    if memoryview(packed)[HEADER_BYTES:] != memoryview(data)[HEADER_BYTES:]:
        raw = _like(header, packed).pack()
    offsets = pa.array(array("q", batch.ids()), pa.int64())
    times = pc.multiply(pc.shift_right(offsets, 15), 1000).cast(_TIME)
    marks = pa.concat_arrays([pa.array([raw], pa.binary()), pa.nulls(header.count - 1, pa.binary())])
    return pa.RecordBatch.from_arrays([offsets, times, topics, keys, values, blocks, marks], schema=_SCHEMA), raw


def _like(header: Header, packed: bytes) -> Header:
    """The header of a batch packed anew, with the stamps of the old one."""
    made = peek(packed)
    assert made is not None
    return msgspec.structs.replace(
        made, base_id=header.base_id, epoch=header.epoch, producer_id=header.producer_id,
        producer_sequence=header.producer_sequence,
    )  # fmt: skip


def _packable(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    names = list(_PACKED)
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=[_PACKED[name] for name in names])


def _batches(table: pa.Table) -> Iterator[tuple[Header, bytes]]:
    rows = table.combine_chunks().to_batches(max_chunksize=1 << 30)
    if len(rows) != 1:
        raise CorruptRecord("a row group with more bytes than can be")
    marks = rows[0]["batch"]
    starts = pc.indices_nonzero(marks.is_valid()).to_pylist()
    packable = _packable({name: rows[0][name] for name in _PACKED})
    for start, end in zip(starts, [*starts[1:], len(marks)], strict=True):
        yield _made_again(marks[start].as_py(), packable.slice(start, end - start))


def _made_again(raw: bytes, rows: pa.RecordBatch) -> tuple[Header, bytes]:
    header = peek(raw)
    if header is None:
        raise CorruptRecord("a batch header was cut short")
    packed = pack(rows, header.partition)
    made = peek(packed)
    if made is None or (made.payload_crc, made.length, made.count) != (header.payload_crc, header.length, header.count):
        raise CorruptRecord(f"the messages behind id {header.base_id} are not those that were archived")
    return header, raw + packed[HEADER_BYTES:]
