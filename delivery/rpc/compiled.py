"""The coding of one struct of the IDL as one function without a loop, made when the struct is first met.

Every frame is a struct or two, so a loop over their fields that asks each for its type would be a quarter of what a
host executes for a batch. Here the loop has run before: `writer` and `reader` make the source of a function that goes
through the fields in the order of their ids, with names, heads and packers in place, and compile it, as dataclasses are
made. For a struct with the fields `1: string code, 2: i32 kind` it begins

    def write(self, value):                         def read(self, depth):
        now = self._now                                 self._spend(2, depth)
        content = value.code                            data, at = self._data, self._at
        if content is not None:                         found = made()
            raw = content.encode()                      values = found.__dict__
            now += text(11, 1, len(raw))                wire = data[at]
            now += raw                                  if wire == 11 and data[at + 1] == 0 and data[at + 2] == 1:
        content = value.kind                                end = at + 7 + length(data, at + 3)[0]
        if content is not None:                             …
            now += pack_2(8, 2, content)                    values['code'] = str(data[at + 7 : end], 'utf-8')

What a reader does not meet in its place (fields in another order, unknown ones) is left to `Decoder.rest`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from thriftpy2.thrift import TType

from delivery.rpc.wire import FIXED, LENGTH, STOP, STRING, Field, fields

APART_BYTES: Final = 16 * 1024
"""A blob from this size on is sent as a part of its own instead of being copied: below it the copy is cheaper."""
_STRUCTS_MAX: Final = 256  # more than the IDL has structs
_TEXT: Final = struct.Struct(">bhI")
"""The head of a string, and its length."""


@lru_cache(maxsize=_STRUCTS_MAX)
def writer(made: Any) -> Callable[[Any, Any], None]:
    """`write(encoder, value)`: puts the fields of a struct of this class, and their end, into an Encoder."""
    names: dict[str, Any] = {"text": _TEXT.pack}
    source = ["def write(self, value):", "    now = self._now"]
    for number, field in fields(made).items():
        source += [f"    content = value.{field.name}", "    if content is not None:"]
        source += _indented(_write(number, field, names))
    source += [f"    now.append({STOP})"]
    write: Callable[[Any, Any], None] = _made(source, names, "write")
    return write


@lru_cache(maxsize=_STRUCTS_MAX)
def reader(made: Any) -> Callable[[Any, int], Any]:
    """`read(decoder, depth)`: the struct of this class that begins where a Decoder is."""
    names: dict[str, Any] = {"made": made, "length": LENGTH.unpack_from}
    known = fields(made)
    source = ["def read(self, depth):", f"    self._spend({len(known)}, depth)"]
    source += ["    data, at = self._data, self._at", "    found = made()", "    values = found.__dict__"]
    source += ["    wire = data[at]"]
    for number, field in sorted(known.items()):
        high, low = number >> 8, number & 0xFF
        source += [f"    if wire == {field.type.wire} and data[at + 1] == {high} and data[at + 2] == {low}:"]
        source += _indented([*_read(number, field, names), "wire = data[at]"])
    source += [f"    if wire == {STOP}:", "        self._at = at + 1", "        return found"]
    source += ["    self._at = at", "    return self.rest(found, depth)"]
    read: Callable[[Any, int], Any] = _made(source, names, "read")
    return read


def _write(number: int, field: Field, names: dict[str, Any]) -> Iterator[str]:
    """How the value `content` of a field is written."""
    of = field.type
    if of.kind in FIXED:
        names[f"pack_{number}"] = struct.Struct(f">bh{of.fixed.format[1:]}").pack
        yield f"now += pack_{number}({of.wire}, {number}, content)"
    elif of.kind == STRING:
        yield from ("raw = content.encode()", f"now += text({of.wire}, {number}, len(raw))", "now += raw")
    elif of.kind == TType.BINARY:
        yield f"now += text({of.wire}, {number}, len(content))"
        yield from (f"if len(content) < {APART_BYTES}:", "    now += content")
        yield from ("else:", "    now = self.apart(content)")
    else:
        names[f"of_{number}"], names[f"head_{number}"] = of, field.head
        yield from (f"now += head_{number}", f"self.value(of_{number}, content)", "now = self._now")


def _read(number: int, field: Field, names: dict[str, Any]) -> Iterator[str]:
    """How the field that begins at `at` is read."""
    of, target = field.type, f"values[{field.name!r}]"
    if of.kind in FIXED:
        names[f"unpack_{number}"] = of.fixed.unpack_from
        yield from (f"{target} = unpack_{number}(data, at + 3)[0]", f"at += {3 + of.fixed.size}")
    elif of.wire == STRING:
        made = "str(data[at + 7 : end], 'utf-8')" if of.kind == STRING else "bytes(data[at + 7 : end])"
        yield from ("end = at + 7 + length(data, at + 3)[0]", "if end > self._end:")
        yield from ("    self.too_long(at + 7, end)", f"{target} = {made}", "at = end")
    else:
        names[f"of_{number}"] = of
        yield from ("self._at = at + 3", f"{target} = self.value(of_{number}, depth - 1)", "at = self._at")


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"        {line}" for line in lines]


def _made(source: list[str], names: dict[str, Any], name: str) -> Any:
    exec(compile("\n".join(source), __file__, "exec"), names)  # noqa: S102 - names of the IDL, which Hoot brings itself
    return names[name]
