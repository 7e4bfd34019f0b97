"""What every error is on the wire: the seed's status codes, a text for people and, for programs, JSON with a code."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response

from delivery.api.rest.codecs import wants_json
from delivery.errors import HootError, InvalidRequest, MessageTooLarge, QueueClosed, QueueExists, UnknownQueue
from delivery.transactions.errors import (
    NoSuchWriter,
    TransactionConflict,
    TransactionExpired,
    TransactionFinished,
    TransactionInvalid,
    UnknownTransaction,
)

RETRY_SECONDS: Final = "1"


class SlowBody(InvalidRequest):
    """The request's body did not come in time; nothing was done."""

    code = "slow_body"


class UnknownEncoding(InvalidRequest):
    """The body is compressed in a way that is not known here."""

    code = "unknown_encoding"


_STATUS: Final[tuple[tuple[type[HootError], int, str], ...]] = (
    (SlowBody, 408, "send the body without pauses"),
    (UnknownEncoding, 415, "send the body as it is, or with gzip"),
    (MessageTooLarge, 413, "send fewer messages at a time"),
    (UnknownQueue, 404, "create the topic with PUT"),
    (QueueExists, 409, "its properties are changed with PUT …/properties"),
    (QueueClosed, 409, "hoot queue update --open lets publishers in again"),
    (TransactionExpired, 500, "begin another transaction"),
    (NoSuchWriter, 409, "begin another transaction with POST /v1/transactions"),
    (UnknownTransaction, 404, "begin one with POST /v1/transactions"),
    (TransactionFinished, 409, "begin another transaction"),
    (TransactionInvalid, 409, "take back what it published, then abort it"),
    (TransactionConflict, 409, "take back what it published, abort it, and do it again in another"),
    (InvalidRequest, 400, "docs/rest.md shows every request"),
)


STATUS_TEXTS: Final = {
    400: "What was sent means nothing here",
    404: "There is no such topic, or transaction",
    408: "The body did not come in time",
    409: "There is a topic of that name, or it is closed, or the transaction has ended, or met with another one",
    413: "The body, or a message in it, is too large",
    415: "The body is compressed in a way that is not known here",
    500: "The transaction is too old, or the host failed",
    503: "Not now: nobody owns the topic at this moment, the host is busy, or subscriptions are too far behind",
}
EVERYWHERE: Final = (408, 413, 415, 500, 503)
"""What any call may answer."""


class Problem(msgspec.Struct, frozen=True):
    """An error in JSON."""

    code: str
    message: str
    hint: str


def error_response(error: HootError, headers: Headers, *, received: bool = True) -> Response:
    """The answer to a request with these headers that failed; its connection ends if not all of it was received."""
    found = _error_response(error, headers)
    if not received:
        found.headers["connection"] = "close"
    return found


def _error_response(error: HootError, headers: Headers) -> Response:
    for kind, status, hint in _STATUS:
        if isinstance(error, kind):
            return problem_response(status, Problem(error.code, error.message, hint), headers)
    if error.retryable:
        problem = Problem(error.code, error.message, "try again in a moment")
        return problem_response(503, problem, headers, {"retry-after": RETRY_SECONDS})
    return problem_response(500, Problem(error.code, error.message, "the host's log may tell more"), headers)


def problem_response(
    status: int, problem: Problem, headers: Headers, more: dict[str, str] | None = None
) -> Response:  # fmt: skip
    """An error for whoever asked with these headers: in JSON for those who speak it, otherwise its text alone."""
    if wants_json(headers):
        return Response(msgspec.json.encode(problem), status, more, "application/json")
    return Response(problem.message, status, more, "text/plain")
