"""Which encoding an answer over HTTP gets."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from delivery.api.rest.codecs import AVRO, JSON, Codec, answer_codec


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, AVRO),
        ("", AVRO),
        ("*/*", AVRO),
        ("text/html, application/json", JSON),
        ("application/json, avro/binary", JSON),
        ("avro/binary, application/json", AVRO),
        ("application/json;q=0.5, avro/binary", AVRO),
        ("application/json; q=0.8 , avro/binary;q=0.3", JSON),
        ("Application/JSON;charset=utf-8;Q=0.9, avro/binary;q=0.2", JSON),
        ("application/json;q=0, text/plain", AVRO),
        ("application/json;q=0.000", AVRO),
        ("application/json;q=soon", JSON),
        (",,;q=1,", AVRO),
    ],
)
def test_an_answer_has_the_encoding_that_accept_wants_most_otherwise_that_of_the_request(
    accept: str | None, expected: Codec
) -> None:
    headers = Headers({} if accept is None else {"accept": accept})
    assert answer_codec(headers, AVRO) is expected
