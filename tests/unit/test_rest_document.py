"""The OpenAPI document by itself; a running host is asked with it in integration/rest/test_openapi.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from delivery.api.rest.openapi import PATH, document
from delivery.api.rest.operations import OPERATIONS
from tests.unit.test_rest_serving import Served, tell


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(each)


def test_a_host_serves_it() -> None:
    async def story(served: Served) -> None:
        answer = await served.told(f"GET {PATH} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert json.loads(body) == json.loads(json.dumps(document()))

    tell(story)


def test_it_has_every_call_with_all_that_it_takes_and_answers() -> None:
    found = document()
    for one in OPERATIONS:
        told = found["paths"][one.path][one.method.lower()]
        assert ("requestBody" in told) == (one.body is not None)
        assert ("content" in told["responses"]["200"]) == (one.answer is not None)
        assert {name for name in ("namespace", "topic") if f"{{{name}}}" in one.path} | set(one.query) == {
            parameter["name"] for parameter in told["parameters"]
        }
    poll = found["paths"]["/v1/namespaces/{namespace}/topics/{topic}/poll"]["post"]
    assert set(poll["requestBody"]["content"]) == {"application/json", "avro/binary"}
    assert poll["requestBody"]["content"]["avro/binary"]["schema"]["x-avro-schema"]["name"] == "ConsumeRequest"


def test_all_that_it_refers_to_is_in_it() -> None:
    found = document()
    references = {part["$ref"] for part in parts(found) if "$ref" in part}
    assert references
    for reference in references:
        place: Any = found
        for name in reference.removeprefix("#/").split("/"):
            place = place[name]
        assert place
