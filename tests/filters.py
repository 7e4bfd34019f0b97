"""Rows to evaluate filters on, any filter, and a second, naive evaluator to hold the engine's against."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from delivery.filters.attributes import Row
from delivery.filters.expressions import (
    COMPARISONS,
    KEYWORDS,
    LOGIC,
    PRODUCTS,
    SUMS,
    Attribute,
    Binary,
    Call,
    Exists,
    Expression,
    In,
    Like,
    Literal,
    Unary,
)
from delivery.filters.functions import FUNCTIONS
from delivery.filters.rules import All, Compare, Not, Rule, Some, Sql, Topics
from delivery.model import encode_headers


def row(
    *, topic: str = "", key: bytes | None = None, headers: Mapping[str, str] | None = None, body: bytes = b"",
    number: int = 1, partition: int = 0,
) -> Row:  # fmt: skip
    """A message as a filter sees it."""
    block = encode_headers({name: value.encode() for name, value in (headers or {}).items()})
    return Row(partition, [number], [topic], [key], [block], [body])


NAMES = ("topic", "key", "partition", "body.a", "body.b.c", "colour", "hops", "header.topic")
TEXTS = ("", "a", "ab", "b", "true", "FALSE", "7", "-3", "red", "%", "a\\", "it's", "a_b")

attribute_names = st.one_of(
    st.sampled_from(NAMES), st.sampled_from(sorted(KEYWORDS)), st.sampled_from(["content-type", "9", "1.5", "ü x"])
)
literals = st.one_of(
    st.booleans(), st.integers(-(2**31), 2**31 - 1), st.integers(-9, 9), st.sampled_from(TEXTS), st.text(max_size=4)
)


def _calls(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    @st.composite
    def call(draw: st.DrawFn) -> Expression:
        name = draw(st.sampled_from(sorted(FUNCTIONS)))
        counts = [count for count in range(4) if FUNCTIONS[name].takes(count)]
        return Call(name, tuple(draw(parts) for _ in range(draw(st.sampled_from(counts)))))

    return call()


def _larger(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    operators = st.sampled_from((*LOGIC, *LOGIC, *COMPARISONS, *SUMS, *PRODUCTS))
    return st.one_of(
        st.builds(Unary, st.sampled_from(["NOT", "-"]), parts),
        st.builds(Binary, operators, parts, parts),
        st.builds(Like, parts, st.text("ab%_\\'", max_size=5), st.booleans()),
        st.builds(In, parts, st.lists(parts, min_size=1, max_size=3).map(tuple), st.booleans()),
        _calls(parts),
    )


def expressions(names: st.SearchStrategy[str] = attribute_names) -> st.SearchStrategy[Expression]:
    """Any expression over these attributes."""
    atoms = st.one_of(st.builds(Literal, literals), st.builds(Attribute, names), st.builds(Exists, names))
    return st.recursive(atoms, _larger, max_leaves=8)


def rules(names: st.SearchStrategy[str]) -> st.SearchStrategy[Rule]:
    """Any rule over these attributes."""
    texts = st.sampled_from([text for text in TEXTS if text])
    pairs = st.lists(st.tuples(names, texts), min_size=1, max_size=2, unique_by=lambda pair: pair[0]).map(tuple)
    leaves: st.SearchStrategy[Rule] = st.one_of(
        st.builds(Compare, st.sampled_from(["exact", "prefix", "suffix"]), pairs),
        st.builds(Sql, expressions(names).filter(_may_be_boolean)),
        st.builds(Topics, st.lists(st.sampled_from(["a", "a*", "*b", "*", "red"]), min_size=1, max_size=2).map(tuple)),
    )
    return st.recursive(leaves, _combined, max_leaves=5)


def _combined(parts: st.SearchStrategy[Rule]) -> st.SearchStrategy[Rule]:
    some = st.lists(parts, min_size=1, max_size=3).map(tuple)
    return st.one_of(st.builds(All, some), st.builds(Some, some), st.builds(Not, parts))


def _may_be_boolean(expression: Expression) -> bool:
    match expression:
        case Binary(operator, _, _):
            return operator in LOGIC or operator in COMPARISONS
        case Unary(operator, _):
            return operator == "NOT"
        case Literal(value):
            return isinstance(value, bool)
        case _:
            return isinstance(expression, Like | In | Exists)
