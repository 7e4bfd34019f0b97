"""The values of expressions, and how one type is cast to another (CESQL, section 3.7).

CESQL has strings, booleans and whole numbers of 32 bits. A JSON body can hold other numbers: fractions, and whole ones
that are larger. They are values, too, and are compared by value; nothing is calculated with them.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

Value = bool | int | float | str

INTEGER_MIN: Final = -(2**31)
INTEGER_MAX: Final = 2**31 - 1
TEXT_MAX: Final = 1 << 20
"""An expression makes no longer texts, in characters, by joining others."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,40}\Z", re.ASCII)


class Unfit(Exception):
    """An expression cannot be evaluated for this message: a cast, a missing attribute, a division by zero."""


def to_integer(value: Value) -> int:
    """`value` as a whole number of 32 bits. Raises Unfit."""
    if isinstance(value, str):
        if not _WHOLE.match(value):
            raise Unfit(f"{shown(value)} is no whole number")
        value = int(value)
    return in_range(int(value)) if isinstance(value, int) else _no_integer(value)


def in_range(number: int) -> int:
    """`number` if it has 32 bits. Raises Unfit."""
    return number if INTEGER_MIN <= number <= INTEGER_MAX else _no_integer(number)


def to_number(value: Value) -> int | float:
    """`value` to be compared by: as `to_integer`, and numbers of JSON as they are. Raises Unfit."""
    return value if type(value) in (int, float) else to_integer(value)  # type: ignore[return-value]


def to_boolean(value: Value) -> bool:
    """`value` as a boolean. Raises Unfit for texts other than true and false."""
    if isinstance(value, str):
        lower = value.lower()
        if lower not in ("true", "false"):
            raise Unfit(f"{shown(value)} is neither true nor false")
        return lower == "true"
    return bool(value)


def to_text(value: Value) -> str:
    """`value` as a text; every value has one."""
    if isinstance(value, str):
        return value
    return ("true" if value else "false") if isinstance(value, bool) else msgspec.json.encode(value).decode()


def equal(left: Value, right: Value) -> bool:
    """Whether they are equal once the left one is cast to the type of the right one. Raises Unfit."""
    if isinstance(right, str):
        return to_text(left) == right
    return to_boolean(left) == right if isinstance(right, bool) else to_number(left) == right


def contains(value: Value, item: Value) -> bool:
    """Whether they are equal once the item of a set is cast to the type of the value. Raises Unfit."""
    return equal(item, value)


def shown(value: Value) -> str:
    """A value in a message to people: short, texts in quotes."""
    text = repr(value) if isinstance(value, str) else to_text(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _no_integer(value: float) -> int:
    raise Unfit(f"{shown(value)} is no whole number of 32 bits")
