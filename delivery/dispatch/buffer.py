"""The bounded buffer between a MessageScanner and a MessageSender (seed 004, section 3.5.3).

Bounded by messages and by bytes: when either is full the scanner waits until the sender has taken something.
"""

from __future__ import annotations

from collections import deque

import msgspec
import trio


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Scanned batches on their way out. `data` is empty where a filter took everything: only the position moves."""

    last_id: int
    messages: int
    data: bytes


class Buffer:
    """One producer, one consumer, both on the trio thread."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._limits = (messages_max, bytes_max)
        self._pieces: deque[Piece] = deque()
        self._messages = self._bytes = 0
        self._room = trio.lowlevel.ParkingLot()
        self._filled = trio.lowlevel.ParkingLot()

    @property
    def messages(self) -> int:
        """Messages waiting."""
        return self._messages

    def _is_full(self) -> bool:
        messages_max, bytes_max = self._limits
        return bool(self._pieces) and (self._messages >= messages_max or self._bytes >= bytes_max)

    async def put(self, piece: Piece) -> None:
        """Add a piece; waits while the buffer is full. Cancelled: nothing was added."""
        while self._is_full():
            await self._room.park()
        self._pieces.append(piece)
        self._messages += piece.messages
        self._bytes += len(piece.data)
        self._filled.unpark()

    async def take(self) -> Piece:
        """Remove the oldest piece; waits while there is none. Cancelled: nothing was removed."""
        while not self._pieces:
            await self._filled.park()
        piece = self._pieces.popleft()
        self._messages -= piece.messages
        self._bytes -= len(piece.data)
        self._room.unpark()
        return piece
