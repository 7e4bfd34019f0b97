"""Bytes to structs, from a peer that may be broken or hostile. The layout is in wire.py.

Every length is held against the bytes that are there, every value is counted, nesting is limited, text must be UTF-8.
Leniency is Thrift's: unknown fields and fields of another type are skipped, absent ones are None.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, ClassVar, Final

from thriftpy2.thrift import TType

from delivery.errors import ProtocolError
from delivery.rpc.compiled import reader
from delivery.rpc.wire import FIXED, HEAD, LEAST, LENGTH, LISTS, MAP, STOP, STRING, STRUCT, VERSION, Type, fields

VALUES_MAX: Final = 200_000
"""Values in one frame; a struct counts as many as it has fields. Some 10,000 messages of the plain calls."""
DEPTH_MAX: Final = 32
"""Nesting of structs and containers; the IDL needs 5."""
_ID, _SEQUENCE = FIXED[TType.I16], FIXED[TType.I32]


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
            version, kind = HEAD.unpack_from(self._data)
            if version != VERSION:
                raise ProtocolError("this is not Thrift's strict binary protocol")
            self._at = HEAD.size
            name = self._text()
            seqid = _SEQUENCE.unpack_from(self._data, self._at)[0]
            self._at += _SEQUENCE.size
            return kind & 0xFF, name, seqid
        except struct.error:
            raise ProtocolError("a frame ends inside the head of a message") from None

    def struct(self, made: Any) -> Any:
        """The struct of class `made` that the rest of the frame holds, and nothing after it."""
        try:
            found = reader(made)(self, DEPTH_MAX)
        except (IndexError, struct.error):
            raise ProtocolError("a frame ends inside a value") from None
        except UnicodeDecodeError:
            raise ProtocolError("a text is not UTF-8") from None
        if self._at != self._end:
            raise ProtocolError("a message does not end where its frame ends")
        return found

    def _fixed(self, of: Type, _depth: int) -> Any:
        """A number or a truth value."""
        at, fixed = self._at, of.fixed
        self._at = at + fixed.size
        return fixed.unpack_from(self._data, at)[0]

    def _text(self, _of: Type | None = None, _depth: int = 0) -> str:
        """A string, which must be UTF-8."""
        try:
            return str(self._string(), "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a text is not UTF-8") from None

    def _blob(self, _of: Type, _depth: int) -> bytes:
        """A binary."""
        return bytes(self._string())

    def _structure(self, of: Type, depth: int) -> Any:
        """A struct inside another value."""
        return reader(of.made)(self, depth)

    def _list(self, of: Type, depth: int) -> list[Any]:
        """A list or set."""
        element = of.parts[0]
        read = self._READ[element.kind]
        return [read(self, element, depth - 1) for _ in range(self._elements(of, depth))]

    def _map(self, of: Type, depth: int) -> dict[Any, Any]:
        """A map; of keys that come twice, the last counts."""
        key, value = of.parts
        return {
            self._READ[key.kind](self, key, depth - 1): self._READ[value.kind](self, value, depth - 1)
            for _ in range(self._elements(of, depth))
        }  # fmt: skip

    def rest(self, found: Any, depth: int) -> Any:
        """A struct of which some fields are read: the others, in any order, and its end."""
        made: Any = type(found)
        known, data, values = fields(made), self._data, found.__dict__
        while (wire := data[self._at]) != STOP:
            self._spend(1, depth)
            number = _ID.unpack_from(data, self._at + 1)[0]
            self._at += 3
            if number in known and (of := known[number].type).wire == wire:
                values[known[number].name] = self.value(of, depth - 1)
            else:
                self._skip(wire, depth - 1)
        self._at += 1
        return found

    def value(self, of: Type, depth: int) -> Any:
        """A value of a type, without a head."""
        return self._READ[of.kind](self, of, depth)

    def too_long(self, at: int, end: int) -> None:
        """Refuse a string that goes on behind the frame."""
        raise ProtocolError(f"a string of {end - at} bytes where {self._end - at} are left")

    def _string(self) -> memoryview:
        at = self._at + 4
        end = at + LENGTH.unpack_from(self._data, self._at)[0]
        if end > self._end:
            self.too_long(at, end)
        self._at = end
        return self._data[at:end]

    def _elements(self, of: Type, depth: int) -> int:
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
        count = LENGTH.unpack_from(self._data, at)[0]
        self._at = at + 4
        if count and count * sum([LEAST.get(wire, self._end) for wire in wires]) > self._end - self._at:
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
        if wire in FIXED:
            self._at += FIXED[wire].size
        elif wire == STRING:
            self._string()
        elif wire == STRUCT:
            while (kind := self._data[self._at]) != STOP:
                self._spend(1, depth)
                self._at += 3
                self._skip(kind, depth - 1)
            self._at += 1
        elif wire == MAP or wire in LISTS:
            self._skip_elements(*self._container(2 if wire == MAP else 1, depth), depth)
        else:
            raise ProtocolError(f"there is no type {wire}")

    def _skip_elements(self, wires: bytes, count: int, depth: int) -> None:
        if all(wire in FIXED for wire in wires):
            self._at += count * sum(FIXED[wire].size for wire in wires)
            return
        self._spend(count * len(wires), depth)
        for _ in range(count):
            for wire in wires:
                self._skip(wire, depth - 1)

    _READ: ClassVar[dict[int, Callable[[Decoder, Type, int], Any]]] = {
        **dict.fromkeys(FIXED, _fixed), **dict.fromkeys(LISTS, _list), MAP: _map,
        STRING: _text, TType.BINARY: _blob, STRUCT: _structure,
    }  # fmt: skip
