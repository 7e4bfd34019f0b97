"""Thrift's binary encoding, driven by the structs of the IDL: structs to bytes and bytes to structs.

    struct    fields, then a 0 byte; a field is its type (i8), its id (i16) and its value
    bool, i8 … i64, double   1, 1 … 8, 8 bytes, big-endian
    string, binary           length (i32) and that many bytes; both have type 11
    list, set                type of the elements (i8), count (i32), the elements
    map                      types of key and value (i8, i8), count (i32), keys and values in turn

This is coded here rather than left to thriftpy2 for two reasons. Its decoder trusts the peer: sizes are allocated as
declared, and 16 MB of empty structs become 1.9 GB. Checking a frame beforehand takes as long as decoding it, so the
check *is* the decoder: every length is held against the bytes that are there, every value is counted, nesting is
limited, text must be UTF-8. And it copies each blob three times; here a blob is copied once on its way in and not at
all on its way out. The tests hold both directions against thriftpy2 and Apache Thrift, byte for byte.

Leniency is Thrift's: unknown fields and fields of another type are skipped, absent ones are None.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from thriftpy2.thrift import TType

from delivery.errors import InvalidRequest, ProtocolError

Part = bytes | bytearray | memoryview

VERSION: Final = 0x8001
VALUES_MAX: Final = 400_000
"""Values in one frame; a struct counts as many as it has fields. Some 20,000 messages of the plain calls."""
DEPTH_MAX: Final = 32
"""Nesting of structs and containers; the IDL needs 5."""
APART_BYTES: Final = 16 * 1024
"""A blob from this size on is sent as a part of its own instead of being copied: below it the copy is cheaper."""

_I16, _I32, _LENGTH = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">I")
_FIELD, _HEAD = struct.Struct(">bh"), struct.Struct(">HH")
_STOP, _STRING, _STRUCT, _MAP = TType.STOP, TType.STRING, TType.STRUCT, TType.MAP
_LISTS: Final = (TType.LIST, TType.SET)
_FIXED: Final = {
    TType.BOOL: struct.Struct(">?"), TType.BYTE: struct.Struct(">b"), TType.I16: _I16, TType.I32: _I32,
    TType.I64: struct.Struct(">q"), TType.DOUBLE: struct.Struct(">d"),
}  # fmt: skip
# The fewest bytes that a value of a type takes: a count may not promise more than the frame can hold.
_LEAST: Final = {kind: fixed.size for kind, fixed in _FIXED.items()} | {
    _STRING: 4, _STRUCT: 1, _MAP: 6, TType.SET: 5, TType.LIST: 5,
}  # fmt: skip


class _Type(NamedTuple):
    """A type of the IDL, made ready: its number in the bytes, what reads and writes it, and what it is made of."""

    wire: int
    fixed: struct.Struct | None
    read: Callable[[Decoder, _Type, int], Any]
    write: Callable[[Encoder, _Type, Any], None]
    made: Any = None
    """The class of a struct."""
    parts: tuple[_Type, ...] = ()
    """The type of a list's elements; of a map's keys and values."""
    wires: bytes = b""
    """The same as they stand in the head of the container."""


class _Field(NamedTuple):
    """One field of a struct; `head` is its type and id as bytes."""

    name: str
    type: _Type
    head: bytes


def _type(kind: int, spec: Any = None) -> _Type:
    if kind in _FIXED:
        return _Type(kind, _FIXED[kind], Decoder.fixed, Encoder.fixed)
    if kind == _STRING:
        return _Type(kind, None, Decoder.text, Encoder.text)
    if kind == TType.BINARY:
        return _Type(_STRING, None, Decoder.blob, Encoder.blob)
    if kind == _STRUCT:
        return _Type(kind, None, Decoder.structure, Encoder.structure, spec)
    parts = tuple(_type(*part) if isinstance(part, tuple) else _type(part) for part in _elements(kind, spec))
    wires = bytes(part.wire for part in parts)
    if kind == _MAP:
        return _Type(kind, None, Decoder.map, Encoder.map, None, parts, wires)
    return _Type(kind, None, Decoder.list, Encoder.list, None, parts, wires)


def _elements(kind: int, spec: Any) -> tuple[Any, ...]:
    """thriftpy2 gives a pair for a map, else one type; a type is a number, or a pair of number and what it is of."""
    return tuple(spec) if kind == _MAP else (spec,)


@lru_cache(maxsize=256)  # more than the IDL has structs
def _fields(made: Any) -> dict[int, _Field]:
    found = {}
    for number, (kind, name, *rest) in made.thrift_spec.items():
        of = _type(kind, rest[0] if len(rest) == 2 else None)
        found[number] = _Field(name, of, _FIELD.pack(of.wire, number))
    return found


class Encoder:
    """Collects one frame as parts for `sendmsg`: everything small in one part, large blobs as they are.

    `message`, then `struct`, then `parts`; the other methods write one value of a type each.
    """

    __slots__ = ("_now", "_parts")

    def __init__(self) -> None:
        self._now = bytearray(4)  # room for the length of the frame
        self._parts: list[Part] = [self._now]

    def message(self, kind: int, name: str, seqid: int) -> None:
        """The head of a message: version 1 and kind, the method's name, the sequence number."""
        raw = name.encode()
        self._now += struct.pack(f">HHi{len(raw)}si", VERSION, kind, len(raw), raw, seqid)

    def struct(self, value: Any) -> None:
        """A struct; fields that are None are left out. Raises InvalidRequest for what its type cannot hold."""
        for name, of, head in _fields(type(value)).values():
            content = getattr(value, name)
            if content is None:
                continue
            self._now += head
            try:
                of.write(self, of, content)
            except (struct.error, UnicodeEncodeError) as error:
                shown = f"{type(value).__name__}.{name}"
                raise InvalidRequest(f"{shown} cannot be {str(content)[:40]!r}: {error}") from None
        self._now.append(_STOP)

    def parts(self, frame_bytes_max: int) -> tuple[list[Part], int]:
        """The frame, its length in front, and how many bytes it is in all. Raises InvalidRequest above the limit."""
        total = sum(map(len, self._parts))
        if total - 4 > frame_bytes_max:
            raise InvalidRequest(f"a call of {total - 4} bytes is over the limit of {frame_bytes_max} bytes per frame")
        first = self._parts[0]
        assert isinstance(first, bytearray)
        _I32.pack_into(first, 0, total - 4)
        return self._parts, total

    def fixed(self, of: _Type, value: Any) -> None:
        """A number or a truth value."""
        assert of.fixed is not None
        self._now += of.fixed.pack(value)

    def text(self, _of: _Type, text: str) -> None:
        """A string as UTF-8."""
        raw = text.encode()
        self._now += _LENGTH.pack(len(raw))
        self._now += raw

    def blob(self, _of: _Type, blob: Part) -> None:
        """A binary; a large one becomes a part of its own and must not change until the frame was sent."""
        self._now += _LENGTH.pack(len(blob))
        if len(blob) < APART_BYTES:
            self._now += blob
        else:
            self._now = bytearray()
            self._parts += (blob, self._now)

    def structure(self, _of: _Type, value: Any) -> None:
        """A struct inside another value."""
        self.struct(value)

    def list(self, of: _Type, values: Any) -> None:
        """A list or set."""
        element = of.parts[0]
        self._now += of.wires + _LENGTH.pack(len(values))
        for value in values:
            element.write(self, element, value)

    def map(self, of: _Type, values: Any) -> None:
        """A map."""
        key, value = of.parts
        self._now += of.wires + _LENGTH.pack(len(values))
        for name, content in values.items():
            key.write(self, key, name)
            value.write(self, value, content)


