"""Thrift's binary encoding, driven by the structs of the IDL: what its types are in bytes.

    struct    fields, then a 0 byte; a field is its type (i8), its id (i16) and its value
    bool, i8 … i64, double   1, 1 … 8, 8 bytes, big-endian
    string, binary           length (i32) and that many bytes; both have type 11
    list, set                type of the elements (i8), count (i32), the elements
    map                      types of key and value (i8, i8), count (i32), keys and values in turn
    message   0x8001 and the kind of message (two u16), the method's name (string), the sequence number (i32), a struct

The bytes are coded here (a struct by a function made for it in `compiled`, the rest in `encoder` and `decoder`)
rather than left to thriftpy2, for two reasons. Its decoder trusts the peer: sizes are allocated as declared, and 16
MB of empty structs become 1.9 GB. Checking a frame beforehand takes as long as decoding it, so the check *is* the
decoder. And thriftpy2 copies each blob three times on either way; here a blob is copied once on its way in and not at
all on its way out (256 KiB: 9 µs instead of 350 to encode, 18 instead of 440 to decode). The tests hold both
directions against thriftpy2 and Apache Thrift, byte for byte.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final, NamedTuple

from thriftpy2.thrift import TType

Part = bytes | bytearray | memoryview
"""One of several strings of bytes that are sent one after another."""

VERSION: Final = 0x8001
STOP: Final = TType.STOP
STRING: Final = TType.STRING
STRUCT: Final = TType.STRUCT
MAP: Final = TType.MAP
LISTS: Final = (TType.LIST, TType.SET)

LENGTH: Final = struct.Struct(">I")
"""Lengths and counts. They are signed in Thrift; read as unsigned, a negative one is merely far too large."""
FIELD: Final = struct.Struct(">bh")
HEAD: Final = struct.Struct(">HH")
FIXED: Final = {
    TType.BOOL: struct.Struct(">?"), TType.BYTE: struct.Struct(">b"), TType.I16: struct.Struct(">h"),
    TType.I32: struct.Struct(">i"), TType.I64: struct.Struct(">q"), TType.DOUBLE: struct.Struct(">d"),
}  # fmt: skip
LEAST: Final = {kind: fixed.size for kind, fixed in FIXED.items()} | {
    STRING: 4, STRUCT: 1, MAP: 6, TType.SET: 5, TType.LIST: 5,
}  # fmt: skip
"""The fewest bytes that a value of a type takes: a count may not promise more than the frame can hold."""


class Type(NamedTuple):
    """A type of the IDL made ready for coding: what it is, its number in the bytes, and what it is made of."""

    kind: int
    """As in the bytes, except that a binary is not a string."""
    wire: int
    fixed: struct.Struct
    """The coding of a number or a truth value; unused for the others."""
    made: Any
    """The class of a struct."""
    parts: tuple[Type, ...]
    """The type of a list's elements; of a map's keys and values."""
    wires: bytes
    """The same as they stand in the head of the container."""


class Field(NamedTuple):
    """One field of a struct; `head` is its type and id as bytes."""

    name: str
    type: Type
    head: bytes


@lru_cache(maxsize=256)  # more than the IDL has structs
def fields(made: Any) -> dict[int, Field]:
    """The fields of a struct class by their ids."""
    found = {}
    for number, (kind, name, *rest) in made.thrift_spec.items():
        of = _type(kind, rest[0] if len(rest) == 2 else None)
        found[number] = Field(name, of, FIELD.pack(of.wire, number))
    return found


def _type(kind: int, spec: Any = None) -> Type:
    """thriftpy2's spec is the class of a struct, the type of a list's elements, or a map's pair of types. Such a type
    is a number, or where that does not suffice a pair of the number and its own spec.
    """
    of = spec if kind == MAP else (spec,) if kind in LISTS else ()
    parts = tuple(_type(*part) if isinstance(part, tuple) else _type(part) for part in of)
    wire = STRING if kind == TType.BINARY else kind
    fixed = FIXED.get(kind, LENGTH)
    return Type(kind, wire, fixed, spec if kind == STRUCT else None, parts, bytes(part.wire for part in parts))
