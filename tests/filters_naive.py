"""A second evaluator of filters, written for plainness: a walk over the tree that gives a value or an error.

It knows a message as a dict of its attributes (what is missing is not in it), and shares nothing with the engine's but
the tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from delivery.filters.expressions import Attribute, Binary, Call, Exists, Expression, In, Like, Literal, Unary
from delivery.filters.rules import All, Compare, Not, Rule, Some, Sql, Topics

Values = Mapping[str, Any]


class Failed(Exception):
    """The expression has no value."""


def holds(rule: Rule, values: Values) -> bool:
    match rule:
        case Topics(patterns):
            return any(glob(pattern, values["topic"], {"*": None}) for pattern in patterns)
        case Compare(dialect, pairs):
            return all(name in values and compare(dialect, text(values[name]), wanted) for name, wanted in pairs)
        case All(rules):
            return min(holds(one, values) for one in rules)
        case Some(rules):
            return max(holds(one, values) for one in rules)
        case Not(inner):
            return not holds(inner, values)
        case Sql(expression):
            try:
                return value_of(expression, values) is True
            except Failed:
                return False


def compare(dialect: str, value: str, wanted: str) -> bool:
    return {"exact": value == wanted, "prefix": value[: len(wanted)] == wanted, "suffix": value.endswith(wanted)}[
        dialect
    ]


def value_of(expression: Expression, values: Values) -> Any:  # noqa: PLR0911 - one for each part
    match expression:
        case Literal(value):
            return value
        case Attribute(name):
            if name not in values:
                raise Failed
            return values[name]
        case Exists(name):
            return name in values
        case Unary("NOT", operand):
            return not boolean(value_of(operand, values))
        case Unary(_, operand):
            return small(-integer(value_of(operand, values)))
        case Binary(operator, left, right):
            return binary(operator, lambda: value_of(left, values), lambda: value_of(right, values))
        case Like(operand, pattern, negated):
            return glob(pattern, text(value_of(operand, values)), {"%": None, "_": 1}) != negated
        case In(operand, items, negated):
            value = value_of(operand, values)
            for item in items:
                if same(value_of(item, values), value):
                    return not negated
            return negated
        case Call(name, arguments):
            return call(name, [value_of(one, values) for one in arguments])


def binary(operator: str, left: Callable[[], Any], right: Callable[[], Any]) -> Any:
    if operator in ("AND", "OR", "XOR"):
        first = boolean(left())
        if operator == "XOR":
            return first ^ boolean(right())
        return first if first == (operator == "OR") else boolean(right())
    a, b = left(), right()
    match operator:
        case "=":
            return same(a, b)
        case "!=":
            return not same(a, b)
        case "<" | "<=" | ">" | ">=":
            a, b = number(a), number(b)
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]
    a, b = integer(a), integer(b)
    if operator in "/%":
        if b == 0:
            raise Failed
        quotient = a // b if a % b == 0 or (a < 0) == (b < 0) else a // b + 1
        return small(quotient if operator == "/" else a - b * quotient)
    return small({"+": a + b, "-": a - b, "*": a * b}[operator])


def call(name: str, given: list[Any]) -> Any:  # noqa: PLR0911 - one for each function
    texts = [text(one) for one in given]
    match name:
        case "ABS":
            return small(abs(integer(given[0])))
        case "BOOL":
            return boolean(given[0])
        case "INT":
            return integer(given[0])
        case "STRING":
            return texts[0]
        case "CONCAT":
            return "".join(texts)
        case "CONCAT_WS":
            return texts[0].join(texts[1:])
        case "LENGTH":
            return len(texts[0])
        case "LOWER":
            return texts[0].lower()
        case "UPPER":
            return texts[0].upper()
        case "TRIM":
            return texts[0].strip()
        case "LEFT":
            return texts[0][: natural(given[1])]
        case "RIGHT":
            return texts[0][::-1][: natural(given[1])][::-1]
    position, length = integer(given[1]), integer(given[2]) if len(given) > 2 else 10**9
    if not -len(texts[0]) <= position <= len(texts[0]) or length < 0:
        raise Failed
    begin = position - 1 if position > 0 else len(texts[0]) + position
    return texts[0][begin:][:length] if position else ""


def glob(pattern: str, subject: str, wild: Mapping[str, int | None]) -> bool:
    """The textbook's recursion. `wild` has the wildcards, and how many characters each stands for, None for any."""
    if not pattern:
        return not subject
    if pattern[0] == "\\" and pattern[1:2] in ("%", "_") and "%" in wild:
        return subject[:1] == pattern[1] and glob(pattern[2:], subject[1:], wild)
    if wild.get(pattern[0], 0) is None:
        return glob(pattern[1:], subject, wild) or (bool(subject) and glob(pattern, subject[1:], wild))
    fits = bool(subject) and (pattern[0] in wild or subject[0] == pattern[0])
    return fits and glob(pattern[1:], subject[1:], wild)


def same(value: Any, target: Any) -> bool:
    cast: Callable[[Any], Any] = boolean if isinstance(target, bool) else text if isinstance(target, str) else number
    return bool(cast(value) == target)


def text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def boolean(value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise Failed
        return value.lower() == "true"
    return bool(value != 0)


def number(value: Any) -> float:
    return value if isinstance(value, float) or (isinstance(value, int) and abs(value) > 1) else integer(value)


def integer(value: Any) -> int:
    if isinstance(value, float) or (isinstance(value, str) and not re.fullmatch("[+-]?[0-9]+", value)):
        raise Failed
    return small(int(value))


def natural(value: Any) -> int:
    if integer(value) < 0:
        raise Failed
    return integer(value)


def small(value: int) -> int:
    if not -(2**31) <= value < 2**31:
        raise Failed
    return value
