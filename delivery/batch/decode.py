"""Opening a record batch: sections are located and checked first; columns and messages come out of C loops."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise, repeat
from struct import Struct
from typing import NamedTuple

from delivery.batch import layout
from delivery.batch.encode import Columns
from delivery.batch.layout import HEADER_BYTES, Header, check_checksum, check_payload, peek
from delivery.errors import CorruptRecord
from delivery.model import ASIDE, Message

_GROUP = 256
"""Blobs of equal length are split this many at a time: one cached Struct serves every batch with that length."""


class Stored(NamedTuple):
    """Byte strings as they lie in a batch, one after another."""

    data: bytes
    """Of the whole batch."""
    at: int
    lengths: array[int]
    presence: array[int] | None = None
    """1 where there is one, with a length of 0 where there is none; None where all are there."""


def open_batch(data: bytes, header: Header | None = None) -> Batch:
    """The batch in `data`, which must be one whole batch. Raises CorruptRecord when anything in it is wrong.

    Whoever has come by its header already, through `headers_in` for one, gives it along.
    """
    header = header or peek(data)
    if header is None:
        raise CorruptRecord("a batch header was cut short")
    check_payload(header, data)
    return Batch(header, data)


def open_at(data: bytes, at: int, header: Header) -> Batch:
    """The batch that `headers_in` found at `at`, where it lies among others: nothing is copied, and all of `data` stays
    in memory as long as the batch does. Raises CorruptRecord when anything in it is wrong.
    """
    check_checksum(header, data[at + HEADER_BYTES : at + header.length])
    return Batch(header, data, at)


class Batch:
    """A view into one batch whose checksums are right, which was looked at before.

    Sections are located and added up, messages are not made yet.
    """

    __slots__ = (
        "_blocks", "_bodies_at", "_body_lengths", "_data", "_end", "_keys", "_topic_index", "header", "positions",
        "topics",
    )  # fmt: skip

    def __init__(self, header: Header, data: bytes, at: int = 0) -> None:
        """Locate the sections of the batch that begins at `at`. Raises CorruptRecord when they do not add up to it."""
        self.header = header
        self._data, self._end = data, at + header.length
        count, flags = header.count, header.flags
        self.topics, at = self._dictionary(at + HEADER_BYTES)
        self._topic_index: Sequence[int] | None = None
        self.positions = presence = key_lengths = block_lengths = None
        if flags:  # a message that comes alone has none of these, and would notice the time
            self._topic_index, at = self._index_column(at, flags & layout.TOPICS)
            self.positions, at = self._column("I", 4, at, flags & layout.SPARSE)
            presence, at = self._column("B", 1, at, flags & layout.NULL_KEYS)
            key_lengths, at = self._column("I", 4, at, flags & layout.KEYS)
            block_lengths, at = self._column("I", 4, at, flags & layout.HEADERS)
        body_lengths, at = self._column("I", 4, at, 1)
        assert body_lengths is not None
        self._body_lengths = body_lengths
        self._keys = None if key_lengths is None else (at, key_lengths, presence)
        at += _total(key_lengths)
        self._blocks = None if block_lengths is None else (at, block_lengths)
        at += _total(block_lengths)
        self._bodies_at = at
        if at + _total(body_lengths) != self._end:
            raise CorruptRecord("the columns of a batch do not add up to its length")
        if flags or header.span != count:
            self._check_indexes(count)

    @property
    def body_length_max(self) -> int:
        """The longest body in bytes."""
        return max(self._body_lengths)

    @property
    def key_length_max(self) -> int:
        """The longest key in bytes, 0 without keys."""
        return max(self._keys[1]) if self._keys else 0

    @property
    def header_block_max(self) -> int:
        """The longest header block in bytes, 0 without headers."""
        return max(self._blocks[1]) if self._blocks else 0

    @property
    def block_area(self) -> bytes:
        """All header blocks, one after another."""
        return self._data[self._blocks[0] : self._bodies_at] if self._blocks else b""

    def ids(self) -> Sequence[int]:
        """The id number of each message, rising."""
        base = self.header.base_id
        if self.positions is None:
            return range(base, base + self.header.count)
        return [base + place for place in self.positions]

    def topic_column(self) -> Sequence[str] | None:
        """The topic of each message, or None when all have `topics[0]`."""
        return None if self._topic_index is None else list(map(self.topics.__getitem__, self._topic_index))

    @property
    def topic_index(self) -> Sequence[int]:
        """The place of each message's topic in `topics`; as bytes, which C loops look through, where all fit."""
        return bytes(self.header.count) if self._topic_index is None else self._topic_index

    def columns(self, places: Sequence[int] | None = None) -> Columns:
        """Everything as columns, keys and header blocks filled in where the batch has none.

        With `places`, those messages alone, which keep their ids; what lies between them is not touched.
        """
        if places is not None:
            return self._picked(places)
        count = self.header.count
        topics = self.topic_column() or self.topics * count
        return Columns(topics, self.keys(), self.blocks(), self.bodies(), self.positions)

    def _picked(self, places: Sequence[int]) -> Columns:
        topics, index = self.topics, self.topic_index
        keys: list[bytes | None] = [None] * len(places)
        blocks = [b""] * len(places)
        if self._keys is not None:
            at, lengths, presence = self._keys
            found = _pick(self._data, at, lengths, places)
            keys = [
                key if presence is None or presence[place] else None for key, place in zip(found, places, strict=True)
            ]
        if self._blocks is not None:
            blocks = _pick(self._data, *self._blocks, places)
        bodies = _pick(self._data, self._bodies_at, self._body_lengths, places)
        positions = places if self.positions is None else [self.positions[place] for place in places]
        return Columns([topics[index[place]] for place in places], keys, blocks, bodies, positions)

    def stored_keys(self) -> Stored | None:
        """The keys, None when no message has one."""
        return None if self._keys is None else Stored(self._data, *self._keys)

    def stored_blocks(self) -> Stored | None:
        """The header blocks, None when no message has one."""
        return None if self._blocks is None else Stored(self._data, *self._blocks)

    def stored_bodies(self) -> Stored:
        """The bodies."""
        return Stored(self._data, self._bodies_at, self._body_lengths)

    def keys(self) -> Sequence[bytes | None]:
        """The key of each message, None for none."""
        return self._key_column() or [None] * self.header.count

    def blocks(self) -> Sequence[bytes]:
        """The header block of each message, empty for none."""
        return self._block_column() or [b""] * self.header.count

    def bodies(self) -> Sequence[bytes]:
        """The body of each message."""
        return _split(self._data, self._bodies_at, self._body_lengths)

    def messages(self, queue: str, after: int = -1) -> Iterator[Message]:
        """The messages with an id above `after`, in order."""
        made = map(
            Message, self.ids(), self.bodies(), self.topic_column() or repeat(self.topics[0]),
            self._key_column() or repeat(None), repeat(self.header.partition), repeat(queue),
            self._block_column() or repeat(b""),
        )  # fmt: skip
        return made if after < self.header.base_id else (message for message in made if message.number > after)

    def _key_column(self) -> Sequence[bytes | None] | None:
        if self._keys is None:
            return None
        at, lengths, presence = self._keys
        keys = _split(self._data, at, lengths)
        return keys if presence is None else [key if there else None for key, there in zip(keys, presence, strict=True)]

    def _block_column(self) -> Sequence[bytes] | None:
        return None if self._blocks is None else _split(self._data, *self._blocks)

    def _dictionary(self, at: int) -> tuple[list[str], int]:
        data, topics = self._data, []
        try:
            for _ in range(self.header.topic_count):
                end = at + 1 + data[at]
                topics.append(data[at + 1 : end].decode("ascii"))
                at = end
        except (IndexError, UnicodeDecodeError) as error:
            raise CorruptRecord("the topic dictionary of a batch does not parse") from error
        return topics, at

    def _column(self, kind: str, width: int, at: int, present: int) -> tuple[array[int] | None, int]:
        if not present:
            return None, at
        end = at + width * self.header.count
        if end > self._end:
            raise CorruptRecord("a column of a batch runs past its end")
        column = array(kind, self._data[at:end])
        if sys.byteorder == "big":  # pragma: no cover - no such machine in CI
            column.byteswap()
        return column, end

    def _index_column(self, at: int, present: int) -> tuple[Sequence[int] | None, int]:
        column, end = self._column("H", 2, at, present)
        wide = column is None or self._data[at + 1 : end : 2] != bytes(self.header.count)
        return (column if wide else self._data[at:end:2]), end

    def _check_indexes(self, count: int) -> None:
        if self._topic_index is not None and _is_beyond(self._topic_index, len(self.topics)):
            raise CorruptRecord("a message of a batch names a topic that its dictionary lacks")
        own = self.header.flags & layout.OWN
        if own and not (len(self.topics) == 1 and self.topics[0].startswith(ASIDE)):
            raise CorruptRecord(f"a batch under {self.topics[0]!r} claims to be one of the engine's own")
        if self.positions is None:
            if self.header.span != count and not own:
                raise CorruptRecord("a batch without gaps covers more ids than it has messages")
        elif self.positions[-1] >= self.header.span or any(a >= b for a, b in pairwise(self.positions)):
            raise CorruptRecord("the id places of a batch do not rise within its span")


