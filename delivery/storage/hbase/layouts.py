"""How the messages of a batch lie in rows: each in a row of its own, or the batch as it is in one cell.

`rows` is what a plain scan of HBase shows and filters: a row per message, its topic the qualifier, its body the value.
It costs Python per message, which `batches` does not. Heads, fencing, reading and counting are the same in both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from delivery.batch import Header, open_batch, peek
from delivery.batch.encode import Columns, assemble
from delivery.batch.layout import HEADERS, KEYS
from delivery.errors import CorruptRecord
from delivery.hbase import Cells, Row, Tables
from delivery.storage.base import Append
from delivery.storage.hbase import keys
from delivery.storage.hbase.heads import Head

PIECE_BYTES: Final = 8 * 1024 * 1024
"""HBase takes cells of 10 MiB; a larger batch goes on in a second one."""
GATHER_BYTES: Final = 4 * 1024 * 1024
"""About what a gateway gathers for one answer of a scan."""
SCAN_ROWS_MAX: Final = 2000
GET_ROWS: Final = 1000
GAP_ROWS: Final = 100
GAP_BYTES: Final = 64 * 1024
"""Of batches; what the engine keeps between the messages is no row that is counted."""


class Incomplete(CorruptRecord):
    """Not all rows of a batch are there."""


class Part(NamedTuple):
    """What may be wanted of a batch."""

    head: Head
    places: Sequence[int] | None
    """Of the messages, rising; None where that is not known, for all."""

    @property
    def is_known(self) -> bool:
        """Whether the topics of its messages are."""
        return self.places is not None

    @property
    def wanted(self) -> int:
        """How many messages."""
        return self.head.header.count if self.places is None else len(self.places)

    def rows(self) -> list[bytes]:
        """Their row keys."""
        header = self.head.header
        ids = (header.base_id + place for place in self.places or ())
        return keys.message_rows(header.partition, ids, header.epoch)


class LaidOut(Protocol):
    """One of the layouts."""

    selects: bool
    """Whether parts of a batch can be fetched."""

    def prepare(self, item: Append) -> tuple[Header, list[Row]]:
        """The header under which a batch will be read, and its rows without the head, the first message's first."""

    def load(self, tables: Tables, table: str, heads: Sequence[Head]) -> list[bytes]:
        """The batches of some heads, oldest first. Raises Incomplete, CorruptRecord."""

    def select(self, tables: Tables, table: str, parts: Sequence[Part]) -> list[bytes]:
        """What is wanted of batches, where that is known; where `selects`, no more than that, and each is sparse.

        Raises Incomplete, CorruptRecord.
        """


class Rows:
    """A row per message."""

    selects = True

    def prepare(self, item: Append) -> tuple[Header, list[Row]]:
        """See `LaidOut.prepare`. The header is that of the batch as reading will pack it.

        A publisher may have packed the same messages in another way, with a dictionary in another order for one.
        """
        batch = open_batch(item.batch, item.header)
        columns = batch.columns()
        header = peek(_pack(columns, item.header))
        assert header is not None
        names = {topic: keys.BODY + topic.encode("ascii") for topic in batch.topics}
        cells = [{names[topic]: body} for topic, body in zip(columns.topics, columns.bodies, strict=True)]
        if header.flags & (KEYS | HEADERS):
            for mine, key, block in zip(cells, columns.keys, columns.blocks, strict=True):
                mine.update(_beside(key, block))
        return header, list(zip(keys.message_rows(item.key.partition, batch.ids(), item.epoch), cells, strict=True))

    def load(self, tables: Tables, table: str, heads: Sequence[Head]) -> list[bytes]:
        """See `LaidOut.load`."""
        found, at, batches = [row for run in _runs(heads) for row in _scan(tables, table, run)], 0, []
        for head in heads:
            mine, at = _rows_of(head.header, found, at)
            batches.append(_repack(head.header, mine))
        return batches

    def select(self, tables: Tables, table: str, parts: Sequence[Part]) -> list[bytes]:
        """See `LaidOut.select`. The checksum of a batch says nothing of its parts; whether a row is missing is seen."""
        asked = [part.rows() for part in parts]
        found = _get(tables, table, [row for rows in asked for row in rows])
        return [_repack_part(part, list(map(found.get, rows))) for part, rows in zip(parts, asked, strict=True)]


class Batches:
    """A cell per batch."""

    selects = False

    def prepare(self, item: Append) -> tuple[Header, list[Row]]:
        """See `LaidOut.prepare`."""
        pieces = range(0, len(item.batch), PIECE_BYTES)
        cells = {
            keys.PACKED + (b"%d" % number if number else b""): item.batch[at : at + PIECE_BYTES]
            for number, at in enumerate(pieces)
        }
        return item.header, [(keys.message_row(item.key.partition, item.header.base_id, item.epoch), cells)]

    def load(self, tables: Tables, table: str, heads: Sequence[Head]) -> list[bytes]:
        """See `LaidOut.load`."""
        found = self._fetch(tables, table, heads)
        batches = []
        for head in heads:
            header = head.header
            cells = found.get(keys.message_row(header.partition, header.base_id, header.epoch), {})
            data = b"".join(cells[column] for column in sorted(cells))
            if not data:
                raise Incomplete(f"the batch of {header.base_id} is not there")
            open_batch(data, header)
            batches.append(data)
        return batches

    def select(self, tables: Tables, table: str, parts: Sequence[Part]) -> list[bytes]:
        """See `LaidOut.select`: all of them."""
        return self.load(tables, table, [part.head for part in parts])

    def _fetch(self, tables: Tables, table: str, heads: Sequence[Head]) -> Mapping[bytes, Cells]:
        """The rows of batches. What lies between them, where something does, stays where it is."""
        if all(two.previous_base == one.header.base_id for one, two in pairwise(heads)):
            return dict(_scan(tables, table, heads))
        return _get(tables, table, [row for head in heads for row in Part(head, range(1)).rows()])


