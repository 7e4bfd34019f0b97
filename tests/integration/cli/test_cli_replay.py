"""`hoot subscription replay` and `promote`, with a real host and subscribers."""

from __future__ import annotations

import time

import pytest

from delivery import Client, MessageId
from delivery.errors import InvalidRequest, SubscriptionExists
from tests.integration.cli.running import SECONDS, Child, Hoot
from tests.integration.embedded import eventually

pytestmark = pytest.mark.integration


def publish(client: Client, queue: str, *bodies: str) -> list[str]:
    """The ids of messages in partition 0."""
    return [str(client.queue(queue).put(body.encode(), partition=0).id) for body in bodies]


def listen(hoot: Hoot, queue: str, name: str, limit: int) -> list[str]:
    return hoot("subscribe", queue, "--name", name, "--format", "body", "--limit", str(limit), "--force").stdout.split()


@pytest.fixture
def heard(client: Client, queue: str) -> list[str]:
    """The ids of four messages in partition 0, which the subscription `mine` has behind it."""
    ids = publish(client, queue, "one", "two", "three", "four")
    client.create_subscription(queue, "mine")
    return ids


def test_a_replay_delivers_its_stretch_and_says_that_it_is_finished_and_the_real_one_goes_on(
    client: Client, hoot: Hoot, queue: str, heard: list[str]
) -> None:
    replay = ["subscription", "replay", queue, "mine", "--from", heard[1], "--to", heard[3], "--into", "shadow"]
    told = hoot(*replay, "--speed", "max", "--dry-run").stdout
    assert f"would create subscription shadow of queue {queue}, which replays 2 messages of mine" in told
    assert client.subscriptions(queue) == ["mine"]
    made = hoot.json(*replay, "--speed", "max")
    assert (made["created"], made["messages"], made["speed"]) == (True, 2, None)
    assert made["partitions"][0]["messages"] == 2

    publish(client, queue, "five")
    found = client.subscription_info(queue, "shadow")
    assert (found.finished, found.lag) == (False, 2)
    with Child("subscribe", queue, "--name", "shadow", "--format", "body", zookeeper=hoot.zookeeper) as child:
        child.says("three")
        eventually(lambda: client.subscription_info(queue, "shadow").finished, "it is finished", SECONDS)
        assert "of mine, finished" in hoot("subscription", "info", queue, "shadow").stdout
        found = hoot.json("subscription", "info", queue, "shadow")
        assert (found["replay"], found["lag"]) == ({"of": "mine", "finished": True}, 0)
        assert child.lines == ["two\n", "three\n"]
    assert listen(hoot, queue, "mine", 1) == ["five"]


def test_a_replay_keeps_the_pace_of_the_messages_times_its_speed(
    client: Client, hoot: Hoot, queue: str, heard: list[str]
) -> None:
    first = MessageId.parse(heard[0])
    eventually(lambda: time.time() * 1000 > first.timestamp_ms + 4_000, "some seconds have passed", 30)
    [last] = publish(client, queue, "late")
    hoot("subscription", "replay", queue, "mine", "--from", "earliest", "--into", "shadow", "--speed", "2")
    began = time.monotonic()
    with Child("subscribe", queue, "--name", "shadow", "--format", "body", zookeeper=hoot.zookeeper) as child:
        child.says("late")
        assert time.monotonic() - began > (MessageId.parse(last).timestamp_ms - first.timestamp_ms) / 2000
        assert child.lines == ["one\n", "two\n", "three\n", "four\n", "late\n"]


def test_a_replay_is_promoted_and_the_real_one_goes_on_where_it_stands(
    client: Client, hoot: Hoot, queue: str, heard: list[str]
) -> None:
    hoot("subscription", "replay", queue, "mine", "--from", "earliest", "--to", heard[2], "--into", "shadow",
         "--speed", "max", "--filter", "body != 'one'")  # fmt: skip
    assert listen(hoot, queue, "shadow", 1) == ["two"]
    eventually(lambda: client.subscription_info(queue, "shadow").finished, "it is finished", SECONDS)
    told = hoot("subscription", "promote", queue, "shadow", "--dry-run").stdout
    assert f"would move subscription mine of queue {queue}: 2 messages come again" in told
    with Child("subscribe", queue, "--name", "shadow", zookeeper=hoot.zookeeper):
        eventually(lambda: client.subscription_info(queue, "shadow").listener is not None, "attached", SECONDS)
        refused = hoot.refused("subscription", "promote", queue, "shadow", "--yes")
        assert refused["error"] == "subscription_busy"
        promoted = hoot.json("subscription", "promote", queue, "shadow", "--yes", "--force")
    assert (promoted["subscription"], promoted["moved"]) == ("mine", True)
    assert promoted["partitions"][0]["messages"] == 2
    assert client.subscriptions(queue) == ["mine"]
    assert listen(hoot, queue, "mine", 2) == ["three", "four"]


def test_what_cannot_be_is_refused_and_nothing_is_made(
    client: Client, hoot: Hoot, queue: str, heard: list[str]
) -> None:
    for into, options, error in (
        ("shadow", {"start": "latest"}, InvalidRequest),
        ("shadow", {"start": heard[2], "end": heard[2]}, InvalidRequest),
        ("shadow", {"start": "earliest", "filter": "body.total >"}, InvalidRequest),
        ("shadow", {"start": "earliest", "speed": 0}, InvalidRequest),
        ("a/b", {"start": "earliest"}, InvalidRequest),
        ("__shadow", {"start": "earliest"}, InvalidRequest),
        ("mine", {"start": "earliest"}, SubscriptionExists),
    ):
        with pytest.raises(error):
            client.replay(queue, "mine", into, **options)
    with pytest.raises(InvalidRequest, match="is no replay"):
        client.promote(queue, "mine")
    assert client.subscriptions(queue) == ["mine"]
    refused = ["subscription", "replay", queue, "mine", "--from", "earliest", "--into", "shadow", "--speed", "fast"]
    assert hoot.refused(*refused, status=2)["error"] == "bad_use"
