"""The paths of transactions: `/v1/transactions…`, in JSON. Any host takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delivery.api.rest import texts
from delivery.api.rest.routes import Answered, Call
from delivery.api.transactions import AnyHost
from delivery.errors import InvalidRequest
from delivery.messaging.transactions import read_snapshot

SECONDS: Final = 20.0
"""How long the one who manages transactions is sought, for example when it has just died."""
_ALL: Final = "/v1/transactions"
_ONE: Final = f"{_ALL}/{{pointer}}"

T = TypeVar("T")


class _Begin(msgspec.Struct):
    timeout: Annotated[float, msgspec.Meta(ge=0.001, le=1e6)] | None = None
    """In seconds."""


class _Commit(msgspec.Struct):
    changes: list[bytes] = []


class _Prune(msgspec.Struct):
    before: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    """In ms since 1970."""


class TransactionRoutes:
    """The calls, each on a received body."""

    def __init__(self, host: AnyHost, answered: Answered) -> None:
        """`answered` has a call's body received, and its errors made into answers."""
        self._host, self._answered = host, answered

    def routes(self) -> Sequence[Route]:
        """All paths."""
        found: list[tuple[str, str, Call]] = [
            (_ALL, "POST", self._begin),
            (_ALL, "GET", self._look),
            (f"{_ALL}/prune", "POST", self._prune),
            (_ONE, "GET", self._standing),
            (f"{_ONE}/commit", "POST", self._commit),
            (f"{_ONE}/abort", "POST", self._end("abortTransaction")),
            (f"{_ONE}/invalidate", "POST", self._end("invalidateTransaction")),
        ]
        return [Route(path, self._answered(call), methods=[method]) for path, method, call in found]

    async def _begin(self, _: Request, body: bytes) -> Response:
        wanted = _read(body, _Begin)
        timeout_ms = 0 if wanted.timeout is None else round(wanted.timeout * 1000)
        begun = await self._host.call("beginTransaction", timeout_ms, seconds=SECONDS)
        return _json(
            {
                "transactionWritePointer": begun.writePointer, "deadline": begun.deadlineMs,
                "transaction": begun.snapshot,
            }
        )  # fmt: skip

    async def _look(self, _: Request, __: bytes) -> Response:
        snapshot = await self._host.call("transactionSnapshot", (), 0, seconds=SECONDS)
        seen = read_snapshot(snapshot)
        return _json(
            {
                "transaction": snapshot, "readPointer": seen.read_pointer, "inProgress": seen.in_progress,
                "invalid": seen.invalid,
            }
        )  # fmt: skip

    async def _prune(self, _: Request, body: bytes) -> Response:
        before = _read(body, _Prune).before
        return _json({"pruned": await self._host.call("pruneTransactions", before, seconds=SECONDS)})

    async def _standing(self, request: Request, _: bytes) -> Response:
        return _json({"state": await self._host.call("transactionState", _pointer(request), seconds=SECONDS)})

    async def _commit(self, request: Request, body: bytes) -> Response:
        changes = _read(body, _Commit).changes
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
