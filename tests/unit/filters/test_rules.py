"""The dialects: what users may give, what is kept of it, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from delivery.errors import InvalidRequest
from delivery.filters import check_topics, parse_rule, rule_json
from delivery.filters.expressions import Attribute, Binary, Literal
from delivery.filters.rules import CHARACTERS_MAX, LEVELS_MAX, RULES_MAX, All, Compare, Not, Rule, Some, Sql, Topics
from tests.filters import attribute_names, rules

RED = Compare("exact", (("colour", "red"),))
VIP = Sql(Binary("=", Attribute("vip"), Literal("yes")))


@pytest.mark.parametrize(
    ("given_rule", "rule"),
    [
        ({"exact": {"colour": "red"}}, RED),
        ('{"exact": {"colour": "red"}}', RED),
        ("vip = 'yes'", VIP),
        ({"sql": "vip='yes'"}, VIP),
        ([{"exact": {"colour": "red"}}], RED),
        ([{"exact": {"colour": "red"}}, {"sql": "vip = 'yes'"}], All((RED, VIP))),
        (
            {"any": [{"not": {"exact": {"colour": "red"}}}, {"all": [{"sql": "vip = 'yes'"}]}]},
            Some((Not(RED), All((VIP,)))),
        ),
        ({"prefix": {"topic": "a", "key": "b"}}, Compare("prefix", (("topic", "a"), ("key", "b")))),
    ],
)
def test_a_rule_is_an_expression_or_an_object_or_a_list_of_them(given_rule: Any, rule: Rule) -> None:
    assert parse_rule(given_rule) == rule
    assert parse_rule(rule_json(rule)) == rule


def has_topics(rule: Rule) -> bool:
    match rule:
        case All(rules) | Some(rules):
            return any(map(has_topics, rules))
        case Not(inner):
            return has_topics(inner)
        case _:
            return isinstance(rule, Topics)


@given(rules(attribute_names).filter(lambda rule: not has_topics(rule)))
def test_what_is_kept_of_a_rule_is_read_as_that_rule(rule: Rule) -> None:
    assert parse_rule(rule_json(rule)) == rule
    assert parse_rule(json.loads(rule_json(rule))) == rule


def nested(levels: int) -> dict[str, Any]:
    rule: dict[str, Any] = {"exact": {"a": "b"}}
    for _ in range(levels):
        rule = {"not": rule}
    return rule


@pytest.mark.parametrize(
    ("given_rule", "message"),
    [
        ("", "the filter is empty"),
        ("{", "begins as JSON and is none"),
        ({}, "at $: a rule is an object with one dialect"),
        ({"exact": {"a": "b"}, "not": {}}, "at $: a rule is an object with one dialect"),
        ({"exakt": {"a": "b"}}, "there is no dialect 'exakt': use exact"),
        ({"wasm": "x"}, "there is no dialect 'wasm'"),
        ({"exact": {}}, "at $.exact: here stands an object of 1 to"),
        ({"exact": {"a": 1}}, "at $.exact.a: attributes are compared with texts"),
        ({"prefix": {"a": ""}}, "at $.prefix.a: attributes are compared with texts"),
        ({"suffix": {"": "x"}}, "at $.suffix: the name of an attribute has 1 to"),
        ({"all": []}, "at $.all: here stands a list"),
        ({"any": {"exact": {"a": "b"}}}, "at $.any: here stands a list"),
        ({"any": [{"exact": {"a": "b"}}, {"sql": "a ="}]}, "$.any[1].sql: the filter is wrong at character 4"),
        ({"sql": 7}, "at $.sql: here stands an expression"),
        ("1 + 1", "neither true nor false"),
        ("vip", "neither true nor false"),
        ("'TRUE'", "neither true nor false"),
        ("LOWER(vip)", "neither true nor false"),
        (nested(LEVELS_MAX + 1), "rules, 16 within one another"),
        ({"all": [{"exact": {"a": "b"}}] * RULES_MAX}, "at most 256 rules"),
        ({"exact": {str(n): "b" * 1000 for n in range(40)}}, f"at most {CHARACTERS_MAX} characters"),
        (7, "a rule is an object"),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused_with_its_place(given_rule: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_rule(given_rule)
    assert message in refusal.value.message


def test_what_may_be_true_is_an_expression() -> None:
    for text in ("body.vip", "NOT body.vip", "EXISTS a", "TRUE", "a IN ('b')", "a LIKE '%'", "BOOL(vip)"):
        assert isinstance(parse_rule(text), Sql)


def test_the_deepest_and_longest_rules_that_are_allowed_are_read() -> None:
    assert isinstance(parse_rule(nested(LEVELS_MAX)), Not)
    assert isinstance(parse_rule({"all": [{"exact": {"a": "b"}}] * (RULES_MAX - 1)}), All)


@pytest.mark.parametrize("topics", [[], [""], ["a b"], ["*/x"], ["a*" * 125], [7], ["a"] * 1001, ["ü*"]])
def test_topics_that_cannot_be_are_refused(topics: list[Any]) -> None:
    with pytest.raises(InvalidRequest):
        check_topics(topics)


def test_topics_are_names_and_patterns_each_once() -> None:
    assert check_topics(None) == ()
    assert check_topics("orders.*") == ("orders.*",)
    assert check_topics(["b", "*", "*.a", "..*", "b"]) == ("*", "*.a", "..*", "b")
