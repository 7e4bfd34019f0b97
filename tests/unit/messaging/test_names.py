"""Names, properties, ids and where a poll begins."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from delivery.errors import InvalidRequest
from delivery.ids import ID_MAX
from delivery.messaging.ids import Start, TopicId, id_of, read_id, read_start
from delivery.messaging.names import Properties, queue_of, queue_settings, read_properties, shown_properties
from delivery.model import check_settings

NAMES = st.text("abAB01_-", min_size=1, max_size=6)
SPACES = st.text("abAB01_", min_size=1, max_size=6)
IDS = st.builds(TopicId, st.integers(0, 2**40), st.integers(0, 65535), st.integers(0, 2**40), st.integers(0, 65535))
NOW = 1_700_000_000_000


@given(SPACES, NAMES, SPACES, NAMES)
def test_no_two_topics_share_a_queue(one: str, a: str, other: str, b: str) -> None:
    assert (queue_of(one, a) == queue_of(other, b)) == ((one, a) == (other, b))


@pytest.mark.parametrize(
    ("namespace", "topic"),
    [("a-b", "t"), ("", "t"), ("a.b", "t"), ("ä", "t"), ("a", "t.t"), ("a", ""), ("a", "t t"), ("a", "t\n"), ("a", "ü"),
     ("a", "t" * 248), ("a" * 248, "t"), ("..", "t")],
)  # fmt: skip
def test_other_names_are_refused(namespace: str, topic: str) -> None:
    with pytest.raises(InvalidRequest):
        queue_of(namespace, topic)


@pytest.mark.parametrize(("text", "seconds"), [("1", 1), ("+5", 5), ("0100", 100), ("2147483647", 2**31 - 1)])
def test_a_ttl_is_a_whole_number_of_seconds(text: str, seconds: int) -> None:
    assert read_properties({"ttl": text}).ttl_seconds == seconds
    assert check_settings(queue_settings(seconds)).ttl_seconds == seconds + 90_000


@pytest.mark.parametrize("text", ["0", "-1", "2147483648", "1.5", "1e3", "1_000", "", " 5", "soon", "١", "9" * 5000])
def test_another_ttl_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_properties({"ttl": text})


def test_properties_are_kept_but_for_the_generation_and_shown_with_it() -> None:
    wanted = read_properties({"generation": "7", "owner": "me"})
    assert wanted == Properties(604_800, {"owner": "me"})
    assert shown_properties(2, 60, wanted.others) == {"owner": "me", "ttl": "60", "generation": "2"}
    with pytest.raises(InvalidRequest):
        read_properties({"k": "ä" * 40_000})


@given(IDS, IDS)
def test_the_order_of_the_bytes_is_the_order_of_the_ids(a: TopicId, b: TopicId) -> None:
    assert len(a.pack()) == 20
    assert read_id(a.pack()) == a
    assert (a.pack() < b.pack()) == (a < b)


@given(IDS, st.integers(1, 2**55), st.booleans())
def test_everything_that_a_start_takes_lies_behind_its_place_in_the_log(
    place: TopicId, number: int, inclusive: bool
) -> None:
    start = Start(place, inclusive)
    if start.takes(id_of(number, 1)):
        assert number > start.after


def test_a_poll_starts_at_what_is_asked_for_but_not_at_what_is_too_old() -> None:
    oldest = Start(TopicId(NOW - 10_000, 0), inclusive=True)
    young = TopicId(NOW - 5, 3, 4, 5)
    assert read_start(None, False, 10, NOW) == oldest
    assert read_start(0, False, 10, NOW) == oldest
    assert read_start(NOW - 5, False, 10, NOW) == Start(TopicId(NOW - 5, 0), inclusive=True)
    assert read_start(young.pack(), False, 10, NOW) == Start(young, inclusive=False)
    assert read_start(TopicId(NOW - 10_001, 9).pack(), False, 10, NOW) == oldest
    assert read_start(2**63 - 1, True, 10, NOW).after == ID_MAX - 1
    assert read_start(b"\xff" * 20, True, 10, NOW) == oldest
    for wrong in (-1, b"x" * 19):
        with pytest.raises(InvalidRequest):
            read_start(wrong, True, 10, NOW)
