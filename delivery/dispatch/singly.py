"""Cutting pieces into single messages, to find the one among several that its listener does not handle."""

from __future__ import annotations

from collections.abc import Iterator

from delivery.batch import headers_in, open_batch
from delivery.batch.pick import pick
from delivery.dispatch.buffer import Piece
from delivery.errors import CorruptRecord


def singles(piece: Piece, after: int, until: int) -> Iterator[Piece]:
    """The piece message by message, those above `after` and up to `until`; what follows comes as it was.

    A batch that cannot be opened stays whole: its listener says what is wrong with it.
    """
    data = piece.data
    for at, header in headers_in(data):
        if header.base_id > until:
            yield Piece(piece.last_id, _count(data[at:]), data[at:])
            return
        whole = data[at : at + header.length]
        try:
            batch = open_batch(whole, header)
        except CorruptRecord:
            yield Piece(header.last_id, header.count, whole)
            continue
        for number in batch.ids():
            if number > after:
                yield Piece(number, 1, pick(batch, [number]))
                after = number
    if piece.last_id > after:
        yield Piece(piece.last_id, 0, b"")


def _count(data: bytes) -> int:
    return sum(header.count for _, header in headers_in(data))
