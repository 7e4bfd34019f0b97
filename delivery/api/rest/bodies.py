"""Receiving a request's body: bounded in size, and over all requests together."""

from __future__ import annotations

import zlib
from types import TracebackType
from typing import Final, Self

from starlette.requests import Request

from delivery.api.rest.errors import UnknownEncoding
from delivery.errors import InvalidRequest, MessageTooLarge, Throttled

BODY_BYTES_MAX: Final = 10 * 1024 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS


class Bodies:
    """The bodies in memory. For the trio thread."""

    def __init__(self, bytes_max: int) -> None:
        """All bodies together take `bytes_max`."""
        self._bytes_max = bytes_max
        self.bytes = 0
        """Of bodies that came and whose requests are not answered yet."""

    def intake(self) -> Intake:
        """Room for one body, for as long as the context lasts."""
        return Intake(self)

    def take(self, size: int) -> None:
        """Count bytes. Raises Throttled."""
        if self.bytes + size > self._bytes_max:
            raise Throttled("too many requests are being received at this moment")
        self.bytes += size


class Intake:
    """One body on its way."""

    def __init__(self, bodies: Bodies) -> None:
        self.complete = False
        """Whether all of the request is here: what follows on the connection is another one."""
        self._bodies = bodies
        self._data: bytes | bytearray = b""
        self._sent = 0
        self._unzip: zlib._Decompress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bodies.bytes -= len(self._data)

    async def receive(self, request: Request) -> bytes:
        """The body, decompressed; once. How long it may take is the caller's to say.

        Raises MessageTooLarge above 10 MiB, Throttled above what all may take, UnknownEncoding, and InvalidRequest
        where it is not compressed as it says, or was broken off.
        """
        self._check_head(request)
        while not self.complete:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise InvalidRequest("the client broke off in the middle of the body")
            self.complete = not message.get("more_body", False)
            self._add(message.get("body", b""))
        if self._unzip is not None and not self._unzip.eof:
            raise InvalidRequest("the body ends in the middle of what was compressed")
        return bytes(self._data)

    def _check_head(self, request: Request) -> None:
        """Raises what can be known before anything of the body was read."""
        fields = dict(request.scope["headers"])  # at once: a look-up in Starlette's takes as long
        if (given := fields.get(b"content-encoding")) is not None:
            self._check_encoding(given.decode("latin-1").strip().lower())
        length = fields.get(b"content-length", b"0")
        if len(length) > 15 or int(length) > BODY_BYTES_MAX:
            raise _too_large()

    def _check_encoding(self, encoding: str) -> None:
        if encoding not in ("identity", "gzip"):
            raise UnknownEncoding(f"a body in {encoding[:40]!r} is not known here")
        if encoding == "gzip":
            self._unzip = zlib.decompressobj(_GZIP)

    def _add(self, piece: bytes) -> None:
        self._sent += len(piece)
        if self._unzip is not None:
            piece = self._unzipped(self._unzip, piece)
        if max(self._sent, len(self._data) + len(piece)) > BODY_BYTES_MAX:
            raise _too_large()
        self._bodies.take(len(piece))
        if not self._data:
            self._data = piece
        else:
            self._data = bytearray(self._data) if isinstance(self._data, bytes) else self._data
            self._data += piece

    def _unzipped(self, unzip: zlib._Decompress, piece: bytes) -> bytes:
        try:
            found = unzip.decompress(piece, BODY_BYTES_MAX - len(self._data) + 1)
        except zlib.error as error:
            raise InvalidRequest("the body is not compressed with gzip, as it says") from error
        if unzip.unused_data:
            raise InvalidRequest("there is more behind what was compressed")
        if unzip.unconsumed_tail:
            raise _too_large()
        return found


def _too_large() -> MessageTooLarge:
    return MessageTooLarge(f"a body has at most {BODY_BYTES_MAX} bytes, decompressed")
