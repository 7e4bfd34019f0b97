"""The Avro bodies from the client's side: what `hoot bench` sends, and what it reads of the answers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, cast

import fastavro

from delivery.api.rest.avro import schema
from delivery.messaging.polling import Given


def write_publish(messages: Sequence[bytes]) -> bytes:
    """A PublishRequest outside transactions."""
    return _written("PublishRequest", {"transactionWritePointer": None, "messages": messages})


def write_consume(start_from: bytes | None, limit: int | None = None) -> bytes:
    """A ConsumeRequest: from the beginning, or from what follows the message with that id."""
    return _written(
        "ConsumeRequest", {"startFrom": start_from, "inclusive": False, "limit": limit, "transaction": None}
    )


def read_consumed(body: bytes) -> list[Given]:
    """A ConsumeResponse."""
    found = cast("list[dict[str, Any]]", fastavro.schemaless_reader(io.BytesIO(body), schema("ConsumeResponse"), None))
    return [Given(one["id"], one["payload"]) for one in found]


def _written(name: str, record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema(name), record)
    return out.getvalue()
