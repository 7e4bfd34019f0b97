"""HTTP/1.1 on one connection: h11 reads and writes it, an ASGI application answers, and one task does all of it.

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

import h11
import trio
from starlette.types import ASGIApp, Message, Scope

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
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._method = ""
        self._idle_since: float | None = None
        """Since when a request is waited for."""
        self._start: Message | None = None
        """The beginning of an answer, which is sent together with the first bytes of its body."""
        self._received = False
        """Whether all of the request is here."""

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
        if self._idle_since is not None and now - self._idle_since > HEAD_SECONDS:
            self._socket.close()

    async def _answer(self, head: h11.Request) -> None:
        try:
            await self._app(self._begin(head), self._receive, self._send)
        except ClientGone:
            raise
        except Exception:
            if self._http.our_state is h11.SEND_RESPONSE:
                await self._say(500, b"the host failed in a way nobody foresaw")
            raise

    async def _head(self) -> h11.Request | None:
        """The next request; None where none comes."""
        self._idle_since = trio.current_time()
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                await self._read()
        except h11.RemoteProtocolError as error:
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await self._say(error.error_status_hint, str(error).encode("ascii", "replace"))
            return None
        finally:
            self._idle_since = None
        return event if isinstance(event, h11.Request) else None

    def _begin(self, head: h11.Request) -> Scope:
        path, _, query = head.target.partition(b"?")
        self._method, self._start, self._received = head.method.decode("ascii"), None, False
        return {
            "type": "http", "asgi": _VERSION, "http_version": head.http_version.decode("ascii"),
            "method": self._method, "scheme": "http", "path": unquote(path.decode("ascii")), "raw_path": path,
            "query_string": query, "root_path": "", "headers": list(head.headers), "client": None, "server": None,
        }  # fmt: skip

    async def _receive(self) -> Message:
        """ASGI's `receive`: what has come of the body; behind its end that the client is gone. May be cancelled."""
        if self._received:
            return await self._until_gone()
        pieces: list[bytes] = []
        try:
            while not self._received:
                event = self._http.next_event()
                if isinstance(event, h11.Data):
                    pieces.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    self._received = True
                elif pieces:
                    break
                else:
                    await self._more()
        except h11.RemoteProtocolError:
            return _GONE
        return {"type": "http.request", "body": b"".join(pieces), "more_body": not self._received}

    async def _more(self) -> None:
        """Wait for more of the body, for which the client may be waiting itself."""
        if self._http.they_are_waiting_for_100_continue:
            await self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        await self._read()

    async def _until_gone(self) -> Message:
        while not self._http.trailing_data[1]:
            if self._http.trailing_data[0]:  # the next request, which has to wait: no more is taken in before it is due
                await trio.sleep_forever()
            await self._read()
        return _GONE

    async def _read(self) -> None:
        """Take in what comes next; also that nothing does any more."""
        try:
            size = await receive_into(self._socket, lambda: _SPACE)
        except OSError:
            size = 0
        self._http.receive_data(bytes(_SPACE[:size]))

    async def _send(self, message: Message) -> None:
        """ASGI's `send`. Raises ClientGone."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        parts: list[bytes] = []
        if self._start is not None:
            parts.append(self._answer_head(self._start))
            self._start = None
        if (body := message.get("body", b"")) and self._method != "HEAD":
            parts.append(self._http.send(h11.Data(data=body)) or b"")
        if not message.get("more_body", False):
            parts.append(self._http.send(h11.EndOfMessage()) or b"")
        await self._write(b"".join(parts))

    def _answer_head(self, start: Message) -> bytes:
        headers = [*start["headers"], (b"date", _date(int(time.time())))]
        return self._http.send(h11.Response(status_code=start["status"], headers=headers)) or b""

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
        http = self._http
        if http.our_state not in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
            raise ClientGone("an answer was broken off")
        try:
            while http.their_state is h11.SEND_BODY and http.next_event() is not h11.NEED_DATA:
                pass
        except h11.RemoteProtocolError:
            return False
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        http.start_next_cycle()
        return True

    async def _part(self) -> None:
        """Say goodbye, and let the client finish what it is sending, for a while."""
        if self._http.trailing_data[1]:
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
