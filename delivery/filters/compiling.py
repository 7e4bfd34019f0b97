"""From an expression to a function of a row that evaluates it, fast and failing at the first error."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from delivery.filters.attributes import Getter, Row, exists, getter
from delivery.filters.expressions import Attribute, Binary, Call, Exists, Expression, In, Like, Literal, Unary
from delivery.filters.functions import FUNCTIONS
from delivery.filters.like import like
from delivery.filters.values import (
    Unfit,
    Value,
    contains,
    equal,
    in_range,
    to_boolean,
    to_integer,
    to_number,
    to_text,
)

_ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def compiled(expression: Expression) -> Getter:
    """How to evaluate an expression for a row. What it gives raises Unfit."""
    match expression:
        case Literal(value):
            return lambda _: value
        case Attribute(name):
            return getter(name)
        case Exists(name):
            return exists(name)
        case Unary(sign, operand):
            return _unary(sign, compiled(operand))
        case Binary(sign, left, right):
            return _binary(sign, compiled(left), compiled(right), right)
        case Like(operand, pattern, negated):
            return _like(compiled(operand), pattern, negated=negated)
        case In(operand, items, negated):
            return _in(compiled(operand), items, negated=negated)
        case Call(name, arguments):
            return _call(name, [compiled(one) for one in arguments])


def _unary(sign: str, operand: Getter) -> Getter:
    if sign == "NOT":
        return lambda row: not to_boolean(operand(row))
    return lambda row: in_range(-to_integer(operand(row)))


def _binary(sign: str, left: Getter, right: Getter, right_part: Expression) -> Getter:
    if sign in _ORDER:
        compare = _ORDER[sign]
        return lambda row: compare(to_number(left(row)), to_number(right(row)))
    if sign in ("=", "!="):
        return _equality(left, right, right_part, negated=sign == "!=")
    match sign:
        case "AND":
            return lambda row: to_boolean(left(row)) and to_boolean(right(row))
        case "OR":
            return lambda row: to_boolean(left(row)) or to_boolean(right(row))
        case "XOR":
            return lambda row: to_boolean(left(row)) != to_boolean(right(row))
        case _:
            return _arithmetic(sign, left, right)


def _equality(left: Getter, right: Getter, right_part: Expression, *, negated: bool) -> Getter:
    if isinstance(right_part, Literal) and isinstance(right_part.value, str):  # by far the most frequent
        text = right_part.value
        return lambda row: (to_text(left(row)) == text) is not negated
    return lambda row: equal(left(row), right(row)) is not negated


def _arithmetic(sign: str, left: Getter, right: Getter) -> Getter:
    calculate: dict[str, Callable[[int, int], int]] = {
        "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient, "%": _remainder,
    }  # fmt: skip
    chosen = calculate[sign]
    return lambda row: in_range(chosen(to_integer(left(row)), to_integer(right(row))))


def _quotient(left: int, right: int) -> int:
    """Rounded towards 0, which Python's is not."""
    if right == 0:
        raise Unfit("a division by 0")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    """With the sign of the left one."""
    return left - right * _quotient(left, right)


def _like(operand: Getter, pattern: str, *, negated: bool) -> Getter:
    matches = like(pattern)
    return lambda row: matches(to_text(operand(row))) is not negated


def _in(operand: Getter, items: Sequence[Expression], *, negated: bool) -> Getter:
    getters = [compiled(item) for item in items]
    values = [item.value for item in items if isinstance(item, Literal)]
    texts = frozenset(map(to_text, values)) if len(values) == len(items) else None

    def found(row: Row) -> bool:
        value: Value = operand(row)
        if texts is not None and isinstance(value, str):
            return (value in texts) is not negated
        return any(contains(value, item(row)) for item in getters) is not negated

    return found


def _call(name: str, arguments: Sequence[Getter]) -> Getter:
    function = FUNCTIONS[name]
    parts = [(function.cast_of(place), argument) for place, argument in enumerate(arguments)]
    return lambda row: function.call(*[cast(argument(row)) for cast, argument in parts])
