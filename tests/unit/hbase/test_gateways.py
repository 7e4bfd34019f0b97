"""Which gateway is asked next, and what the text of an option may be."""

from __future__ import annotations

import pytest

from delivery.errors import ConfigError
from delivery.hbase.gateways import DELAY_MAX_SECONDS, DELAY_SECONDS, Gateways, parse_gateways

ONE, TWO, THREE = ("one", 1), ("two", 2), ("three", 3)


def test_gateways_are_named_with_and_without_a_port() -> None:
    assert parse_gateways("one:9191, two ,one:9191") == [("one", 9191), ("two", 9090)]


@pytest.mark.parametrize("text", ["", " , ", "one:", ":9090", "one:0", "one:65536", "one:x", "o ne:1"])
def test_a_name_that_cannot_be_one_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_gateways(text)


def test_every_wrong_name_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"'a:'.*'b:x'"):
        parse_gateways("a:,good,b:x")


def test_connections_spread_over_the_gateways() -> None:
    gateways = Gateways([ONE, TWO, THREE])
    assert gateways.next({}, 0) == ONE
    assert gateways.next({ONE: 1}, 0) == TWO
    assert gateways.next({ONE: 1, TWO: 1, THREE: 0}, 0) == THREE


def test_one_that_failed_is_passed_over_for_longer_each_time_until_it_works() -> None:
    gateways = Gateways([ONE, TWO])
    now, pauses = 0.0, []
    for _ in range(8):
        gateways.failed(ONE, now)
        assert gateways.next({TWO: 9}, now) == TWO
        pause = 0.0
        while not gateways.good(ONE, now + pause):
            pause += DELAY_SECONDS
        pauses.append(pause)
        now += pause
    assert pauses[:3] == [DELAY_SECONDS, 2 * DELAY_SECONDS, 4 * DELAY_SECONDS]
    assert pauses[-1] == DELAY_MAX_SECONDS
    gateways.worked(ONE)
    gateways.failed(ONE, now)
    assert gateways.good(ONE, now + DELAY_SECONDS)


def test_when_all_have_failed_the_one_that_is_due_first_is_tried() -> None:
    gateways = Gateways([ONE, TWO])
    gateways.failed(ONE, 0)
    gateways.failed(ONE, 0)
    gateways.failed(TWO, 0)
    assert gateways.next({}, 0.1) == TWO
