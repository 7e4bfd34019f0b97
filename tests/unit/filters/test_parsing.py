"""Expressions are read as they are written, and what cannot be is refused with its place and a hint."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from delivery.errors import InvalidRequest
from delivery.filters.expressions import Attribute, Binary, Expression, Like, Literal, Unary, text_of
from delivery.filters.parser import DEPTH_MAX, TERMS_MAX, TEXT_MAX, parse
from tests.filters import expressions
from tests.strategies import times

A, B, C = Attribute("a"), Attribute("b"), Attribute("c")


@given(expressions())
@times(5)
def test_the_text_of_an_expression_is_read_as_that_expression(expression: Expression) -> None:
    assert parse(text_of(expression)) == expression


@given(st.text("ab7'\"`\\ ()+-=<>,%ANDORNTLIKE_.\n", max_size=30))
@times(5)
def test_whatever_is_written_it_is_an_expression_or_refused_with_a_place(text: str) -> None:
    refusal = ""
    try:
        expression = parse(text)
    except InvalidRequest as error:
        refusal = error.message
    else:
        assert parse(text_of(expression)) == expression
    assert not refusal or ("at character " in refusal and "; " in refusal)


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("a AND b AND c", Binary("AND", Binary("AND", A, B), C)),
        ("a - b - c", Binary("-", Binary("-", A, B), C)),
        ("a + b * c", Binary("+", A, Binary("*", B, C))),
        ("a = b + c", Binary("=", A, Binary("+", B, C))),
        ("(a OR b) AND c", Binary("AND", Binary("OR", A, B), C)),
        ("a OR (b AND c)", Binary("OR", A, Binary("AND", B, C))),
        ("NOT (a = b)", Unary("NOT", Binary("=", A, B))),
        ("(NOT a) = b", Binary("=", Unary("NOT", A), B)),
        ("NOT a AND b", Binary("AND", Unary("NOT", A), B)),
        ("a not like 'x%'", Like(A, "x%", negated=True)),
        ("a <> -5", Binary("!=", A, Literal(-5))),
        ("a -5", Binary("-", A, Literal(5))),
        ("`content-type` = body.a.0", Binary("=", Attribute("content-type"), Attribute("body.a.0"))),
        ("`and` = 'it\\'s \\\\ \\n'", Binary("=", Attribute("and"), Literal("it's \\ \\n"))),
    ],
)
def test_operators_bind_as_the_standard_says(text: str, expression: Expression) -> None:
    assert parse(text) == expression


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("", 1, "a value or a name"),
        ("a =", 4, "a value or a name"),
        ("a = 'x", 5, "not closed"),
        ("a == b", 4, "a value or a name"),
        ("a = 'x' b", 9, "nothing is expected"),
        ("a = 'it''s'", 9, "nothing is expected"),
        ("(a = b", 7, "')' is missing"),
        ("a = b AND c = 1 OR d", 17, "use brackets"),
        ("a XOR b AND c", 9, "use brackets"),
        ("NOT a = 'x'", 7, "NOT (… = …)"),
        ("NOT a LIKE 'x'", 7, "NOT (… LIKE …)"),
        ("a LIKE b", 8, "a text in quotes"),
        ("a IN ()", 7, "a value or a name"),
        ("a IN 'x'", 6, "'(' is missing"),
        ("EXISTS 'x'", 8, "the name of an attribute"),
        ("a = 99999999999", 5, "32 bits"),
        ("a > 1.5", 5, "no fractions"),
        ("a = +b", 5, "a plus sign"),
        ("LENGHT(a) > 3", 1, "there is LENGTH"),
        ("LEFT(a) = 'x'", 1, "LEFT takes 2 arguments"),
        ("LEFT(a, b, c) = 'x'", 1, "LEFT takes 2 arguments"),
        ("a = 1 ; b", 7, "no meaning"),
        ("body..a = 1", 1, "between its dots"),
        ("header. = 1", 1, "needs the name of a header"),
        ("a & b", 3, "no meaning"),
        ("a" * 600 + " = 1", 1, "1 to 512 characters"),
    ],
)
def test_what_cannot_be_is_refused_at_its_place_with_a_hint(text: str, place: int, what: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse(text)
    assert f"at character {place}," in refusal.value.message
    assert what in refusal.value.message


@pytest.mark.parametrize(
    ("fits", "larger"),
    [
        ("(" * (DEPTH_MAX - 1) + "a" + ")" * (DEPTH_MAX - 1), "(" * DEPTH_MAX + "a" + ")" * DEPTH_MAX),
        ("-" * (DEPTH_MAX - 1) + "a", "-" * 5000 + "a"),
        (" + ".join("a" * (TERMS_MAX // 2)), " + ".join("a" * (TERMS_MAX // 2 + 1))),
        ("a = 1".ljust(TEXT_MAX), "a = 1".ljust(TEXT_MAX + 1)),
    ],
    ids=["brackets", "signs", "terms", "characters"],
)
def test_expressions_have_limits(fits: str, larger: str) -> None:
    assert parse(text_of(parse(fits))) == parse(fits)
    with pytest.raises(InvalidRequest, match="at most"):
        parse(larger)
