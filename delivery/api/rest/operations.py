"""Every path of topics, with what it takes and answers: the routes and the OpenAPI document are made from this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delivery.api.rest import texts
from delivery.api.rest.requests import Published
from delivery.api.rest.waits import WAIT_SECONDS_MAX
from delivery.messaging.names import TTL_DEFAULT_SECONDS, TTL_MAX_SECONDS
from delivery.model import PARTITIONS_MAX

TOPICS: Final = "/v1/namespaces/{namespace}/topics"
TOPIC: Final = f"{TOPICS}/{{topic}}"


class Body(msgspec.Struct, frozen=True):
    """What a request or an answer holds."""

    json: Any
    """The type of its JSON, or its schema."""
    avro: str | None = None
    """Its schema in `idl/topics`, if it may be Avro."""
    required: bool = True


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    name: str
    method: str
    path: str
    summary: str
    errors: Sequence[int]
    """The status codes that it answers beside 200 and those that every call may (errors.EVERYWHERE)."""
    body: Body | None = None
    answer: Body | None = None
    """None for an empty answer."""
    query: dict[str, Any] = {}
    """Schemas of parameters in the query."""


_PROPERTIES: Final = Body(
    {
        "type": "object",
        "additionalProperties": {"type": ["string", "number", "boolean"]},
        "properties": {
            "ttl": {
                "type": ["integer", "string"],
                "minimum": 1,
                "maximum": TTL_MAX_SECONDS,
                "pattern": "^[+]?[0-9]+$",
                "default": TTL_DEFAULT_SECONDS,
                "description": "seconds",
            }
        },
    },
    required=False,
)
_PUBLISH: Final = Body(texts.Publish, "PublishRequest")
_PUBLISHED: Final = Body(Published, "PublishResponse")
_WAIT: Final = {
    "type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX, "default": 0,
    "description": "seconds to wait for a first message where there is none",
}  # fmt: skip
_PARTITION: Final = {
    "type": "integer", "minimum": 0, "maximum": PARTITIONS_MAX - 1,
    "description": "of a topic of several; what is published without one goes to any, of a transaction to the same one",
}  # fmt: skip
_PARTITIONS: Final = {"type": "integer", "minimum": 1, "maximum": PARTITIONS_MAX, "default": 1}

OPERATIONS: Final = (
    Operation(
        name="list", method="GET", path=TOPICS, summary="The topics of a namespace, sorted", errors=(400,),
        answer=Body(list[str]),
    ),
    Operation(
        name="create", method="PUT", path=TOPIC, summary="Make a topic", errors=(400, 409), body=_PROPERTIES,
        query={"partitions": _PARTITIONS},
    ),
    Operation(
        name="show", method="GET", path=TOPIC, summary="The properties of a topic, ttl and generation among them",
        errors=(400, 404), answer=Body(dict[str, str]),
    ),
    Operation(
        name="delete", method="DELETE", path=TOPIC, summary="End a topic with everything in it", errors=(400, 404)
    ),
    Operation(
        name="update", method="PUT", path=f"{TOPIC}/properties", summary="Replace all properties", errors=(400, 404),
        body=_PROPERTIES,
    ),
    Operation(
        name="publish", method="POST", path=f"{TOPIC}/publish",
        summary="Publish messages; in a transaction without any, those that were stored under its pointer",
        errors=(400, 404, 409), body=_PUBLISH, answer=_PUBLISHED, query={"partition": _PARTITION},
    ),
    Operation(
        name="store", method="POST", path=f"{TOPIC}/store", summary="Store bodies for a later publish",
        errors=(400, 404, 409), body=_PUBLISH, query={"partition": _PARTITION},
    ),
    Operation(
        name="rollback", method="POST", path=f"{TOPIC}/rollback", summary="Take back what a publish answered with",
        errors=(400, 404, 409), body=_PUBLISHED,
    ),
    Operation(
        name="poll", method="POST", path=f"{TOPIC}/poll", summary="Messages from a place on", errors=(400, 404),
        body=Body(texts.Consume, "ConsumeRequest"), answer=Body(list[texts.Message], "ConsumeResponse"),
        query={"partition": _PARTITION, "wait": _WAIT},
    ),
)  # fmt: skip
"""In the order in which they are told."""
