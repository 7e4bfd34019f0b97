"""The bodies in Avro's binary encoding, as clients of the original send and expect them; schemas in `idl/topics`."""

from __future__ import annotations

import io
import json
from functools import lru_cache
from typing import Any, Final

import fastavro
import msgspec

from delivery.api.rest.requests import ConsumeRequest, Published, PublishRequest
from delivery.api.rest.streams import Blocks
from delivery.errors import InvalidRequest
from delivery.messaging.polling import Given
from delivery.rpc.idl import idl_path

CONTENT_TYPE: Final = "avro/binary"


def read_publish(body: bytes) -> PublishRequest:
    """A PublishRequest. Raises InvalidRequest."""
    found = _read("PublishRequest", body)
    return PublishRequest(found["transactionWritePointer"], found["messages"])


def read_published(body: bytes) -> Published:
    """What `write_published` wrote. Raises InvalidRequest."""
    return msgspec.convert(_read("PublishResponse", body), Published)


def read_consume(body: bytes) -> ConsumeRequest:
    """A ConsumeRequest. Raises InvalidRequest."""
    found = _read("ConsumeRequest", body)
    return ConsumeRequest(found["startFrom"], found["inclusive"], found["limit"], found["transaction"])


def write_published(record: Published) -> bytes:
    """A PublishResponse."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _schema("PublishResponse"), msgspec.to_builtins(record))
    return out.getvalue()


class AvroBlocks(Blocks):
    """A ConsumeResponse, an array block at a time."""

    content_type = CONTENT_TYPE

    def _item(self, given: Given) -> list[bytes]:
        return [long(len(given.id)), given.id, long(len(given.payload)), given.payload]

    def _block(self, parts: list[bytes], count: int, *, first: bool, last: bool) -> bytes:
        del first
        return b"".join([long(count), *parts] if count else []) + (b"\0" if last else b"")


def long(number: int) -> bytes:
    """A number that is not negative, in zigzag and seven bits a byte."""
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


@lru_cache
def _schema(name: str) -> Any:
    return fastavro.parse_schema(json.loads(idl_path(f"topics/{name}.avsc").read_text()))


def _read(name: str, body: bytes) -> dict[str, Any]:
    """The record at the beginning of a body; bytes behind it mean nothing, as in the original."""
    try:
        found: Any = fastavro.schemaless_reader(io.BytesIO(body), _schema(name), None)
    except (EOFError, LookupError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise InvalidRequest(f"the body is no {name} in Avro's binary encoding") from error
    return dict(found)
