"""HTTP/1.1 as a server reads and writes it, without a socket (RFC 9112). What h11 does, at a tenth of its calls.

Stricter than it has to be where two readers of one stream could see different requests: a field comes in one line, a
length once and in digits, and a request has a length or pieces, never both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

Fields = Sequence[tuple[bytes, bytes]]

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_LINE: Final = re.compile(rb"(%b) ([!-~]+) HTTP/(1\.[01])\r\n" % _TOKEN)
_VALUE: Final = rb"[^\x00-\x08\n-\x1f\x7f]*"
_FIELDS: Final = re.compile(rb"(?:%b:%b\r\n)*\r\n" % (_TOKEN, _VALUE))
_FIELD: Final = re.compile(rb"(%b):(%b)\r\n" % (_TOKEN, _VALUE))
_PIECE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;%b)?\r\n" % _VALUE)
_PIECE_LINE_MAX: Final = 1024


class Unreadable(Exception):
    """The client does not speak HTTP/1.1, or says what cannot be; where the next request begins is not known."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Head(msgspec.Struct, frozen=True, gc=False):
    """The head of a request. Names of fields are in lower case."""

    method: bytes
    target: bytes
    version: bytes
    fields: Fields


class Wire:
    """One connection: `receive` what comes, take heads and bodies out of it, and make answers of them in turn."""

    def __init__(self, head_bytes_max: int) -> None:
        self._head_bytes_max = head_bytes_max
        self._data = bytearray()
        self.ended = False
        """The client sends nothing any more."""
        self.complete = False
        """All of the body is taken out."""
        self.expects = False
        """The client waits for a word before it sends the body."""
        self.closing = False
        """No other request follows on this connection."""
        self.answered = True
        """The answer is whole."""
        self._left = 0
        """Bytes of the body, or of its piece, that have not come."""
        self._pieces = self._modern = False
        self._to_write: int | None = 0
        """Bytes of the answer's body, None where it goes in pieces or ends with the connection."""
        self._in_pieces = False

    @property
    def waiting(self) -> bool:
        """Whether more has come than the request."""
        return bool(self._data)

    def receive(self, data: bytes | memoryview) -> None:
        """Take in what has come; nothing is the end."""
        self._data += data
        self.ended = self.ended or not data

    # -- requests

    def head(self) -> Head | None:
        """The next request's; None when more has to come. Raises Unreadable."""
        data = self._data
        end = data.find(b"\r\n\r\n")
        if (end if end >= 0 else len(data)) > self._head_bytes_max:
            raise Unreadable(431, f"the head of a request has at most {self._head_bytes_max} bytes")
        if end < 0:
            if b"\n\n" in data or (self.ended and data):
                raise Unreadable(400, "the head of the request is cut short, or has no lines that end as they should")
            return None
        line = _LINE.match(data)
        if line is None or _FIELDS.fullmatch(data, line.end(), end + 4) is None:
            raise Unreadable(400, "this is no request of HTTP/1.1")
        fields = [(name.lower(), value.strip(b" \t")) for name, value in _FIELD.findall(data, line.end(), end + 2)]
        found = Head(line[1], line[2], line[3], fields)
        del data[: end + 4]
        self._begin(found)
        return found

    def body(self) -> bytes | None:
        """What has come of the body; None when more has to come first. Sets `complete`. Raises Unreadable."""
        found = self._in_parts() if self._pieces else self._take()
        if not self._pieces:
            self.complete = not self._left
        if not found and not self.complete:
            if self.ended:
                raise Unreadable(400, "the client broke off in the middle of the body")
            return None
        return found

    def _begin(self, head: Head) -> None:
        self._modern = head.version == b"1.1"
        self.closing, self.answered, self.expects = not self._modern, False, False
        self._left, self._pieces = 0, False
        hosts, lengths = 0, 0
        for name, value in head.fields:
            if name == b"content-length":
                self._left, lengths = _length(value), lengths + 1
            elif name == b"transfer-encoding":
                self._check_pieces(value)
            elif name == b"connection":
                self.closing |= b"close" in [one.strip() for one in value.lower().split(b",")]
            elif name == b"expect":
                self.expects = self._modern and value.lower() == b"100-continue"
            elif name == b"host":
                hosts += 1
        if hosts > 1 or (self._modern and not hosts):
            raise Unreadable(400, "a request names one host")
        if lengths > 1 or (lengths and self._pieces):
            raise Unreadable(400, "a request has one length, or none and comes in pieces")
        self.complete = not self._left and not self._pieces

    def _check_pieces(self, value: bytes) -> None:
        if self._pieces or value.lower() != b"chunked":
            raise Unreadable(501, "the only transfer encoding that is known here is chunked")
        if not self._modern:
            raise Unreadable(400, "HTTP/1.0 has no transfer encodings")
        self._pieces = True

    def _take(self) -> bytes:
        found = bytes(self._data[: self._left])
        del self._data[: len(found)]
        self._left -= len(found)
        if found:
            self.expects = False
        return found

    def _in_parts(self) -> bytes:
        """All of the pieces that have come."""
        found: list[bytes] = []
        while not self.complete:
            if self._left > 2:
                self._left -= 2
                found.append(self._take())
                self._left += 2
            elif not self._next_piece():
                break
            if self._left > 2 and not self._data:
                break
        return b"".join(found)

    def _next_piece(self) -> bool:
        """Step over the end of a piece and the line before the next one; False when more has to come."""
        data, at = self._data, self._left
        if len(data) < at:
            return False
        if data[:at] != b"\r\n"[:at]:
            raise Unreadable(400, "a piece of the body does not end where it should")
        end = data.find(b"\r\n", at)
        if (end if end >= 0 else len(data)) - at > _PIECE_LINE_MAX:
            raise Unreadable(400, "the line before a piece of the body is too long")
        if end < 0:
            return False
        size = _PIECE.fullmatch(data, at, end + 2)
        if size is None:
            raise Unreadable(400, "the line before a piece of the body tells no length")
        if not int(size[1], 16):
            return self._end_of_pieces(end + 2)
        self._left, self.expects = int(size[1], 16) + 2, False
        del data[: end + 2]
        return True

    def _end_of_pieces(self, at: int) -> bool:
        """Fields behind the body mean nothing here."""
        end = self._data.find(b"\r\n\r\n", at - 2)
        if (end if end >= 0 else len(self._data)) - at > self._head_bytes_max:
            raise Unreadable(431, "there is too much behind the body")
        if end < 0:
            return False
        if _FIELDS.fullmatch(self._data, at, end + 4) is None:
            raise Unreadable(400, "what is behind the body are no fields")
        del self._data[: end + 4]
        self.complete = True
        return True

    # -- answers

    def answer(self, status: int, fields: Fields, *, bodiless: bool) -> bytes:
        """The head of an answer; `bodiless` for one to HEAD, which only tells how long its body would be."""
        length = next((int(value) for name, value in fields if name.lower() == b"content-length"), None)
        parts = [b"HTTP/1.1 %d \r\n" % status]
        for name, value in fields:
            parts += (name, b": ", value, b"\r\n")
            if name == b"connection" and value == b"close":
                self.closing = True
        self._to_write = 0 if bodiless or status in (204, 304) else length
        self._in_pieces = self._to_write is None and self._modern
        if self._in_pieces:
            parts.append(b"transfer-encoding: chunked\r\n")
        elif self._to_write is None:
            self.closing = True
        if self.closing and (b"connection", b"close") not in fields:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)

    def piece(self, data: bytes, *, last: bool) -> bytes:
        """A piece of the answer's body. Raises ValueError for one that is longer or shorter than its head tells."""
        if self._to_write is not None:
            self._to_write -= len(data)
            if self._to_write < 0 or (last and self._to_write):
                raise ValueError("an answer's body is not as long as its head tells")
        elif self._in_pieces:
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            data += b"0\r\n\r\n" if last else b""
        self.answered = last
        return data


def _length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise Unreadable(400, "the length of a body is a number")
    return int(value)
