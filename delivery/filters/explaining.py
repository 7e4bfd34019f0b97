"""Why a filter takes a message or refuses it: every part of it, with what the part came to."""

from __future__ import annotations

from typing import Any

import msgspec

from delivery.filters.attributes import Row, getter
from delivery.filters.compiling import compiled
from delivery.filters.expressions import Expression, Literal, children, text_of
from delivery.filters.judging import compares, judge
from delivery.filters.rules import All, Compare, Not, Rule, Some, Sql, Topics, as_dict
from delivery.filters.values import Unfit, Value, shown
from delivery.model import Message


class Part(msgspec.Struct, frozen=True):
    """One part of a filter, and what it came to for a message."""

    text: str
    value: bool | int | float | str | None
    """None where it could not be evaluated."""
    error: str | None
    parts: tuple[Part, ...]
    """What it is made of, literal values left out; evaluated, also where the whole did not need them."""


def row_of(message: Message) -> Row:
    """A row of one message."""
    return Row(message.partition, [message.number], [message.topic], [message.key], [message.header_block],
               [message.body])  # fmt: skip


def explain(rule: Rule, row: Row) -> Part:
    """What a rule and its parts come to for the message at which `row` is."""
    return Part(_title(rule), judge(rule)(row), None, _parts(rule, row))


def _parts(rule: Rule, row: Row) -> tuple[Part, ...]:
    match rule:
        case All(rules) | Some(rules):
            return tuple(explain(one, row) for one in rules)
        case Not(inner):
            return (explain(inner, row),)
        case Compare(dialect, pairs):
            return tuple(_compared(row, dialect, name, text) for name, text in pairs)
        case Sql(expression):
            return (_part(expression, row),)
        case Topics():
            return (_read("topic", row),)


def _title(rule: Rule) -> str:
    match rule:
        case All():
            return "all"
        case Some():
            return "any"
        case Not():
            return "not"
        case Topics(patterns):
            return "topics " + ", ".join(patterns)
        case Sql():
            return "sql"
        case _:
            return msgspec.json.encode(as_dict(rule)).decode()


def _compared(row: Row, dialect: Any, name: str, text: str) -> Part:  # noqa: ANN401 - as Compare has it
    return Part(f"{name} {dialect} {shown(text)}", compares(dialect, name, text)(row), None, (_read(name, row),))


def _part(expression: Expression, row: Row) -> Part:
    below = tuple(_part(one, row) for one in children(expression) if not isinstance(one, Literal))
    return _outcome(text_of(expression), compiled(expression), row, below)


def _read(name: str, row: Row) -> Part:
    return _outcome(name, getter(name), row, ())


def _outcome(text: str, evaluate: Any, row: Row, below: tuple[Part, ...]) -> Part:  # noqa: ANN401 - a Getter
    try:
        value: Value = evaluate(row)
    except Unfit as error:
        return Part(text, None, str(error), below)
    return Part(text, value, None, below)