def _runs(heads: Sequence[Head]) -> Iterator[Sequence[Head]]:
    """The heads in runs, between which more lies than a scan passes in the time in which another one begins."""
    start = 0
    for place, (one, two) in enumerate(pairwise(heads), start=1):
        rows = two.messages_before - one.messages_before - one.header.shown
        if rows > GAP_ROWS or two.bytes_before - one.bytes_before - one.header.length > GAP_BYTES:
            yield heads[start:place]
            start = place
    yield heads[start:]


def _get(tables: Tables, table: str, rows: Sequence[bytes]) -> Mapping[bytes, Cells]:
    found: dict[bytes, Cells] = {}
    for at in range(0, len(rows), GET_ROWS):
        found |= tables.get_all(table, rows[at : at + GET_ROWS], [keys.MESSAGES])
    return found


def _scan(tables: Tables, table: str, heads: Sequence[Head]) -> list[Row]:
    first, last = heads[0].header, heads[-1].header
    messages, size = sum(head.header.count for head in heads), sum(head.header.length for head in heads)
    at_once = min(SCAN_ROWS_MAX, max(1, GATHER_BYTES * messages // size))
    start = keys.from_id(first.partition, first.base_id)
    stop = keys.from_id(last.partition, last.last_id + 1)
    return tables.scan(table, start, stop, [keys.MESSAGES], rows_at_once=at_once)


def _beside(key: bytes | None, block: bytes) -> Cells:
    """The cells of a message beside its body."""
    cells = {} if key is None else {keys.KEY: key}
    return {**cells, keys.HEADERS: block} if block else cells


def _rows_of(header: Header, found: Sequence[Row], at: int) -> tuple[list[Cells], int]:
    """The rows of a batch among those from `at` on, and where those of the next one begin."""
    end = at + header.count
    rows, cells = zip(*found[at:end], strict=True) if at < len(found) else ((), ())
    if list(rows) == keys.message_rows(header.partition, range(header.base_id, header.last_id + 1), header.epoch):
        return list(cells), end
    mine: list[Cells] = []  # there are others between them, of owners that were fenced, or some are missing
    for place in range(at, len(found)):
        number, epoch = _place(found[place][0])
        if number > header.last_id:
            return mine, place
        if epoch == header.epoch and number >= header.base_id:
            mine.append(found[place][1])
    return mine, len(found)


def _place(row: bytes) -> tuple[int, int]:
    try:
        return keys.id_and_epoch(row)
    except struct.error as error:
        raise CorruptRecord(f"the row {row[:40].hex()} is none of a message") from error


def _repack(header: Header, rows: Sequence[Cells]) -> bytes:
    """The batch of a header from its rows. Raises Incomplete, CorruptRecord."""
    if len(rows) != header.count:
        raise Incomplete(f"the batch of {header.base_id} has {header.count} messages, and {len(rows)} are there")
    data = _pack(_columns(rows, header), header)
    if peek(data) != header:
        raise CorruptRecord(f"the messages of the batch of {header.base_id} are not those that were stored")
    return data


def _columns(rows: Sequence[Cells], header: Header) -> Columns:
    """Messages from their rows. Raises CorruptRecord."""
    names, bodies = zip(*map(_name_and_body, rows), strict=True)
    topics = {name: name[len(keys.BODY) :].decode("ascii") for name in set(names)}
    nothing, blocks = [None] * len(rows), [b""] * len(rows)
    known = [cells.get(keys.KEY) for cells in rows] if header.flags & KEYS else nothing
    blocks = [cells.get(keys.HEADERS, b"") for cells in rows] if header.flags & HEADERS else blocks
    return Columns(list(map(topics.__getitem__, names)), known, blocks, bodies)


def _repack_part(part: Part, rows: Sequence[Cells | None]) -> bytes:
    """The part of a batch that is made of its rows. Raises Incomplete, CorruptRecord."""
    header, there = part.head.header, [cells for cells in rows if cells is not None]
    if len(there) < part.wanted:
        raise Incomplete(f"of the batch of {header.base_id} {len(there)} of {part.wanted} messages are there")
    columns = _columns(there, header)
    columns.positions = None if part.wanted == header.count else part.places
    return _pack(columns, header)


def _name_and_body(cells: Cells) -> tuple[bytes, bytes]:
    """The column of a message's body, which is `message:` and its topic, and the body."""
    found = list(cells.items())
    if len(found) != 1:
        found = [one for one in found if one[0] not in (keys.KEY, keys.HEADERS)]
    if len(found) != 1 or not found[0][0].isascii():
        raise CorruptRecord(f"a row of a message has the columns {sorted(cells)!r:.200}")
    return found[0]


def _pack(columns: Columns, header: Header) -> bytes:
    return assemble(
        columns, header.partition, base_id=header.base_id, epoch=header.epoch, producer_id=header.producer_id,
        producer_sequence=header.producer_sequence, span=header.span,
    )  # fmt: skip
