"""A scanner in virtual time, and what it finds, for the tests of what stands between a partition and a scanner."""

from __future__ import annotations

from collections.abc import Sequence

import trio
from trio.testing import MockClock

from delivery.batch import headers_in, open_batch
from delivery.dispatch.buffer import Buffer
from delivery.dispatch.scanner import MessageScanner, Source
from delivery.filters import Filter
from delivery.storage.base import Chunk

Found = tuple[float, int, list[int]]
"""When a piece came, its position, and its ids."""


def chunk_of(batches: Sequence[bytes]) -> Chunk:
    data = b"".join(batches)
    return Chunk(data, tuple(header for _, header in headers_in(data)))


def ids_in(data: bytes) -> list[int]:
    return [
        number
        for at, header in headers_in(data)
        for number in open_batch(data[at : at + header.length], header).ids()
    ]  # fmt: skip


def scan(
    source: Source, wanted: Filter | None = None, after: int = 0, *, goal: int | None = None, bytes_max: int = 10**6
) -> list[Found]:  # fmt: skip
    """All pieces that a scanner ever puts, in virtual time; with a `goal` those up to that position, in real time.

    Virtual time goes on while threads work, and a scanner that never comes to its goal is stopped some time.
    """
    pieces: list[Found] = []

    async def main() -> None:
        began = trio.current_time()

        def take() -> None:
            piece = buffer.take()
            pieces.append((round(trio.current_time() - began, 3), piece.last_id, ids_in(piece.data)))
            if goal is not None and piece.last_id >= goal:
                scope.cancel()

        buffer = Buffer(10**6, 10**9, take)
        with trio.move_on_after(1e6 if goal is None else 20) as scope:
            await MessageScanner(source, wanted, bytes_max).run(buffer, after)

    trio.run(main, clock=MockClock(autojump_threshold=0) if goal is None else None)
    return pieces
