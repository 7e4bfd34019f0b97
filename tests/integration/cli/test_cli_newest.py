"""`--from latest-per-key`, with a real host and subscribers: the state of all keys first, then what is new."""

from __future__ import annotations

import pytest

from tests.integration.cli.running import SECONDS, Child, Hoot
from tests.integration.embedded import eventually

pytestmark = pytest.mark.integration


def publish(hoot: Hoot, queue: str, *pairs: tuple[str, str]) -> None:
    """One message after another, in partition 0: (key, body)."""
    for key, body in pairs:
        hoot("publish", queue, body, "--partition", "0", "--key", key)


def test_a_subscription_begins_with_the_newest_message_of_each_key_and_goes_on_with_all(hoot: Hoot, queue: str) -> None:
    publish(hoot, queue, ("a", "a1"), ("b", "b1"), ("a", "a2"), ("c", "c1"))
    made = hoot.json("subscription", "create", queue, "state", "--from", "latest-per-key")
    assert made["starts"]["0"] == "0-0"
    publish(hoot, queue, ("a", "a3"), ("b", "b2"))
    listening = ["subscribe", queue, "--name", "state", "--format", "body"]
    assert hoot(*listening, "--limit", "2").stdout.split() == ["b1", "a2"]
    eventually(lambda: hoot.json("subscription", "info", queue, "state")["listener"] is None, "detached", SECONDS)
    with Child(*listening, zookeeper=hoot.zookeeper) as child:
        child.says("b2")
        assert child.lines == ["c1\n", "a3\n", "b2\n"], "who comes next goes on in the same order"
    eventually(lambda: hoot.json("subscription", "info", queue, "state")["lag"] == 0, "nothing is left", SECONDS)


def test_after_a_seek_every_message_comes(hoot: Hoot, queue: str) -> None:
    publish(hoot, queue, ("a", "a1"), ("a", "a2"))
    hoot("subscription", "create", queue, "state", "--from", "latest-per-key")
    hoot("subscription", "seek", queue, "state", "--to", "earliest", "--yes")
    assert hoot("subscribe", queue, "--name", "state", "--format", "body", "--limit", "2").stdout.split() == [
        "a1",
        "a2",
    ]


def test_it_is_no_place_to_seek_to_or_to_scan_from(hoot: Hoot, queue: str) -> None:
    hoot("subscription", "create", queue, "state")
    for command in (["subscription", "seek", queue, "state", "--yes", "--to"], ["scan", queue, "--from"]):
        assert hoot.refused(*command, "latest-per-key", status=2)["error"] == "bad_use"
