"""The bodies in Avro's binary encoding, as clients of the original send and expect them; schemas in `idl/topics`."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, Final

import fastavro
import msgspec

from delivery.api.rest.requests import ConsumeRequest, Published, PublishRequest
from delivery.api.rest.streams import Blocks
from delivery.errors import InvalidRequest
from delivery.messaging.ids import ID_BYTES
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
    fastavro.schemaless_writer(out, schema("PublishResponse"), msgspec.to_builtins(record))
    return out.getvalue()


class AvroBlocks(Blocks):
    """A ConsumeResponse, an array block at a time."""

    content_type = CONTENT_TYPE

    def _block(self, ids: Sequence[bytes], payloads: Sequence[bytes], *, first: bool, last: bool) -> bytes:
        del first
        parts = zip(repeat(_ID_SIZE), ids, map(long, map(len, payloads)), payloads)
        count = [long(len(ids))] if ids else []
        return b"".join((*count, *chain.from_iterable(parts), b"\0" if last else b""))


@lru_cache(maxsize=4096)
def long(number: int) -> bytes:
    """A number that is not negative, in zigzag and seven bits a byte."""
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_ID_SIZE: Final = long(ID_BYTES)


@lru_cache
def schema(name: str) -> Any:
    """A schema of `idl/topics`, parsed."""
    return fastavro.parse_schema(json.loads(schema_text(name)))


def schema_text(name: str) -> str:
    """A schema of `idl/topics`, in JSON."""
    return idl_path(f"topics/{name}.avsc").read_text()


def _read(name: str, body: bytes) -> dict[str, Any]:
    """The record at the beginning of a body; bytes behind it mean nothing, as in the original."""
    try:
        found: Any = fastavro.schemaless_reader(io.BytesIO(body), schema(name), None)
    except (EOFError, LookupError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise InvalidRequest(f"the body is no {name} in Avro's binary encoding") from error
    return dict(found)
