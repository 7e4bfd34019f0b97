"""What a rule may come to when only some attributes are known: the decision for a batch that is not opened.

A part of an expression may come to true, false, or an error, so what is known of one is the set of these that can be.
The set may hold too much (parts are looked at one by one), never too little: a rule whose set lacks true takes no
message, one whose set is true alone takes every one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Final

from delivery.filters.attributes import Row
from delivery.filters.compiling import compiled
from delivery.filters.expressions import LOGIC, Binary, Exists, Expression, Unary, attributes
from delivery.filters.judging import compares, judge
from delivery.filters.rules import All, Compare, Not, Rule, Some, Sql, Topics
from delivery.filters.values import Unfit, to_boolean

Outcomes = frozenset[bool | None]
"""Some of True, False and None, which stands for an error."""
Known = Callable[[str], bool]
"""Whether the value of an attribute, or that it is missing, is known."""

_EITHER: Final[Outcomes] = frozenset({True, False})
_ANY: Final[Outcomes] = frozenset({True, False, None})


def decide(rule: Rule, row: Row, known: Known) -> bool | None:
    """Whether all messages are taken that share what is known, which `row` holds; None when that depends on more."""
    outcomes = _of_rule(rule, row, known)
    return next(iter(outcomes)) if len(outcomes) == 1 else None


def _of_rule(rule: Rule, row: Row, known: Known) -> Outcomes:
    """Rules have no errors."""
    match rule:
        case Topics():
            return _only(judge(rule)(row)) if known("topic") else _EITHER
        case Compare(dialect, pairs):
            return _folded(all, (_only(compares(dialect, *pair)(row)) if known(pair[0]) else _EITHER for pair in pairs))
        case All(rules):
            return _folded(all, (_of_rule(one, row, known) for one in rules))
        case Some(rules):
            return _folded(any, (_of_rule(one, row, known) for one in rules))
        case Not(inner):
            return frozenset(not one for one in _of_rule(inner, row, known))
        case Sql(expression):
            if all(map(known, attributes(expression))):
                return _only(judge(rule)(row))
            return frozenset(one is True for one in _of_expression(expression, row, known))


def _of_expression(expression: Expression, row: Row, known: Known) -> Outcomes:
    """What an expression, cast to a boolean, may come to."""
    if all(map(known, attributes(expression))):
        return _only(_evaluated(expression, row))
    match expression:
        case Exists():
            return _EITHER
        case Unary("NOT", operand):
            return frozenset(None if one is None else not one for one in _of_expression(operand, row, known))
        case Binary(operator, left, right) if operator in LOGIC:
            pairs = product(_of_expression(left, row, known), _of_expression(right, row, known))
            return frozenset(_logic(operator, *pair) for pair in pairs)
    return _ANY


def _logic(operator: str, left: bool | None, right: bool | None) -> bool | None:
    if left is None or (operator == "AND" and not left) or (operator == "OR" and left):
        return left
    return left != right if operator == "XOR" and right is not None else right


def _evaluated(expression: Expression, row: Row) -> bool | None:
    try:
        return to_boolean(compiled(expression)(row))
    except Unfit:
        return None


def _only(outcome: bool | None) -> Outcomes:
    return frozenset({outcome})


def _folded(fold: Callable[[Iterable[bool]], bool], sets: Iterable[Outcomes]) -> Outcomes:
    """`all` or `any` over sets of True and False, part by part so that their number does not multiply."""
    found: Outcomes = _only(fold(()))
    for one in sets:
        found = frozenset(fold((bool(a), bool(b))) for a, b in product(found, one))
    return found
