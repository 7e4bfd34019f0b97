"""The paths of transactions: `/v1/transactions…`, in JSON. Any host takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delivery.api.rest import texts
from delivery.api.rest.routes import Answered, Call
from delivery.api.rest.transaction_operations import (
    TRANSACTION_OPERATIONS,
    Begin,
    Begun,
    Commit,
    Prune,
    Pruned,
    Seen,
    Stands,
)
from delivery.api.transactions import AnyHost
from delivery.errors import InvalidRequest
from delivery.messaging.transactions import read_snapshot

SECONDS: Final = 20.0
"""How long the one who manages transactions is sought, for example when it has just died."""

T = TypeVar("T")


class TransactionRoutes:
    """The calls, each on a received body."""

    def __init__(self, host: AnyHost, answered: Answered) -> None:
        """`answered` has a call's body received, and its errors made into answers."""
        self._host, self._answered = host, answered

    def routes(self) -> Sequence[Route]:
        """All paths."""
        calls = {
            "begin": self._begin, "look": self._look, "prune": self._prune, "standing": self._standing,
            "commit": self._commit, "abort": self._end("abortTransaction"),
            "invalidate": self._end("invalidateTransaction"),
        }  # fmt: skip
        return [
            Route(one.path, self._answered(calls[one.name]), methods=[one.method]) for one in TRANSACTION_OPERATIONS
        ]

    async def _begin(self, _: Request, body: bytes) -> Response:
        wanted = _read(body, Begin)
        timeout_ms = 0 if wanted.timeout is None else round(wanted.timeout * 1000)
        begun = await self._host.call("beginTransaction", timeout_ms, seconds=SECONDS)
        return _json(Begun(begun.writePointer, begun.deadlineMs, begun.snapshot))

    async def _look(self, _: Request, __: bytes) -> Response:
        snapshot = await self._host.call("transactionSnapshot", (), 0, seconds=SECONDS)
        seen = read_snapshot(snapshot)
        return _json(Seen(snapshot, seen.read_pointer, list(seen.in_progress), list(seen.invalid)))

    async def _prune(self, _: Request, body: bytes) -> Response:
        before = _read(body, Prune).before
        return _json(Pruned(await self._host.call("pruneTransactions", before, seconds=SECONDS)))

    async def _standing(self, request: Request, _: bytes) -> Response:
        return _json(Stands(await self._host.call("transactionState", _pointer(request), seconds=SECONDS)))

    async def _commit(self, request: Request, body: bytes) -> Response:
        changes = _read(body, Commit).changes
        await self._host.call("commitTransaction", _pointer(request), changes, seconds=SECONDS)
        return Response()

    def _end(self, method: str) -> Call:
        async def call(request: Request, _: bytes) -> Response:
            await self._host.call(method, _pointer(request), seconds=SECONDS)
            return Response()

        return call


def _read(body: bytes, kind: type[T]) -> T:
    """The body; nothing is as good as an empty object."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not the JSON that is meant here: {error}") from error


def _pointer(request: Request) -> int:
    text = request.path_params["pointer"]
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise InvalidRequest(f"{text[:40]!r} is no write pointer of a transaction")
    return int(text)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type=texts.CONTENT_TYPE)
