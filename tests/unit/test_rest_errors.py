"""What every error is over HTTP: the status codes of seed 003, and a code, a text and a hint for programs."""

from __future__ import annotations

import msgspec
import pytest
from starlette.datastructures import Headers

from delivery import errors
from delivery.api.rest.errors import (
    EVERYWHERE,
    STATUS_TEXTS,
    Problem,
    SlowBody,
    UnknownEncoding,
    error_response as shown,
)
from delivery.api.rest.operations import OPERATIONS
from delivery.errors import HootError
from delivery.transactions.errors import TransactionExpired

STATUS: dict[type[HootError], int] = {
    errors.InvalidRequest: 400, errors.UnknownQueue: 404, SlowBody: 408, errors.QueueExists: 409,
    errors.QueueClosed: 409, errors.MessageTooLarge: 413, UnknownEncoding: 415, TransactionExpired: 500,
    errors.NotOwner: 503, errors.Fenced: 503, errors.Throttled: 503, errors.UnknownOutcome: 503, errors.NoHost: 503,
    errors.DeadlineExceeded: 503, errors.HostUnreachable: 503, errors.MetadataUnavailable: 503,
    errors.StorageUnavailable: 503, errors.ServiceStopping: 503, errors.CorruptRecord: 500,
}  # fmt: skip


@pytest.mark.parametrize("kind", STATUS, ids=lambda kind: kind.__name__)
def test_an_error_has_its_status_and_says_why_to_programs_and_people(kind: type[HootError]) -> None:
    error = kind("this is why")
    told = shown(error, Headers({"accept": "application/json"}))
    problem = msgspec.json.decode(bytes(told.body), type=Problem)
    assert (told.status_code, told.headers["content-type"]) == (STATUS[kind], "application/json")
    assert (problem.code, problem.message) == (error.code, error.message)
    assert problem.hint
    read = shown(error, Headers({"content-type": "avro/binary"}))
    assert (read.status_code, bytes(read.body)) == (STATUS[kind], error.message.encode())
    assert read.headers["content-type"] == "text/plain; charset=utf-8"
    assert ("retry-after" in read.headers) == (read.status_code == 503)


def test_a_connection_ends_when_the_rest_of_a_request_is_not_wanted() -> None:
    assert "connection" not in shown(SlowBody("x"), Headers({})).headers
    assert shown(SlowBody("x"), Headers({}), received=False).headers["connection"] == "close"


def test_the_document_tells_of_all_of_them() -> None:
    told = {code for one in OPERATIONS for code in (*one.errors, *EVERYWHERE)}
    assert told == set(STATUS.values()) == set(STATUS_TEXTS)
