"""The bodies in JSON: bytes of messages and transactions in base64, ids of messages in hexadecimal digits."""

from __future__ import annotations

import json
import re
from binascii import b2a_base64, hexlify
from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec

from delivery.api.rest.requests import ConsumeRequest, Published, PublishRequest
from delivery.api.rest.streams import Blocks
from delivery.errors import InvalidRequest

CONTENT_TYPE: Final = "application/json"

_ID: Final = re.compile("([0-9a-fA-F]{2})*", re.ASCII)

T = TypeVar("T")


def _shown(**schema: object) -> msgspec.Meta:
    """What only the document says: these are refused later, after a topic that is missing."""
    return msgspec.Meta(extra_json_schema=schema)


_Digits = Annotated[str, _shown(pattern="^([0-9a-fA-F]{2}){20,}$")]
_Time = Annotated[int, _shown(minimum=0)]
_Limit = Annotated[int, _shown(minimum=1)]


class Publish(msgspec.Struct, rename="camel"):
    """A PublishRequest."""

    transaction_write_pointer: int | None = None
    messages: list[bytes] = []


class Consume(msgspec.Struct, rename="camel"):
    """A ConsumeRequest."""

    start_from: _Digits | _Time | None = None
    inclusive: bool = True
    limit: _Limit | None = None
    transaction: bytes | None = None


class Message(msgspec.Struct):
    """What a poll answers for one message."""

    id: Annotated[str, _shown(pattern="^[0-9a-f]{40}$")]
    payload: bytes


def read_publish(body: bytes) -> PublishRequest:
    """A PublishRequest. Raises InvalidRequest."""
    found = _read(body, Publish)
    return PublishRequest(_pointer(found.transaction_write_pointer), found.messages)


def read_published(body: bytes) -> Published:
    """What `write_published` wrote. Raises InvalidRequest."""
    return _read(body, Published)


def read_consume(body: bytes) -> ConsumeRequest:
    """A ConsumeRequest. Raises InvalidRequest."""
    found = _read(body, Consume)
    given = found.start_from
    start = _id(given) if isinstance(given, str) else given
    return ConsumeRequest(start, found.inclusive, found.limit, found.transaction)


def write_published(record: Published) -> bytes:
    """A PublishResponse."""
    return msgspec.json.encode(record)


def read_properties(body: bytes) -> dict[str, str]:
    """The properties of a topic: no body, or an object of texts, numbers and truth values, all taken as texts.

    Raises InvalidRequest for anything else, also for a key that comes twice.
    """
    if not body:
        return {}
    try:
        found = json.loads(body, object_pairs_hook=_unique, parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the properties are no JSON object: {error}") from error
    if not isinstance(found, dict):
        raise InvalidRequest("the properties must be a JSON object")
    return {key: _property(key, value) for key, value in found.items()}


class JsonBlocks(Blocks):
    """A ConsumeResponse: an array of objects."""

    content_type = CONTENT_TYPE

    def _block(self, ids: Sequence[bytes], payloads: Sequence[bytes], *, first: bool, last: bool) -> bytes:
        begin = b"[" if first else b"," if ids else b""
        items = [
            b'{"id":"%b","payload":"%b"}' % (hexlify(each), b2a_base64(payload, newline=False))
            for each, payload in zip(ids, payloads, strict=True)
        ]
        return begin + b",".join(items) + (b"]" if last else b"")


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not the JSON that is meant here: {error}") from error


def _id(digits: str) -> bytes:
    if not _ID.fullmatch(digits):
        raise InvalidRequest("startFrom must be the digits of a message id, a time in ms, or null")
    return bytes.fromhex(digits)


def _pointer(pointer: int | None) -> int | None:
    if pointer is not None and not -(2**63) <= pointer < 2**63:
        raise InvalidRequest("transactionWritePointer must be a number of 64 bits")
    return pointer


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


def _refuse(name: str) -> str:
    raise ValueError(f"{name} is no JSON")


def _property(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise InvalidRequest(f"property {key[:40]!r} must be a text, a number, true or false")
    return value
