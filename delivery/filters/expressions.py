"""The parts of a CESQL expression, as values, and their text: `parse(text_of(it))` gives it back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from delivery.filters.values import Value

LOGIC: Final = ("AND", "OR", "XOR")
COMPARISONS: Final = ("=", "!=", "<=", ">=", "<", ">")
SUMS: Final = ("+", "-")
PRODUCTS: Final = ("*", "/", "%")

RANKS: Final = {
    **dict.fromkeys(LOGIC, 1), **dict.fromkeys(COMPARISONS, 2), **dict.fromkeys(SUMS, 3),
    **dict.fromkeys(PRODUCTS, 4), "IN": 5, "LIKE": 6,
}  # fmt: skip
"""How tightly an operator binds; what is tighter comes first."""
UNARY_RANK: Final = 7
ATOM_RANK: Final = 8


class Literal(msgspec.Struct, frozen=True):
    """A value in the text."""

    value: bool | int | str


class Attribute(msgspec.Struct, frozen=True):
    """What the message has under this name."""

    name: str


class Unary(msgspec.Struct, frozen=True):
    """`NOT x` or `-x`."""

    operator: str
    operand: Expression


class Binary(msgspec.Struct, frozen=True):
    """Two operands: logic, comparison or arithmetic. `<>` is kept as `!=`."""

    operator: str
    left: Expression
    right: Expression


class Like(msgspec.Struct, frozen=True):
    """`x LIKE 'pattern'`."""

    operand: Expression
    pattern: str
    negated: bool


class In(msgspec.Struct, frozen=True):
    """`x IN (a, b, c)`."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool


class Exists(msgspec.Struct, frozen=True):
    """`EXISTS name`."""

    name: str


class Call(msgspec.Struct, frozen=True):
    """A function of the language; the name is in capitals."""

    name: str
    arguments: tuple[Expression, ...]


Expression = Literal | Attribute | Unary | Binary | Like | In | Exists | Call

KEYWORDS: Final = frozenset({*LOGIC, "NOT", "LIKE", "IN", "EXISTS", "TRUE", "FALSE"})
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.]+\Z", re.ASCII)


def is_plain_name(name: str) -> bool:
    """Whether a name needs no backquotes."""
    plain = bool(_PLAIN_NAME.match(name)) and name.upper() not in KEYWORDS
    return plain and not name.replace(".", "").isdecimal()


def children(expression: Expression) -> tuple[Expression, ...]:
    """The parts directly below one, from left to right."""
    match expression:
        case Unary(_, operand) | Like(operand, _, _):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case In(operand, items, _):
            return (operand, *items)
        case Call(_, arguments):
            return arguments
        case _:
            return ()


def attributes(expression: Expression) -> frozenset[str]:
    """The names of all attributes in it."""
    if isinstance(expression, Attribute | Exists):
        return frozenset({expression.name})
    return frozenset[str]().union(*map(attributes, children(expression)))


def text_of(expression: Expression) -> str:
    """The expression as it is written, with the brackets that it needs."""
    match expression:
        case Literal(value):
            return _literal(value)
        case Attribute(name):
            return _name(name)
        case Exists(name):
            return f"EXISTS {_name(name)}"
        case Call(name, arguments):
            return f"{name}({_list(arguments)})"
        case Unary(operator, operand):
            return _unary(operator, operand)
        case Like(operand, pattern, negated):
            return f"{_below(operand, RANKS['LIKE'])} {'NOT ' * negated}LIKE {_literal(pattern)}"
        case In(operand, items, negated):
            return f"{_below(operand, RANKS['IN'])} {'NOT ' * negated}IN ({_list(items)})"
        case Binary(operator, left, right):
            return _binary(operator, left, right)


def _binary(operator: str, left: Expression, right: Expression) -> str:
    rank = RANKS[operator]
    # Those of one rank are taken from left to right; of AND, OR and XOR only the same one may follow.
    same = isinstance(left, Binary) and (left.operator == operator or (rank > 1 and RANKS[left.operator] == rank))
    return f"{text_of(left) if same else _below(left, rank + 1)} {operator} {_below(right, rank + 1)}"


def _unary(operator: str, operand: Expression) -> str:
    inner = _below(operand, UNARY_RANK)
    if operator == "NOT":
        return f"NOT {inner}"
    return f"-({inner})" if inner[0].isdecimal() else f"-{inner}"


def _below(expression: Expression, rank: int) -> str:
    """The text of an operand of an operator that binds as `rank`."""
    text = text_of(expression)
    negated = isinstance(expression, Unary) and expression.operator == "NOT"
    # NOT binds most tightly, which surprises: the parser takes it below an operator other than logic only in brackets.
    enough = _rank(expression) >= rank and not (negated and RANKS["AND"] + 1 < rank < UNARY_RANK)
    return text if enough else f"({text})"


def _rank(expression: Expression) -> int:
    match expression:
        case Binary(operator, _, _):
            return RANKS[operator]
        case Like():
            return RANKS["LIKE"]
        case In():
            return RANKS["IN"]
        case Unary():
            return UNARY_RANK
        case _:
            return ATOM_RANK


def _list(expressions: Sequence[Expression]) -> str:
    return ", ".join(map(text_of, expressions))


def _name(name: str) -> str:
    return name if is_plain_name(name) else f"`{name}`"


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value).upper()
