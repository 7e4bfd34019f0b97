"""Batches that are not full wait for the answers to what was sent before them: for so long, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

import pytest

from delivery.client import sender
from delivery.client.accumulator import Limits
from delivery.client.publisher import Publisher
from tests.integration.embedded import eventually
from tests.scripted_host import Act, ScriptedHost, target

SECONDS = 20.0
AT_ONCE = Limits(linger=0, batch_messages=3)


class Mute:
    """A script: the first publish is answered, the later ones when `answers` is set, and the connections broken."""

    def __init__(self) -> None:
        self.answers = False

    def __call__(self, number: int) -> Act:
        return "store" if number == 0 or self.answers else "lose"


@contextmanager
def one_in_flight(limits: Limits = AT_ONCE) -> Iterator[tuple[ScriptedHost, Publisher]]:
    """A publisher whose host knows it, and has a message of it that is not answered; in the end all is."""
    script = Mute()
    with ScriptedHost(script) as host, Publisher(target(host), limits, timeout=SECONDS) as under_test:
        under_test.put(b"0").result(SECONDS)
        under_test.put(b"1")
        eventually(lambda: host.published == 2, "a publish has come")
        yield host, under_test
        script.answers = True
        host.hang_up()
        under_test.flush()
        assert host.bodies == [b"%d" % number for number in range(len(host.bodies))]


def test_while_something_is_in_flight_messages_gather_and_the_answer_sends_them_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "GAP_SECONDS", inf)
    limits = Limits(linger=0)
    with ScriptedHost() as host, Publisher(target(host), limits, timeout=SECONDS) as under_test:
        under_test.put(b"0").result(SECONDS)
        host.held.clear()
        under_test.put(b"1")
        for number in range(2, 50):
            under_test.put(b"%d" % number)
        host.held.set()
        under_test.flush()
        assert host.sizes == [1, 1, 48]
        assert host.bodies == [b"%d" % number for number in range(50)]


def test_what_is_full_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "GAP_SECONDS", inf)
    with one_in_flight() as (host, under_test):
        for number in range(2, 6):
            under_test.put(b"%d" % number)
        eventually(lambda: host.published == 3, "a publish has come")
        assert host.sizes == [1, 1, 3]


def test_an_answer_that_is_slow_is_waited_for_no_longer_than_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "GAP_SECONDS", 0.05)
    monkeypatch.setattr(sender, "NAP_SECONDS", 60.0)
    with one_in_flight() as (host, under_test):
        under_test.put(b"2")
        eventually(lambda: host.published == 3, "a publish has come")
