"""From a rule to a function of a row that says whether the rule holds for that message."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from delivery.filters.attributes import Getter, Row, getter
from delivery.filters.compiling import compiled
from delivery.filters.rules import All, Compare, Dialect, Not, Rule, Some, Sql, Topics
from delivery.filters.topics import topic_matcher
from delivery.filters.values import Unfit, to_text

Judge = Callable[[Row], bool]
"""Never raises."""


def judge(rule: Rule) -> Judge:
    """How to find out whether a rule holds."""
    match rule:
        case Compare(dialect, pairs):
            return _every([compares(dialect, name, text) for name, text in pairs])
        case All(rules):
            return _every([judge(one) for one in rules])
        case Some(rules):
            judges = [judge(one) for one in rules]
            return lambda row: any(one(row) for one in judges)
        case Not(inner):
            inverse = judge(inner)
            return lambda row: not inverse(row)
        case Sql(expression):
            return _is_true(compiled(expression))
        case Topics():
            matches = topic_matcher(rule)
            return lambda row: matches(row.topics[row.at])


def compares(dialect: Dialect, name: str, text: str) -> Judge:
    """One attribute of `exact`, `prefix` or `suffix`."""
    get = getter(name)
    tests: dict[str, Callable[[str, str], bool]] = {
        "exact": operator.eq, "prefix": str.startswith, "suffix": str.endswith,
    }  # fmt: skip
    test = tests[dialect]

    def holds(row: Row) -> bool:
        try:
            return test(to_text(get(row)), text)
        except Unfit:
            return False

    return holds


def _every(judges: Sequence[Judge]) -> Judge:
    if len(judges) == 1:
        return judges[0]
    return lambda row: all(one(row) for one in judges)


def _is_true(evaluate: Getter) -> Judge:
    def holds(row: Row) -> bool:
        try:
            return evaluate(row) is True
        except Unfit:
            return False

    return holds
