"""The bounded buffer between a MessageScanner and a MessageSender (seed 004, section 3.5.3).

Bounded by messages and by bytes: when either is full the scanner waits until the sender has taken something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from delivery.dispatch.bell import Bell
from delivery.dispatch.cutting import UNBOUNDED, Rest


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Scanned batches on their way out. `data` is empty where a filter took everything: only the position moves."""

    last_id: int
    messages: int
    data: bytes


class Buffer:
    """One producer, one consumer, both on the trio thread."""

    def __init__(
        self, messages_max: int, bytes_max: int, on_filled: Callable[[], None],
        cut: Callable[[Piece], Iterable[Piece]] | None = None, after: int = -1,
    ) -> None:  # fmt: skip
        """`on_filled` is called when a piece was added; with `cut` each is cut before that.

        `after` is where the run begins: a part of a piece has only messages behind it.
        """
        self._cut, self._after = cut, after
        self._limits = (messages_max, bytes_max)
        self._pieces: list[Piece | Rest] = []  # an empty deque takes ten times as much
        self._messages = self._bytes = 0
        self._room = Bell()
        self._on_filled = on_filled

    @property
    def messages(self) -> int:
        """Messages waiting."""
        return self._messages

    def first(self, messages_max: float = UNBOUNDED, bytes_max: float = UNBOUNDED) -> Piece | None:
        """The oldest piece, which stays, cut so that it has about so many messages and bytes at most; None without."""
        if not self._pieces:
            return None
        piece = self._pieces[0]
        fits = piece.messages <= 1 or (piece.messages <= messages_max and len(piece.data) <= bytes_max)
        return piece if isinstance(piece, Piece) and fits else self._cut_first(messages_max, bytes_max)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._pieces

    @property
    def is_full(self) -> bool:
        """Whether a piece would have to wait."""
        messages_max, bytes_max = self._limits
        return bool(self._pieces) and (self._messages >= messages_max or self._bytes >= bytes_max)

    async def put(self, piece: Piece) -> None:
        """Add a piece; waits while the buffer is full. Cancelled: nothing was added."""
        while self.is_full:
            await self._room.wait()
        self.add(piece)

    def add(self, piece: Piece) -> None:
        """Add a piece; the buffer must not be full."""
        for part in (piece,) if self._cut is None else self._cut(piece):
            if self._pieces and not part.data and not self._pieces[-1].messages:
                self._pieces.pop()  # else a filter that takes nothing fills the memory behind a full window
            self._pieces.append(part)
        self._messages += piece.messages
        self._bytes += len(piece.data)
        self._on_filled()

    def take(self) -> Piece:
        """Remove the oldest piece, which `first` has given."""
        piece = self._pieces.pop(0)
        assert isinstance(piece, Piece)
        self._messages -= piece.messages
        self._bytes -= len(piece.data)
        self._room.ring()
        return piece

    def _cut_first(self, messages_max: float, bytes_max: float) -> Piece:
        found = self._pieces.pop(0)
        rest = found if isinstance(found, Rest) else Rest(found.data, found.messages, found.last_id, self._after)
        before = rest.messages
        data, messages, end = rest.take(messages_max, bytes_max)
        self._messages -= before - rest.messages - messages
        if rest.messages:
            self._pieces.insert(0, rest)
        else:
            self._bytes -= len(rest.data)
        part = Piece(end if rest.messages else rest.last_id, messages, data)
        self._pieces.insert(0, part)
        self._bytes += len(data)
        return part
