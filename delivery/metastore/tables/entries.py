"""An entry as a znode: its name and its bytes.

The name is the key, percent-encoded where it is not a letter, a digit or one of `-._~`.

The value is one byte, 1, the version of this layout; then a MessagePack map from field name to bytes. Fields that hold
JSON can be read in it with `zkCli get`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

import msgspec

from delivery.errors import CorruptRecord, HootError
from delivery.metastore.tables.values import Value

_FORMAT: Final = b"\x01"


def encode_key(key: str) -> str:
    """The name of a key's znode."""
    name = quote(key, safe="")
    return name.replace(".", "%2E") if name in (".", "..") else name


def decode_key(name: str, folder: str) -> str:
    """The key of a znode in `folder`. Raises CorruptRecord for a name that no key has."""
    try:
        key = unquote(name, errors="strict")
    except UnicodeDecodeError:
        key = ""
    if not key or encode_key(key) != name:
        raise CorruptRecord(f"{folder}/{name[:80]} is not Hoot's: no key is written like this")
    return key


def encode_value(value: Value) -> bytes:
    """The bytes of a znode; at most 10 per field and 4 more than the value's size."""
    return _FORMAT + msgspec.msgpack.encode(dict(value))


def decode_value(data: bytes, table: str, key: str) -> Value:
    """The fields in a znode. Raises CorruptRecord, which names table and key, when they are foreign or damaged."""
    try:
        if data[:1] != _FORMAT:
            raise CorruptRecord(f"entry {key!r} of table {table} is not in Hoot's format: it begins with {data[:1]!r}")
        return Value(msgspec.msgpack.decode(data[1:], type=dict[str, bytes]))
    except msgspec.DecodeError as error:
        raise CorruptRecord(f"entry {key!r} of table {table} does not parse: {error}") from error
    except CorruptRecord:
        raise
    except HootError as error:
        raise CorruptRecord(f"entry {key!r} of table {table} cannot be: {error.message}") from error
