"""The filter dialects of the CloudEvents Subscriptions API, and the topics of a subscription, as one tree of rules.

    {"exact": {"topic": "orders"}}     every attribute named has this text; `prefix`, `suffix`: begins, ends with it
    {"all": [RULE, …]}  {"any": [RULE, …]}  {"not": RULE}
    {"sql": "EXPRESSION"}               a CESQL expression (`parser`)

A list of rules means that all must hold. A rule holds or does not, there is no third: where the message lacks an
attribute that a rule names, or an expression fails on it, the rule does not hold (and `not` of it does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

import msgspec

from delivery.errors import InvalidRequest
from delivery.filters.attributes import wrong_name
from delivery.filters.expressions import (
    COMPARISONS,
    LOGIC,
    Attribute,
    Binary,
    Call,
    Exists,
    Expression,
    In,
    Like,
    Literal as Constant,
    Unary,
    attributes,
    text_of,
)
from delivery.filters.functions import FUNCTIONS
from delivery.filters.parser import parse
from delivery.model import near_names

Dialect = Literal["exact", "prefix", "suffix"]

RULES_MAX: Final = 256
"""Rules of a filter, those within others counted; also attributes of one rule."""
LEVELS_MAX: Final = 16
"""Rules within rules."""
CHARACTERS_MAX: Final = 32 * 1024
"""Of a whole filter as JSON."""


class Compare(msgspec.Struct, frozen=True):
    """`exact`, `prefix` or `suffix`: all the attributes have, begin with or end with these texts."""

    dialect: Dialect
    pairs: tuple[tuple[str, str], ...]


class All(msgspec.Struct, frozen=True):
    """All rules hold."""

    rules: tuple[Rule, ...]


class Some(msgspec.Struct, frozen=True):
    """At least one rule holds."""

    rules: tuple[Rule, ...]


class Not(msgspec.Struct, frozen=True):
    """The rule does not hold."""

    rule: Rule


class Sql(msgspec.Struct, frozen=True):
    """The expression is true; neither false nor anything that is no boolean, and without any error."""

    expression: Expression


class Topics(msgspec.Struct, frozen=True):
    """The topic is one of these, or matches one of these patterns. No dialect: the `topics` of a subscription."""

    patterns: tuple[str, ...]


Rule = Compare | All | Some | Not | Sql | Topics
FilterSpec = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""What users give: an expression, a rule as JSON text or as a dict, or a list of rules."""


def parse_rule(given: object) -> Rule:
    """The rule that a user gave. Raises InvalidRequest: what is wrong, where, and what to write instead."""
    if isinstance(given, str):
        if not given.strip():
            raise InvalidRequest("the filter is empty: write an expression such as topic = 'orders', or leave it out")
        if given.lstrip()[0] not in "{[":
            return _sql(given, "")
        given = _json(given)
    rule = _Reader().root(given)
    if len(rule_json(rule)) > CHARACTERS_MAX:
        raise InvalidRequest(f"a filter has at most {CHARACTERS_MAX} characters")
    return rule


def rule_json(rule: Rule) -> str:
    """The canonical JSON text of a rule: what records keep, and `parse_rule` reads."""
    return msgspec.json.encode(as_dict(rule)).decode()


def as_dict(rule: Rule) -> dict[str, Any]:
    """The rule as a dict of its dialect."""
    match rule:
        case Compare(dialect, pairs):
            return {dialect: dict(pairs)}
        case All(rules):
            return {"all": [as_dict(one) for one in rules]}
        case Some(rules):
            return {"any": [as_dict(one) for one in rules]}
        case Not(inner):
            return {"not": as_dict(inner)}
        case Sql(expression):
            return {"sql": text_of(expression)}
        case Topics(patterns):
            return {"topics": list(patterns)}


