"""What a filter says of a message is what the language says, and what it says of a batch is what it says of each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from delivery.batch import Header, open_batch, select
from delivery.filters import Filter, Topics, filter_of, parse_rule, rule_json
from delivery.filters.attributes import Row
from delivery.filters.explaining import row_of
from delivery.filters.expressions import Attribute, Binary, Exists, Expression, Literal, Unary
from delivery.filters.rules import Not, Rule, Sql
from delivery.ids import MessageId
from delivery.model import Message, encode_headers
from tests.filters import NAMES, TEXTS, rules
from tests.filters_naive import holds
from tests.strategies import stamped, times

names = st.sampled_from(NAMES)
json_values = st.one_of(
    st.sampled_from(TEXTS), st.integers(-9, 9), st.just(2**40), st.just(1.5), st.booleans(), st.none()
)
bodies = st.one_of(
    st.sampled_from([b"", b"red", b"[7", b"[]", b"7"]),
    st.builds(lambda a, c: json.dumps({"a": a, "b": {"c": c}}).encode(), json_values, json_values),
)
headers = st.dictionaries(st.sampled_from(["colour", "hops", "topic"]), st.sampled_from(TEXTS), max_size=2)
blocks = headers.map(lambda found: encode_headers({name: text.encode() for name, text in found.items()}))
texts = st.sampled_from([text.encode() for text in TEXTS])
topics = st.sampled_from(["", "a", "ab", "b", "red", "7"])
messages = st.tuples(bodies, st.one_of(st.none(), texts), topics, blocks)
plain = st.tuples(bodies, st.none(), topics, st.just(b""))
batches = st.one_of(st.lists(messages, min_size=1, max_size=5), st.lists(plain, min_size=1, max_size=5))


def attributes_of(message: Message) -> dict[str, Any]:
    """The attributes of a message, worked out once more."""
    found: dict[str, Any] = {"topic": message.topic, "partition": message.partition}
    if message.key is not None:
        found["key"] = message.key.decode()
    for name, value in message.headers.items():
        found[f"header.{name}"] = value.decode()
        found.setdefault(name, value.decode())
    try:
        body = json.loads(message.body)
    except ValueError:
        body = None
    if isinstance(body, dict):
        found |= {
            f"body.{name}": value for name, value in (("a", body["a"]), ("b.c", body["b"]["c"])) if value is not None
        }
    return found


@given(rules(names), batches, st.integers(0, 3))
@times(6)
@example(Not(Sql(Binary("OR", Attribute("key"), Literal(value=True)))), [(b"", None, "a", b"")], 0)
@example(Sql(Unary("NOT", Binary("AND", Attribute("body.a"), Literal(value=False)))), [(b"", None, "a", b"")], 0)
@example(Sql(Exists("hops")), [(b"", None, "a", b""), (b"", None, "b", b"")], 0)
def test_a_batch_is_cut_to_the_messages_for_which_the_rule_holds(
    rule: Rule, rows: list[tuple[bytes, bytes | None, str, bytes]], partition: int
) -> None:
    header, data = stamped(rows, 1000, partition=partition)
    every = list(open_batch(data).messages("q"))
    wanted = [message for message in every if holds(rule, attributes_of(message))]
    chosen = Filter(rule)
    assert [message for message in every if chosen.takes(row_of(message))] == wanted
    left = select(header, data, chosen)
    assert (list(open_batch(left).messages("q")) if left else []) == wanted


def decision(header: Header, data: bytes, chosen: Filter) -> bool | None:
    """What `select` hears before it opens the batch."""
    dictionary = b"".join(bytes([len(topic)]) + topic.encode() for topic in open_batch(data).topics)
    return chosen.decide(header, dictionary)


def decided(text: str, *rows: tuple[bytes, bytes | None, str, bytes]) -> bool | None:
    found = filter_of((), text)
    assert found is not None
    return decision(*stamped(rows, 1000), found)


BARE = (b'{"a": 1}', None, "orders.eu", b"")
KEYED = (b'{"a": 1}', b"k", "orders.us", encode_headers({"colour": b"red"}))


def test_topics_decide_for_a_batch_without_opening_it() -> None:
    assert decided("topic = 'orders.eu'", BARE, BARE) is True
    assert decided("topic LIKE 'orders.%'", BARE, KEYED) is True
    assert decided("topic LIKE 'bills.%' AND body.a = 1", BARE, KEYED) is False
    assert decided("body.a = 1 AND topic LIKE 'bills.%'", BARE, KEYED) is False
    assert decided('{"any": [{"prefix": {"topic": "orders"}}, {"exact": {"body.a": "2"}}]}', BARE, KEYED) is True
    assert decided("topic = 'orders.eu'", BARE, KEYED) is None
    assert decided("topic LIKE 'orders.%' AND body.a = 1", BARE, KEYED) is None


def test_a_batch_without_headers_or_keys_tells_that_they_are_missing() -> None:
    assert decided("colour = 'red'", BARE, BARE) is False
    assert decided("NOT EXISTS colour", BARE, BARE) is True
    assert decided('{"exact": {"key": "k"}}', BARE, BARE) is False
    assert decided("colour = 'red'", BARE, KEYED) is None
    assert decided('{"exact": {"key": "k"}}', BARE, KEYED) is None


def test_an_expression_that_may_fail_is_not_taken_for_one_that_is_false() -> None:
    """`x AND false` is false or fails; its negation is true or fails, and that depends on the message."""
    assert decided("body.a AND topic = 'x'", BARE) is False
    assert decided("NOT (body.a AND topic = 'x')", BARE) is None


def test_partition_ids_and_times_are_attributes() -> None:
    number = MessageId.of(1732165000000, 12)
    row = Row(3, [number], ["t"], [None], [b""], [b"body"])
    texts = (
        "partition = 3",
        "partition = '3'",
        "id = '1732165000000-12'",
        "time = '2024-11-21T04:56:40.000Z'",
        "body = 'body'",
    )
    for text in texts:
        chosen = filter_of((), text)
        assert chosen is not None
        assert chosen.takes(row), text


def test_bytes_that_are_no_text_make_an_expression_fail() -> None:
    row = Row(0, [1], ["t"], [b"\xff"], [encode_headers({"h": b"\xff"})], [b"\xff"])
    for name in ("key", "h", "body"):
        for text in (f"{name} != 'x'", f"{name} = 'x'", f'{{"prefix": {{"{name}": "x"}}}}'):
            chosen = filter_of((), text)
            assert chosen is not None
            assert not chosen.takes(row), text


def test_patterns_of_topics_match_whole_names() -> None:
    names = ["", "orders", "orders.", "orders.eu", "bills.eu", "eu"]
    matching = {
        "orders.*": ["orders.", "orders.eu"],
        "*.eu": ["orders.eu", "bills.eu"],
        "*": names,
        "*r*e*": ["orders", "orders.", "orders.eu"],
        "eu": ["eu"],
    }
    for pattern, wanted in matching.items():
        chosen = Filter(Topics((pattern,)))
        assert [topic for topic in names if decision(*stamped([(b"", None, topic, b"")], 5), chosen)] == wanted


def test_a_hostile_pattern_costs_no_more_than_its_length_times_the_texts() -> None:
    """With a regular expression that goes back over its matches this would take longer than the universe lasts."""
    chosen = filter_of((), "body LIKE '" + "%a" * 60 + "b'")
    assert chosen is not None
    assert not chosen.takes(Row(0, [1], [""], [None], [b""], [b"a" * 3000]))


def test_a_chain_of_as_many_conditions_as_are_allowed_is_decided() -> None:
    expression: Expression = Attribute("body.a")
    for _ in range(200):
        expression = Binary("OR", expression, Attribute("body.b.c"))
    assert decision(*stamped([BARE], 1), Filter(Sql(expression))) is None


@pytest.mark.parametrize("kinds", [2, 300])
@pytest.mark.parametrize("every", [3, 50])
def test_few_or_many_of_few_or_many_topics_are_found_in_a_large_batch(kinds: int, every: int) -> None:
    """Indexes of up to 256 topics are bytes, and few messages are searched for: other ways, with the same outcome."""
    rows = [(b"%d" % (n % 7), None, "kept" if n % every == 1 else f"t{n % (kinds - 1)}", b"") for n in range(1200)]
    header, data = stamped(rows, 1000)
    assert len(open_batch(data).topics) == kinds
    for asked, body in ((("kept",), None), (("kept", "t0"), b"3")):
        chosen = filter_of(asked, None if body is None else rule_json(parse_rule("body = '3'")))
        assert chosen is not None
        places = [n for n, row in enumerate(rows) if row[2] in asked and body in (None, row[0])]
        left = select(header, data, chosen)
        assert left is not None
        assert [message.number - 1000 for message in open_batch(left).messages("q")] == places
