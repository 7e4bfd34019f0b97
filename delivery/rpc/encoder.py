"""Structs to bytes: one frame as parts for `sendmsg`. The layout is in wire.py."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, ClassVar

from thriftpy2.thrift import TType

from delivery.errors import InvalidRequest, MessageTooLarge
from delivery.rpc.compiled import APART_BYTES, writer
from delivery.rpc.wire import FIXED, LENGTH, LISTS, MAP, STRING, STRUCT, VERSION, Part, Type, fields


class Encoder:
    """Collects one frame as parts for `sendmsg`: everything small in one part, large blobs as they are.

    `message`, then `struct`, then `parts`.
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
        made: Any = type(value)
        try:
            writer(made)(self, value)
        except (struct.error, UnicodeEncodeError):
            raise InvalidRequest(_misfit(value)) from None

    def value(self, of: Type, value: Any) -> None:
        """A value of a type, without a head."""
        self._WRITE[of.kind](self, of, value)

    def apart(self, blob: Part) -> bytearray:
        """Send a blob as a part of its own; what is collected from then on."""
        self._now = bytearray()
        self._parts += (blob, self._now)
        return self._now

    def parts(self, frame_bytes_max: int) -> tuple[list[Part], int]:
        """The frame, its length in front, and how many bytes it is in all. Raises MessageTooLarge above the limit."""
        total = sum(map(len, self._parts))
        if total - 4 > frame_bytes_max:
            raise MessageTooLarge(f"a frame of {total - 4} bytes is over the limit of {frame_bytes_max}")
        first = self._parts[0]
        assert isinstance(first, bytearray)
        LENGTH.pack_into(first, 0, total - 4)
        return self._parts, total

    def _fixed(self, of: Type, value: Any) -> None:
        """A number or a truth value."""
        self._now += of.fixed.pack(value)

    def _text(self, _of: Type, text: str) -> None:
        """A string as UTF-8."""
        raw = text.encode()
        self._now += LENGTH.pack(len(raw))
        self._now += raw

    def _blob(self, _of: Type, blob: Part) -> None:
        """A binary; a large one becomes a part of its own and must not change until the frame was sent."""
        self._now += LENGTH.pack(len(blob))
        if len(blob) < APART_BYTES:
            self._now += blob
        else:
            self.apart(blob)

    def _structure(self, _of: Type, value: Any) -> None:
        """A struct inside another value."""
        self.struct(value)

    def _list(self, of: Type, values: Any) -> None:
        """A list or set."""
        element = of.parts[0]
        write = self._WRITE[element.kind]
        self._now += of.wires + LENGTH.pack(len(values))
        for value in values:
            write(self, element, value)

    def _map(self, of: Type, values: Any) -> None:
        """A map."""
        key, value = of.parts
        self._now += of.wires + LENGTH.pack(len(values))
        for name, content in values.items():
            self._WRITE[key.kind](self, key, name)
            self._WRITE[value.kind](self, value, content)

    _WRITE: ClassVar[dict[int, Callable[[Encoder, Type, Any], None]]] = {
        **dict.fromkeys(FIXED, _fixed), **dict.fromkeys(LISTS, _list), MAP: _map,
        STRING: _text, TType.BINARY: _blob, STRUCT: _structure,
    }  # fmt: skip


def _misfit(value: Any) -> str:
    """What is wrong with a struct one of whose fields cannot be coded."""
    made: Any = type(value)
    name = made.__name__
    for field in fields(made).values():
        content = getattr(value, field.name)
        try:
            if content is not None:
                Encoder().value(field.type, content)
        except (struct.error, UnicodeEncodeError) as error:
            return f"{name}.{field.name} cannot be {str(content)[:40]!r}: {error}"
    return f"{name} cannot be coded"
