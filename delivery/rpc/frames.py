"""Cutting a stream of bytes into frames (length as i32, then that many bytes), without I/O.

One buffer per connection is used again for every frame, because fresh memory costs more than the copy out of it. It
starts small and at most doubles when it is full, so a declared length alone takes no memory: bytes do.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from delivery.errors import ProtocolError
from delivery.rpc.wire import Part

SMALL_BYTES: Final = 64 * 1024
"""What a buffer begins with, unless told otherwise, and returns to when its connection falls quiet."""
KEPT_BYTES: Final = (1 << 20) + SMALL_BYTES
"""A buffer larger than this is given back as soon as it is empty; batches rarely are."""
JOIN_BYTES: Final = 64 * 1024
"""A frame up to this size is sent as one string of bytes: cheaper than handing over several."""
_PARTS_AT_ONCE: Final = 64
_LENGTH: Final = struct.Struct(">i")


class FrameBuffer:
    """Bytes in (`space`, then `received`), frames out (`next_frame`, until it gives None)."""

    __slots__ = ("_data", "_end", "_frame_bytes_max", "_small", "_start", "_view", "_wanted")

    def __init__(self, frame_bytes_max: int, small: int = SMALL_BYTES) -> None:
        """It holds `small` bytes while its connection is quiet, of which there may be thousands."""
        self._frame_bytes_max, self._small = frame_bytes_max, small
        self._start = self._end = 0
        self._wanted = 0
        self._data = bytearray(small)
        self._view = memoryview(self._data)

    @property
    def capacity(self) -> int:
        """How many bytes of memory it holds."""
        return len(self._data)

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return self._end > self._start

    def space(self) -> memoryview:
        """Where the next bytes go; never empty. Ends the validity of the last frame.

        The rest of a large frame is asked for alone: what came after it would have to be moved.
        """
        if self._start == self._end:
            self._start = self._end = 0
            if self.capacity > KEPT_BYTES:
                self._replace(self._small)
            if self._wanted == 4:
                return self._view
        if self._start + max(self._wanted, 4) > self.capacity and self._start:
            self._view[: self._end - self._start] = bytes(self._view[self._start : self._end])
            self._start, self._end = 0, self._end - self._start
        if self._end == self.capacity:
            whole = -(-self._wanted // SMALL_BYTES) * SMALL_BYTES
            self._replace(min(self.capacity * 2, whole))
        limit = self._start + self._wanted if self._wanted > SMALL_BYTES else self.capacity
        return self._view[self._end : min(limit, self.capacity)]

    def received(self, count: int) -> None:
        """`count` bytes were put into `space`."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame, without its length; valid until `space` is called. None: more bytes are needed.

        Raises ProtocolError for a length that is not positive or over the limit.
        """
        if self._end - self._start < 4:
            self._wanted = 4
            return None
        length = _LENGTH.unpack_from(self._data, self._start)[0]
        if not 0 < length <= self._frame_bytes_max:
            raise ProtocolError(f"a frame of {length} bytes; allowed are 1 to {self._frame_bytes_max}")
        self._wanted = 4 + length
        if self._end - self._start < self._wanted:
            return None
        begin = self._start + 4
        self._start += self._wanted
        return self._view[begin : self._start]

    def release(self) -> bool:
        """Give memory back when it is empty; False when there is none to give."""
        if self.partial or self.capacity == self._small:
            return False
        self._start = self._end = 0
        self._replace(self._small)
        return True

    def _replace(self, capacity: int) -> None:
        """Go on in a buffer of `capacity` bytes, taking along what is unread."""
        data = bytearray(capacity)
        view = memoryview(data)
        if self.partial:
            view[: self._end - self._start] = self._view[self._start : self._end]
            self._start, self._end = 0, self._end - self._start
        self._data, self._view = data, view


def joined(parts: Sequence[Part], total: int) -> list[Part]:
    """The parts to send: as one when that is cheaper."""
    return [b"".join(parts)] if total <= JOIN_BYTES and len(parts) > 1 else list(parts)


def rest(parts: list[Part], sent: int) -> list[Part]:
    """What of `parts` is left after `sent` bytes of them went out."""
    for at, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *parts[at + 1 :]]
        sent -= len(part)
    return []


def portion(parts: list[Part]) -> list[Part]:
    """As many parts as one system call takes."""
    return parts[:_PARTS_AT_ONCE]