def _is_beyond(index: Sequence[int], topics: int) -> bool:
    """Whether a place in an index is not below `topics`."""
    if isinstance(index, bytes):
        return bool(index.translate(None, bytes(range(min(topics, 256)))))
    return max(index) >= topics


def _are_equal(lengths: array[int]) -> bool:
    """Whether all of them are the same: compared in one go, for counting them takes ten times as long."""
    return lengths == lengths[:1] * len(lengths)


def _total(lengths: array[int] | None) -> int:
    if lengths is None:
        return 0
    return lengths[0] * len(lengths) if _are_equal(lengths) else sum(lengths)


@lru_cache(maxsize=256)
def _group_of(length: int) -> Struct:
    return Struct(f"{length}s" * _GROUP)


def _split(data: bytes, at: int, lengths: array[int]) -> Sequence[bytes]:
    """The byte strings of `lengths` that follow one another from `at`. Equal lengths take a path five times faster."""
    count, first = len(lengths), lengths[0]
    if count >= _GROUP and first and _are_equal(lengths):
        whole = count // _GROUP * _GROUP * first
        parts = list(chain.from_iterable(_group_of(first).iter_unpack(memoryview(data)[at : at + whole])))
        return parts + [data[i : i + first] for i in range(at + whole, at + count * first, first)]
    return [data[a:b] for a, b in pairwise(accumulate(lengths, initial=at))]


def _pick(data: bytes, at: int, lengths: array[int], places: Sequence[int]) -> list[bytes]:
    """Some of the byte strings of `lengths` that follow one another from `at`."""
    first = lengths[0]
    if _are_equal(lengths):
        return [data[at + first * place : at + first * (place + 1)] for place in places]
    ends = list(accumulate(lengths, initial=at))
    return [data[ends[place] : ends[place + 1]] for place in places]