class Decoder:
    """Reads one frame: `message`, then `struct`, in which every error of the peer is a ProtocolError.

    `data` must not change while it is read; nothing that is returned refers to it. Reading a number beyond the end
    raises IndexError or struct.error by itself, so only the lengths of strings and counts are checked by hand.
    """

    __slots__ = ("_at", "_data", "_end", "_left")

    def __init__(self, data: memoryview) -> None:
        self._data, self._at, self._end = data, 0, len(data)
        self._left = VALUES_MAX

    def message(self) -> tuple[int, str, int]:
        """The head of a message: its kind, the method's name, the sequence number."""
        try:
            version, kind = _HEAD.unpack_from(self._data)
            if version != VERSION:
                raise ProtocolError("this is not Thrift's strict binary protocol")
            self._at = _HEAD.size
            return kind & 0xFF, self.text(), self.fixed(_SEQUENCE, DEPTH_MAX)
        except struct.error:
            raise ProtocolError("a frame ends inside the head of a message") from None

    def struct(self, made: Any) -> Any:
        """The struct of class `made` that the rest of the frame holds, and nothing after it."""
        try:
            found = self._struct(made, DEPTH_MAX)
        except (IndexError, struct.error):
            raise ProtocolError("a frame ends inside a value") from None
        if self._at != self._end:
            raise ProtocolError("a message does not end where its frame ends")
        return found

    def fixed(self, of: _Type, _depth: int) -> Any:
        """A number or a truth value."""
        fixed = of.fixed
        assert fixed is not None
        self._at += fixed.size
        return fixed.unpack_from(self._data, self._at - fixed.size)[0]

    def text(self, _of: _Type | None = None, _depth: int = 0) -> str:
        """A string, which must be UTF-8."""
        try:
            return str(self._string(), "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a text is not UTF-8") from None

    def blob(self, _of: _Type, _depth: int) -> bytes:
        """A binary."""
        return bytes(self._string())

    def structure(self, of: _Type, depth: int) -> Any:
        """A struct inside another value."""
        return self._struct(of.made, depth)

    def list(self, of: _Type, depth: int) -> list[Any]:
        """A list or set."""
        element = of.parts[0]
        read = element.read
        return [read(self, element, depth - 1) for _ in range(self._elements(of, depth))]

    def map(self, of: _Type, depth: int) -> dict[Any, Any]:
        """A map; of keys that come twice, the last counts."""
        key, value = of.parts
        return {
            key.read(self, key, depth - 1): value.read(self, value, depth - 1)
            for _ in range(self._elements(of, depth))
        }  # fmt: skip

    def _struct(self, made: Any, depth: int) -> Any:
        fields, data = _fields(made), self._data
        self._spend(len(fields), depth)
        found = made()
        values = found.__dict__
        while (wire := data[self._at]) != _STOP:
            self._spend(1, depth)
            number = _I16.unpack_from(data, self._at + 1)[0]
            self._at += 3
            if number in fields and (of := fields[number].type).wire == wire:
                values[fields[number].name] = of.read(self, of, depth - 1)
            else:
                self._skip(wire, depth - 1)
        self._at += 1
        return found

    def _string(self) -> memoryview:
        at = self._at + 4
        end = at + _LENGTH.unpack_from(self._data, self._at)[0]
        if end > self._end:
            raise ProtocolError(f"a string of {end - at} bytes where {self._end - at} are left")
        self._at = end
        return self._data[at:end]

    def _elements(self, of: _Type, depth: int) -> int:
        """How many elements follow, after the head of a container whose elements must be of the types of `of`."""
        wires, count = self._container(len(of.wires), depth)
        if wires != of.wires and count:
            raise ProtocolError("a container holds elements of another type")
        self._spend(count * len(wires), depth)
        return count

    def _container(self, types: int, depth: int) -> tuple[bytes, int]:
        """The head of a list (one type) or a map (two), its count held against what is left of the frame."""
        self._spend(0, depth)
        at = self._at + types
        wires = bytes(self._data[self._at : at])
        count = _LENGTH.unpack_from(self._data, at)[0]
        self._at = at + 4
        if count and count * sum([_LEAST.get(wire, self._end) for wire in wires]) > self._end - self._at:
            raise ProtocolError(f"a container of {count} elements does not fit into the frame")
        return wires, count

    def _spend(self, values: int, depth: int) -> None:
        self._left -= values
        if self._left < 0:
            raise ProtocolError(f"a frame holds more than {VALUES_MAX} values")
        if depth <= 0:
            raise ProtocolError(f"a frame nests deeper than {DEPTH_MAX}")

    def _skip(self, wire: int, depth: int) -> None:
        """Pass over a value that nobody asked for. What has a known size is passed in one step."""
        if wire in _FIXED:
            self._at += _FIXED[wire].size
        elif wire == _STRING:
            self._string()
        elif wire == _STRUCT:
            while (kind := self._data[self._at]) != _STOP:
                self._spend(1, depth)
                self._at += 3
                self._skip(kind, depth - 1)
            self._at += 1
        elif wire == _MAP or wire in _LISTS:
            self._skip_elements(*self._container(2 if wire == _MAP else 1, depth), depth)
        else:
            raise ProtocolError(f"there is no type {wire}")

    def _skip_elements(self, wires: bytes, count: int, depth: int) -> None:
        if all(wire in _FIXED for wire in wires):
            self._at += count * sum(_FIXED[wire].size for wire in wires)
            return
        self._spend(count * len(wires), depth)
        for _ in range(count):
            for wire in wires:
                self._skip(wire, depth - 1)


_SEQUENCE: Final = _type(TType.I32)
