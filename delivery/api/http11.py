"""HTTP/1.1 on one connection: `wire` reads and writes it, an ASGI application answers, and one task does all of it.

A request that waits (a long poll) costs that task and nothing more: while the application awaits `receive`, which is
ASGI's way to hear that a client has left, the task sleeps on the socket.
"""

from __future__ import annotations

import os
import time
from email.utils import formatdate
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

import trio
from starlette.types import ASGIApp, Message, Scope

from delivery.api.wire import Head, Unreadable, Wire
from delivery.rpc.outbox import receive_into

HEAD_SECONDS: Final = 30.0
"""Between two requests, the head of the next one included."""
WRITE_SECONDS: Final = 30.0
"""For a client to take one piece of an answer: slower ones would hold memory."""
HEAD_BYTES_MAX: Final = 16 * 1024
_PARTING_SECONDS: Final = 2.0
"""For what a client is still sending when its connection ends: closed at once, it would lose the answer as well."""
_SPACE: Final = memoryview(bytearray(64 * 1024))
"""Where sockets are read into; what is there is taken out in the same turn."""
_GONE: Final[Message] = {"type": "http.disconnect"}
_VERSION: Final = {"version": "3.0", "spec_version": "2.3"}


class ClientGone(OSError):
    """The client has closed the connection, or takes nothing: nobody needs the rest of the answer."""


class Conversation:
    """The requests of one connection, one after another. Closes the socket's sending side at most."""

    def __init__(self, app: ASGIApp, socket: trio.socket.SocketType) -> None:
        self._app, self._socket = app, socket
        self._wire = Wire(HEAD_BYTES_MAX)
        self._method = ""
        self._idle = False
        """Whether a request is waited for."""
        self._idle_since: float | None = None
        """Since when it was seen waiting for this one."""
        self._start: Message | None = None
        """The beginning of an answer, which is sent together with the first bytes of its body."""
        self._begun = False
        """Whether the head of an answer is on its way."""
        self._told = False
        """Whether the application has all of the request's body."""

    async def run(self) -> None:
        """Answer until the client leaves or breaks the rules. Raises what the application did not foresee."""
        try:
            while (head := await self._head()) is not None:
                await self._answer(head)
                if not self._next_cycle():
                    break
            await self._part()
        except (ClientGone, trio.ClosedResourceError):
            pass

    def look(self, now: float) -> None:
        """Close the connection if it has waited for a request for too long. To be called every now and then."""
        if self._idle:
            self._idle_since = self._idle_since or now
            if now - self._idle_since > HEAD_SECONDS:
                self._socket.close()

    async def _answer(self, head: Head) -> None:
        try:
            await self._app(self._begin(head), self._receive, self._send)
        except ClientGone:
            raise
        except Exception:
            if not self._begun:
                await self._say(500, b"the host failed in a way nobody foresaw")
            raise

    async def _head(self) -> Head | None:
        """The next request; None where none comes."""
        self._idle = True
        try:
            while (head := self._wire.head()) is None and not self._wire.ended:
                await self._read()
        except Unreadable as error:
            await self._say(error.status, str(error).encode("ascii", "replace"))
            return None
        finally:
            self._idle, self._idle_since = False, None
        return head

    def _begin(self, head: Head) -> Scope:
        path, _, query = head.target.partition(b"?")
        self._method, self._start, self._begun, self._told = head.method.decode("ascii"), None, False, False
        return {
            "type": "http", "asgi": _VERSION, "http_version": head.version.decode("ascii"),
            "method": self._method, "scheme": "http", "path": unquote(path.decode("ascii")), "raw_path": path,
            "query_string": query, "root_path": "", "headers": head.fields, "client": None, "server": None,
        }  # fmt: skip

    async def _receive(self) -> Message:
        """ASGI's `receive`: what has come of the body; behind its end that the client is gone. May be cancelled."""
        if self._told:
            return await self._until_gone()
        wire = self._wire
        try:
            while (body := b"" if wire.complete else wire.body()) is None:
                await self._more()
        except Unreadable:
            return _GONE
        self._told = wire.complete
        return {"type": "http.request", "body": body, "more_body": not wire.complete}

    async def _more(self) -> None:
        """Wait for more of the body, for which the client may be waiting itself."""
        if self._wire.expects:
            self._wire.expects = False
            await self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await self._read()

    async def _until_gone(self) -> Message:
        while not self._wire.ended:
            if self._wire.waiting:  # the next request, which has to wait: no more is taken in before it is due
                await trio.sleep_forever()
            await self._read()
        return _GONE

    async def _read(self) -> None:
        """Take in what comes next; also that nothing does any more."""
        try:
            size = await receive_into(self._socket, lambda: _SPACE)
        except OSError:
            size = 0
        self._wire.receive(_SPACE[:size])

    async def _send(self, message: Message) -> None:
        """ASGI's `send`. Raises ClientGone."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        parts: list[bytes] = []
        if self._start is not None:
            parts.append(self._answer_head(self._start))
            self._start = None
        body = b"" if self._method == "HEAD" else message.get("body", b"")
        parts.append(self._wire.piece(body, last=not message.get("more_body", False)))
        await self._write(b"".join(parts))

    def _answer_head(self, start: Message) -> bytes:
        self._begun = True
        fields = [*start["headers"], (b"date", _date(int(time.time())))]
        return self._wire.answer(start["status"], fields, bodiless=self._method == "HEAD")

    async def _write(self, data: bytes) -> None:
        """Send all of it, in this turn if the socket takes it. Raises ClientGone."""
        left = memoryview(data)
        try:
            left = left[self._written(left) :]
            if left:
                with trio.fail_after(WRITE_SECONDS):
                    while left:
                        await trio.lowlevel.wait_writable(self._socket)
                        left = left[self._written(left) :]
        except (OSError, ValueError, trio.TooSlowError, trio.ClosedResourceError) as error:
            raise ClientGone("the client is gone, or takes nothing") from error

    def _written(self, left: memoryview) -> int:
        try:
            return os.write(self._socket.fileno(), left)
        except BlockingIOError:
            return 0

    async def _say(self, status: int, text: bytes) -> None:
        """An answer of this layer's own, the last one."""
        self._method = ""
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text)),
            (b"connection", b"close"),
        ]  # fmt: skip
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": text})

    def _next_cycle(self) -> bool:
        """Make ready for another request; False if the connection has to end.

        Raises ClientGone when the answer was not finished: the client must find the connection cut.
        """
        wire = self._wire
        if not wire.answered:
            raise ClientGone("an answer was broken off")
        try:
            while not wire.complete and wire.body() is not None:
                pass
        except Unreadable:
            return False
        return wire.complete and not wire.closing

    async def _part(self) -> None:
        """Say goodbye, and let the client finish what it is sending, for a while."""
        if self._wire.ended:
            return
        with trio.move_on_after(_PARTING_SECONDS):
            try:
                self._socket.shutdown(trio.socket.SHUT_WR)
                while await receive_into(self._socket, lambda: _SPACE):
                    pass
            except OSError:
                return


@lru_cache(maxsize=2)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode("ascii")
