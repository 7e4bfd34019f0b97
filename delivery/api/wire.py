"""HTTP/1.1 as a server reads and writes it, without a socket (RFC 9112). llhttp reads, at a tenth of h11's calls.

It is given one request at a time, each by a parser of its own, and no byte of the next one: httptools cannot stop it
between two. What it lets pass although two readers of one stream could see different requests is refused here: other
first lines than the usual, two hosts, other transfer encodings than chunked, and these in HTTP/1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

Fields = Sequence[tuple[bytes, bytes]]

_END: Final = b"\r\n\r\n"
"""Of a head, and of a body in pieces: what is before the first one is of one request."""
_BEFORE_PIECES: Final = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


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


class _HeadFound:
    """What llhttp finds in a head."""

    def __init__(self) -> None:
        self.target = b""
        self.fields: list[tuple[bytes, bytes]] = []

    def on_url(self, target: bytes) -> None:
        self.target = target

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value.rstrip(b" \t")))


class _BodyFound:
    """What llhttp finds in pieces. Fields behind them mean nothing here."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.complete = False

    def on_body(self, part: bytes) -> None:
        self.parts.append(part)

    def on_message_complete(self) -> None:
        self.complete = True


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
        """Bytes of the body that have not come, where it has a length."""
        self._pieces: HttpRequestParser | None = None
        """Reads the body into `_found` where it comes in pieces."""
        self._found = _BodyFound()
        self._barren = 0
        """Bytes that were read since the last ones of the body: sizes, and fields behind it."""
        self._modern = False
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
        end = data.find(_END)
        if (end if end >= 0 else len(data)) > self._head_bytes_max:
            raise Unreadable(431, f"the head of a request has at most {self._head_bytes_max} bytes")
        if end < 0:
            if b"\n\n" in data or (self.ended and data):
                raise Unreadable(400, "the head of the request is cut short, or has no lines that end as they should")
            return None
        found = _read_head(data[: end + 4])
        del data[: end + 4]
        self._begin(found)
        return found

    def body(self) -> bytes | None:
        """What has come of the body; None when more has to come first. Sets `complete`. Raises Unreadable."""
        found = self._in_parts(self._pieces) if self._pieces else self._take()
        if not found and not self.complete:
            if self.ended:
                raise Unreadable(400, "the client broke off in the middle of the body")
            return None
        return found

    def _begin(self, head: Head) -> None:
        self._modern = head.version == b"1.1"
        self.closing, self.answered, self.expects = not self._modern, False, False
        self._left, self._pieces, hosts = 0, None, 0
        for name, value in head.fields:
            if name == b"content-length":
                self._left = int(value)
            elif name == b"transfer-encoding":
                self._begin_pieces(value)
            elif name == b"connection":
                self.closing |= b"close" in [one.strip() for one in value.lower().split(b",")]
            elif name == b"expect":
                self.expects = self._modern and value.lower() == b"100-continue"
            elif name == b"host":
                hosts += 1
        if hosts > 1 or (self._modern and not hosts):
            raise Unreadable(400, "a request names one host")
        self.complete = not self._left and not self._pieces

    def _begin_pieces(self, encoding: bytes) -> None:
        """A head has to come before them. It is not the real one: behind an upgrade llhttp reads no body."""
        if encoding.lower() != b"chunked":
            raise Unreadable(501, "the only transfer encoding that is known here is chunked")
        if not self._modern:
            raise Unreadable(400, "HTTP/1.0 has no transfer encodings")
        self._found, self._barren = _BodyFound(), 0
        self._pieces = HttpRequestParser(self._found)
        _feed(self._pieces, _BEFORE_PIECES)

    def _take(self) -> bytes:
        found = bytes(self._data[: self._left])
        del self._data[: len(found)]
        self._left -= len(found)
        self.complete = not self._left
        if found:
            self.expects = False
        return found

    def _in_parts(self, pieces: HttpRequestParser) -> bytes:
        """All that has come of the pieces, and nothing of what is behind them.

        They end with `_END`, so what is read at once goes up to one, or leaves out what may be the beginning of one.
        """
        data, found = self._data, self._found
        parts: list[bytes] = []
        while not found.complete:
            end = data.find(_END)
            size = end + 4 if end >= 0 else len(data) - next((n for n in (3, 2, 1) if data.endswith(_END[:n])), 0)
            if not size:
                break
            _feed(pieces, data[:size])
            del data[:size]
            self.expects = False
            self._barren = 0 if found.parts else self._barren + size
            if self._barren > self._head_bytes_max:
                raise Unreadable(431, "there is too much between the pieces of the body, or behind them")
            parts += found.parts
            found.parts.clear()
        self.complete = found.complete
        return b"".join(parts)

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


def _read_head(data: bytearray) -> Head:
    found = _HeadFound()
    parser = HttpRequestParser(found)
    _feed(parser, data)
    method, version = parser.get_method(), parser.get_http_version().encode("ascii")
    if version not in (b"1.0", b"1.1") or not data.startswith(b"%b %b HTTP/%b\r\n" % (method, found.target, version)):
        raise Unreadable(400, "a request begins with its method, its target and HTTP/1.1, one space between them")
    if method == b"CONNECT":
        raise Unreadable(501, "this is no proxy")
    return Head(method, found.target, version, found.fields)


def _feed(parser: HttpRequestParser, data: bytes | bytearray) -> None:
    """Raises Unreadable. An upgrade is not made: such a request is one like others (RFC 9110, 7.8)."""
    try:
        parser.feed_data(data)
    except HttpParserUpgrade:
        return
    except HttpParserError as error:
        raise Unreadable(400, f"this is no request of HTTP/1.1: {error}") from error
