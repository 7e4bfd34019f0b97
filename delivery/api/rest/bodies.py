"""Receiving a request's body: bounded in size, in time, and over all requests together."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final

import trio
from starlette.requests import ClientDisconnect, Request

from delivery.api.rest.errors import SlowBody, UnknownEncoding
from delivery.errors import InvalidRequest, MessageTooLarge, Throttled

BODY_BYTES_MAX: Final = 10 * 1024 * 1024
BODY_SECONDS: Final = 30.0
_GZIP: Final = 16 + zlib.MAX_WBITS


class Bodies:
    """The bodies in memory. For the trio thread."""

    def __init__(self, bytes_max: int, seconds: float = BODY_SECONDS) -> None:
        """All bodies together take `bytes_max`; each must be here within `seconds`."""
        self._bytes_max, self._seconds = bytes_max, seconds
        self.bytes = 0
        """Of bodies that came and whose requests are not answered yet."""

    @asynccontextmanager
    async def received(self, request: Request) -> AsyncIterator[bytes]:
        """The body, decompressed, for as long as the context lasts.

        Raises MessageTooLarge above 10 MiB, Throttled above what all may take, SlowBody, UnknownEncoding, and
        InvalidRequest where it is not compressed as it says, or was broken off.
        """
        intake = _Intake(self, request)
        try:
            with trio.move_on_after(self._seconds) as scope:
                await intake.fill(request)
            if scope.cancelled_caught:
                raise SlowBody(f"the body did not come within {self._seconds:g} seconds")
            yield bytes(intake.data)
        finally:
            self.bytes -= intake.counted

    def take(self, size: int) -> None:
        """Count bytes. Raises Throttled."""
        if self.bytes + size > self._bytes_max:
            raise Throttled("too many requests are being received at this moment")
        self.bytes += size


class _Intake:
    """One body on its way."""

    def __init__(self, bodies: Bodies, request: Request) -> None:
        """Raises what can be known before anything of the body was read."""
        self.data = bytearray()
        self.counted = 0
        self._bodies = bodies
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip"):
            raise UnknownEncoding(f"a body in {encoding[:40]!r} is not known here")
        self._unzip = zlib.decompressobj(_GZIP) if encoding == "gzip" else None
        length = request.headers.get("content-length", "0")
        if len(length) > 15 or int(length) > BODY_BYTES_MAX:
            raise _too_large()

    async def fill(self, request: Request) -> None:
        """Receive all of it."""
        try:
            async with aclosing(request.stream()) as pieces:
                async for piece in pieces:
                    self._add(piece if self._unzip is None else self._unzipped(piece))
        except ClientDisconnect:
            raise InvalidRequest("the client broke off in the middle of the body") from None
        if self._unzip is not None and not self._unzip.eof:
            raise InvalidRequest("the body ends in the middle of what was compressed")

    def _add(self, piece: bytes) -> None:
        if len(self.data) + len(piece) > BODY_BYTES_MAX:
            raise _too_large()
        self._bodies.take(len(piece))
        self.counted += len(piece)
        self.data += piece

    def _unzipped(self, piece: bytes) -> bytes:
        assert self._unzip is not None
        try:
            found = self._unzip.decompress(piece, BODY_BYTES_MAX - len(self.data) + 1)
        except zlib.error as error:
            raise InvalidRequest("the body is not compressed with gzip, as it says") from error
        if self._unzip.unconsumed_tail:
            raise _too_large()
        return found


def _too_large() -> MessageTooLarge:
    return MessageTooLarge(f"a body has at most {BODY_BYTES_MAX} bytes, decompressed")
