"""The functions of the language (CESQL, section 3.5). Arguments are cast to what a function takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from delivery.filters.values import INTEGER_MAX, TEXT_MAX, Unfit, Value, in_range, to_boolean, to_integer, to_text

Cast = Callable[[Value], Value]


class Function(msgspec.Struct, frozen=True):
    """One function: what it takes, and what it does. `call` raises Unfit."""

    casts: tuple[Cast, ...]
    call: Callable[..., Value]
    gives: type
    optional: int = 0
    """How many of the last arguments may be left out."""
    repeats: bool = False
    """The last argument may come any number of times, also not at all."""

    def takes(self, count: int) -> bool:
        """Whether it can be called with so many arguments."""
        least = len(self.casts) - self.optional - self.repeats
        return least <= count and (self.repeats or count <= len(self.casts))

    def cast_of(self, place: int) -> Cast:
        """The cast of an argument."""
        return self.casts[min(place, len(self.casts) - 1)]


def _joined(delimiter: str, *parts: str) -> str:
    if sum(map(len, parts)) + len(delimiter) * len(parts) > TEXT_MAX:
        raise Unfit(f"the joined text is longer than {TEXT_MAX} characters")
    return delimiter.join(parts)


def _left(text: str, count: int) -> str:
    return text[: _not_negative(count)]


def _right(text: str, count: int) -> str:
    return text[max(0, len(text) - _not_negative(count)) :]


def _substring(text: str, position: int, length: int | None = None) -> str:
    if abs(position) > len(text):
        raise Unfit(f"position {position} is outside of a text of {len(text)} characters")
    count = len(text) if length is None else _not_negative(length)
    if position == 0:
        return ""
    first = position - 1 if position > 0 else len(text) + position
    return text[first : first + count]


def _not_negative(count: int) -> int:
    if count < 0:
        raise Unfit(f"{count} is no count of characters")
    return count


def _one(cast: Cast, call: Callable[[Any], Value], gives: type) -> Function:
    return Function((cast,), call, gives)


def _same(value: Value) -> Value:
    return value


FUNCTIONS: Final[Mapping[str, Function]] = {
    "ABS": _one(to_integer, lambda number: in_range(abs(number)), int),
    "BOOL": _one(to_boolean, _same, bool),
    "CONCAT": Function((to_text,), lambda *parts: _joined("", *parts), str, repeats=True),
    "CONCAT_WS": Function((to_text, to_text), _joined, str, repeats=True),
    "INT": _one(to_integer, _same, int),
    "LEFT": Function((to_text, to_integer), _left, str),
    "LENGTH": _one(to_text, lambda text: min(len(text), INTEGER_MAX), int),
    "LOWER": _one(to_text, str.lower, str),
    "RIGHT": Function((to_text, to_integer), _right, str),
    "STRING": _one(to_text, _same, str),
    "SUBSTRING": Function((to_text, to_integer, to_integer), _substring, str, optional=1),
    "TRIM": _one(to_text, str.strip, str),
    "UPPER": _one(to_text, str.upper, str),
}
"""By name, in capitals."""
