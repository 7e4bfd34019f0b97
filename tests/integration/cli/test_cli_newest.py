"""`--from latest-per-key`, with a real host and subscribers: the state of all keys first, then what is new."""

from __future__ import annotations

import pytest

from delivery import Client
from tests.integration.cli.running import SECONDS, Child, Hoot
from tests.integration.embedded import eventually

pytestmark = pytest.mark.integration


def publish(client: Client, queue: str, *bodies: str) -> None:
    """Messages in partition 0, one batch each, whose keys are the first letters of their bodies."""
    for body in bodies:
        client.queue(queue).put(body.encode(), key=body[:1].encode(), partition=0)


def test_a_subscription_begins_with_the_newest_message_of_each_key_and_goes_on_with_all(
    client: Client, hoot: Hoot, queue: str
) -> None:
    publish(client, queue, "a1", "b1", "a2", "c1")
    made = hoot.json("subscription", "create", queue, "state", "--from", "latest-per-key")
    assert made["starts"]["0"] == "0-0"
    publish(client, queue, "a3", "b2")
    listening = ["subscribe", queue, "--name", "state", "--format", "body"]
    assert hoot(*listening, "--limit", "2").stdout.split() == ["b1", "a2"]
    with Child(*listening, "--force", zookeeper=hoot.zookeeper) as child:
        child.says("b2")
        assert child.lines == ["c1\n", "a3\n", "b2\n"], "who comes next goes on in the same order"
        eventually(lambda: client.subscription_info(queue, "state").lag == 0, "nothing is left", SECONDS)


def test_after_a_seek_every_message_comes(client: Client, hoot: Hoot, queue: str) -> None:
    publish(client, queue, "a1", "a2")
    client.create_subscription(queue, "state", start="latest-per-key")
    client.seek(queue, "state", "earliest")
    heard = hoot("subscribe", queue, "--name", "state", "--format", "body", "--limit", "2").stdout
    assert heard.split() == ["a1", "a2"]


@pytest.mark.parametrize("command", [["subscription", "seek", "q", "state", "--yes", "--to"], ["scan", "q", "--from"]])
def test_it_is_no_place_to_seek_to_or_to_scan_from(hoot: Hoot, command: list[str]) -> None:
    assert hoot.refused(*command, "latest-per-key", status=2)["error"] == "bad_use"