def attributes_of(rule: Rule) -> frozenset[str]:
    """The names of all attributes that a rule asks for."""
    match rule:
        case Compare(_, pairs):
            return frozenset(name for name, _ in pairs)
        case All(rules) | Some(rules):
            return frozenset[str]().union(*map(attributes_of, rules))
        case Not(inner):
            return attributes_of(inner)
        case Sql(expression):
            return attributes(expression)
        case Topics():
            return frozenset({"topic"})


def _json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"the filter begins as JSON and is none: {error}") from None


class _Reader:
    """Reads rules from decoded JSON, and counts them."""

    def __init__(self) -> None:
        self._rules = 0

    def root(self, given: object) -> Rule:
        if isinstance(given, Sequence) and not isinstance(given, str | bytes):
            rules = self._rules_of(given, "$", 0)
            return rules[0] if len(rules) == 1 else All(rules)
        return self._rule(given, "$", 0)

    def _rule(self, given: object, where: str, level: int) -> Rule:
        self._rules += 1
        if self._rules > RULES_MAX or level > LEVELS_MAX:
            raise _wrong(where, f"a filter has at most {RULES_MAX} rules, {LEVELS_MAX} within one another")
        if not isinstance(given, Mapping) or len(given) != 1:
            raise _wrong(where, 'a rule is an object with one dialect, such as {"exact": {"topic": "orders"}}')
        dialect, content = next(iter(given.items()))
        below = f"{where}.{dialect}"
        if dialect in get_args(Dialect):
            return Compare(dialect, _pairs(content, below))
        match dialect:
            case "all":
                return All(self._rules_of(content, below, level + 1))
            case "any":
                return Some(self._rules_of(content, below, level + 1))
            case "not":
                return Not(self._rule(content, below, level + 1))
            case "sql":
                return _sql(content, below)
        known = (*get_args(Dialect), "all", "any", "not", "sql")
        near = near_names(str(dialect), known) or known
        raise _wrong(where, f"there is no dialect {str(dialect)[:40]!r}: use {', '.join(near)}")

    def _rules_of(self, given: object, where: str, level: int) -> tuple[Rule, ...]:
        if not isinstance(given, Sequence) or isinstance(given, str | bytes) or not given:
            raise _wrong(where, "here stands a list of one or more rules")
        return tuple(self._rule(one, f"{where}[{place}]", level) for place, one in enumerate(given))


def _pairs(given: object, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(given, Mapping) or not 1 <= len(given) <= RULES_MAX:
        raise _wrong(where, f'here stands an object of 1 to {RULES_MAX} attributes, such as {{"topic": "orders"}}')
    for name, text in given.items():
        if not isinstance(name, str) or (wrong := wrong_name(name)):
            what, hint = wrong if isinstance(name, str) and wrong else ("an attribute has a name", "write it as text")
            raise _wrong(where, f"{what}; {hint}")
        if not isinstance(text, str) or not text:
            raise _wrong(f"{where}.{name}", f"attributes are compared with texts that are not empty, not {text!r:.40}")
    return tuple(given.items())


def _sql(given: object, where: str) -> Sql:
    if not isinstance(given, str):
        raise _wrong(where, "here stands an expression, as text")
    try:
        expression = parse(given)
        _check_boolean(given, expression)
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error.message}" if where else error.message) from None
    return Sql(expression)


def _check_boolean(text: str, expression: Expression) -> None:
    """Refuse what is true for no message, because it never is a boolean."""
    match expression:
        case Binary(sign, _, _) if sign in LOGIC or sign in COMPARISONS:
            return
        case Unary("NOT", _) | Like() | In() | Exists() | Constant(True) | Constant(False):
            return
        case Attribute(name) if name.startswith("body."):
            return
        case Call(name, _) if FUNCTIONS[name].gives is bool:
            return
    raise InvalidRequest(
        f"the filter is wrong at character 1, near {text[:20]!r}: the expression is neither true nor false; compare it"
        " with something: hops > 3, vip = 'yes'"
    )


def _wrong(where: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"the filter is wrong at {where}: {what}")
