"""Cutting pieces that are larger than what may go out at once."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from delivery.batch import Batch, Header, open_batch, peek
from delivery.batch.pick import pick_places
from delivery.errors import CorruptRecord

UNBOUNDED: Final = float("inf")


class Rest:
    """What is left of a piece of which parts were taken. Batches are opened only where one has to be cut."""

    __slots__ = ("_after", "_at", "_opened", "_place", "data", "last_id", "messages")

    def __init__(self, data: bytes, messages: int, last_id: int, after: int) -> None:
        """Messages up to `after` are left out: a run may begin in the midst of a batch."""
        self.data, self.last_id, self._after = data, last_id, after
        self.messages = messages
        """Not taken yet."""
        self._at = self._place = 0
        self._opened: Batch | None = None

    def take(self, messages_max: float, bytes_max: float) -> tuple[bytes, int, int]:
        """The next part, its messages, and the last id it covers; no part, if nothing is left that is not left out.

        It has at most so many messages and bytes, going by the average message of a batch; but at least one message.

        A damaged batch is not cut: its listener says what is wrong with it.
        """
        parts: list[bytes] = []
        messages, size, end = 0, 0, 0
        while self.messages and (not parts or (messages < messages_max and size < bytes_max)):
            header = self._header()
            if header.base_id <= self._after and not self._place and self._leave_out(header):
                continue
            count, average = header.count - self._place, header.length / header.count
            room = int(min(count, messages_max - messages, (bytes_max - size) / average))
            if parts and room < count:
                break  # whole batches first: the next part begins by cutting this one
            data, taken, end = self._take(header, max(1, room))
            parts.append(data)
            messages += taken
            size += len(data)
        return b"".join(parts), messages, end

    def _leave_out(self, header: Header) -> bool:
        """Pass over what of the next batch is left out; whether that is all of it."""
        try:
            self._opened = open_batch(self.data[self._at : self._at + header.length], header)
        except CorruptRecord:
            return False
        passed = bisect_right(self._opened.ids(), self._after)
        if passed:
            self._advance(header, passed)
        return passed == header.count

    def _header(self) -> Header:
        header = peek(self.data, self._at)
        assert header is not None
        return header

    def _take(self, header: Header, count: int) -> tuple[bytes, int, int]:
        """That many messages of the batch that is next, as a batch, and the last id they cover."""
        whole = self.data[self._at : self._at + header.length]
        left = header.count - self._place
        if count < left or self._place:
            try:
                batch = self._opened = self._opened or open_batch(whole, header)
            except CorruptRecord:
                count = left
            else:
                places = range(self._place, self._place + count)
                end = header.last_id if count == left else batch.ids()[places[-1]]
                self._advance(header, count)
                return pick_places(batch, places), count, end
        self._advance(header, count)
        return whole, count, header.last_id

    def _advance(self, header: Header, count: int) -> None:
        self.messages -= count
        self._place += count
        if self._place == header.count:
            self._at += header.length
            self._place, self._opened = 0, None
