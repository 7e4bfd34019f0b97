"""Handing a request on to the host that owns the topic, and its answer back, as it comes.

Clients of the original follow no redirects of a POST, so hosts do it for them. A request is handed on once: a host that
gets one from another and does not own the topic says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

import h11
import trio
from starlette.requests import Request
from starlette.responses import Response

from delivery.api.rest.streams import StreamResponse
from delivery.errors import DeadlineExceeded, HootError, HostUnreachable, NotOwner
from delivery.metastore.records import HostRecord
from delivery.networks import host_port

MARK: Final = "hoot-forwarded-by"
"""The header that names the host which hands a request on."""
CONNECT_SECONDS: Final = 3.0
SILENCE_SECONDS: Final = 40.0
"""Longer than a host takes to answer with an error of its own."""
_KEPT: Final = (b"accept", b"content-type")
_PASSED_ON: Final = ("content-type", "retry-after")


class Forwarder:
    """Hands requests on."""

    def __init__(self, me: str, find: Callable[[str], Awaitable[HostRecord | None]]) -> None:
        """`me` is this host's id; `find` gives the other host that lives at a host:port."""
        self._me, self._find = me, find

    async def forward_waiting(self, request: Request, body: bytes, refusal: NotOwner, seconds: float) -> Response:
        """The answer to a poll that may wait so long; an empty one when the client has left, as this host then does."""
        outcome: Response | HootError = Response()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, request, nursery.cancel_scope)
            try:
                outcome = await self.forward(request, body, refusal, SILENCE_SECONDS + seconds)
            except HootError as error:  # not out of the nursery, which would make a group of it
                outcome = error
            nursery.cancel_scope.cancel()
        if isinstance(outcome, HootError):
            raise outcome
        return outcome

    async def forward(
        self, request: Request, body: bytes, refusal: NotOwner, silence: float = SILENCE_SECONDS
    ) -> Response:  # fmt: skip
        """The answer of the owner that `refusal` names, which says nothing for so many seconds at most.

        Raises `refusal` where there is no such host, or the request was handed on already; HostUnreachable and
        DeadlineExceeded: nobody knows what became of a publish.
        """
        if MARK in request.headers:
            raise refusal
        owner = None if refusal.address is None else await self._find(refusal.address)
        if owner is None or owner.http_port is None:
            raise refusal
        exchange = _Exchange(owner, silence)
        try:
            head = await exchange.ask(request, body, self._me)
            pieces = exchange.pieces()
            if head.status_code != 200 or _header(head, "transfer-encoding") != "chunked":
                return await _whole(head, pieces, exchange)
        except BaseException:
            await exchange.close()
            raise
        return StreamResponse(b"", pieces, _header(head, "content-type") or "", exchange.drop)


class _Exchange:
    """One request to another host, on a connection of its own."""

    def __init__(self, host: HostRecord, silence: float) -> None:
        self._host, self._silence = host, silence
        self._http = h11.Connection(h11.CLIENT)
        self._stream: trio.SocketStream | None = None

    async def ask(self, request: Request, body: bytes, me: str) -> h11.Response:
        """Send the request; the head of the answer."""
        address, port = self._host.address, self._host.http_port
        assert port is not None
        place = host_port(address, port)
        named = {"host": place, "content-length": str(len(body)), MARK: me}
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        headers += [(name, value) for name, value in request.scope["headers"] if name in _KEPT]
        query = request.scope["query_string"]
        target = request.scope["raw_path"] + (b"?" + query if query else b"")
        ask = h11.Request(method=request.method, target=target, headers=headers)
        with self._told():
            with trio.fail_after(CONNECT_SECONDS):
                self._stream = await trio.open_tcp_stream(address, port)
            with trio.fail_after(SILENCE_SECONDS):
                for part in (ask, h11.Data(data=body), h11.EndOfMessage()):
                    await self._stream.send_all(self._http.send(part) or b"")
            while not isinstance(event := await self._next(), h11.Response):
                if not isinstance(event, h11.InformationalResponse):
                    raise HostUnreachable(f"the host at {place}, which owns the topic, closed the connection")
            return event

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body of the answer."""
        with self._told():
            while isinstance(event := await self._next(), h11.Data):
                yield bytes(event.data)

    async def close(self) -> None:
        """Let go of the connection, at once."""
        if self._stream is not None:
            await trio.aclose_forcefully(self._stream)

    def drop(self) -> None:
        """The same, where nothing can be waited for."""
        if self._stream is not None:
            self._stream.socket.close()

    async def _next(self) -> object:
        """The next event of the answer."""
        assert self._stream is not None
        while (event := self._http.next_event()) is h11.NEED_DATA:
            with trio.fail_after(self._silence):
                self._http.receive_data(await self._stream.receive_some())
        return event

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        where = f"the host at {host_port(self._host.address, self._host.http_port)}"
        try:
            yield
        except trio.TooSlowError:
            raise DeadlineExceeded(f"{where}, which owns the topic, did not answer in time") from None
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError) as error:
            raise HostUnreachable(f"{where}, which owns the topic, did not answer: {error}") from error


async def _until_gone(request: Request, scope: trio.CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _whole(head: h11.Response, pieces: AsyncIterator[bytes], exchange: _Exchange) -> Response:
    body = b"".join([piece async for piece in pieces])
    await exchange.close()
    kept = {name: value for name in _PASSED_ON if (value := _header(head, name)) is not None}
    return Response(body, head.status_code, kept)


def _header(head: h11.Response, name: str) -> str | None:
    return next((value.decode("ascii") for key, value in head.headers if key == name.encode()), None)
