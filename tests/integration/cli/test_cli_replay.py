"""`hoot subscription replay` and `promote`, with a real host and subscribers."""

from __future__ import annotations

import time

import pytest

from delivery import MessageId
from tests.integration.cli.running import SECONDS, Child, Hoot
from tests.integration.embedded import eventually

pytestmark = pytest.mark.integration


def publish(hoot: Hoot, queue: str, *bodies: str) -> list[str]:
    """The ids of messages in partition 0."""
    return [one["id"] for one in hoot.json("publish", queue, *bodies, "--partition", "0")["ids"]]


def listen(hoot: Hoot, queue: str, name: str, limit: int) -> list[str]:
    subscribe = ["subscribe", queue, "--name", name, "--from", "earliest", "--format", "body"]
    heard = hoot(*subscribe, "--limit", str(limit)).stdout.split()
    eventually(lambda: hoot.json("subscription", "info", queue, name)["listener"] is None, "detached", SECONDS)
    return heard


@pytest.fixture
def heard(hoot: Hoot, queue: str) -> list[str]:
    """The ids of four messages in partition 0, which the subscription `mine` has handled."""
    ids = publish(hoot, queue, "one", "two", "three", "four")
    assert len(listen(hoot, queue, "mine", 4)) == 4
    return ids


def info(hoot: Hoot, queue: str, name: str) -> dict[str, object]:
    found: dict[str, object] = hoot.json("subscription", "info", queue, name)
    return found


def test_a_replay_delivers_its_stretch_and_says_that_it_is_finished_and_the_real_one_goes_on(
    hoot: Hoot, queue: str, heard: list[str]
) -> None:
    replay = ["subscription", "replay", queue, "mine", "--from", heard[1], "--to", heard[3], "--into", "shadow"]
    told = hoot(*replay, "--speed", "max", "--dry-run").stdout
    assert f"would create subscription shadow of queue {queue}, which replays 2 messages of mine" in told
    assert hoot.json("subscription", "list", queue)[0]["subscription"] == "mine"
    made = hoot.json(*replay, "--speed", "max")
    assert (made["created"], made["messages"], made["speed"]) == (True, 2, None)
    assert made["partitions"][0]["messages"] == 2

    publish(hoot, queue, "five")
    found = info(hoot, queue, "shadow")
    assert (found["replay"], found["lag"]) == ({"of": "mine", "finished": False}, 2)
    with Child("subscribe", queue, "--name", "shadow", "--format", "body", zookeeper=hoot.zookeeper) as child:
        child.says("three")
        eventually(
            lambda: "finished" in hoot("subscription", "info", queue, "shadow").stdout.split("\n")[6], "done", 60
        )
        found = info(hoot, queue, "shadow")
        assert (found["replay"], found["lag"]) == ({"of": "mine", "finished": True}, 0)
        assert child.lines == ["two\n", "three\n"]
    assert listen(hoot, queue, "mine", 1) == ["five"]


def test_a_replay_keeps_the_pace_of_the_messages_times_its_speed(hoot: Hoot, queue: str, heard: list[str]) -> None:
    first = MessageId.parse(heard[0])
    eventually(lambda: time.time() * 1000 > first.timestamp_ms + 4_000, "some seconds have passed", 30)
    [last] = publish(hoot, queue, "late")
    hoot("subscription", "replay", queue, "mine", "--from", "earliest", "--into", "shadow", "--speed", "2")
    with Child("subscribe", queue, "--name", "shadow", "--format", "body", zookeeper=hoot.zookeeper) as child:
        child.says("four")
        began = time.monotonic()
        child.says("late")
        assert time.monotonic() - began > (MessageId.parse(last).timestamp_ms - first.timestamp_ms) / 2000 - 1
        assert child.lines == ["one\n", "two\n", "three\n", "four\n", "late\n"]


def test_a_replay_is_promoted_and_the_real_one_goes_on_where_it_stands(
    hoot: Hoot, queue: str, heard: list[str]
) -> None:
    hoot("subscription", "replay", queue, "mine", "--from", "earliest", "--to", heard[2], "--into", "shadow",
         "--speed", "max", "--filter", "body != 'one'")  # fmt: skip
    assert listen(hoot, queue, "shadow", 1) == ["two"]
    eventually(lambda: info(hoot, queue, "shadow")["replay"] == {"of": "mine", "finished": True}, "finished", SECONDS)
    told = hoot("subscription", "promote", queue, "shadow", "--dry-run").stdout
    assert f"would move subscription mine of queue {queue}: 2 messages come again" in told
    with Child("subscribe", queue, "--name", "shadow", zookeeper=hoot.zookeeper):
        eventually(lambda: info(hoot, queue, "shadow")["listener"] is not None, "attached", SECONDS)
        refused = hoot.refused("subscription", "promote", queue, "shadow", "--yes")
        assert refused["error"] == "subscription_busy"
        promoted = hoot.json("subscription", "promote", queue, "shadow", "--yes", "--force")
    assert (promoted["subscription"], promoted["moved"]) == ("mine", True)
    assert promoted["partitions"][0]["messages"] == 2
    assert [one["subscription"] for one in hoot.json("subscription", "list", queue)] == ["mine"]
    assert listen(hoot, queue, "mine", 2) == ["three", "four"]


def test_what_cannot_be_is_refused_and_nothing_is_made(hoot: Hoot, queue: str, heard: list[str]) -> None:
    replay = ["subscription", "replay", queue, "mine", "--into", "shadow"]
    for options, error, status in (
        (["--from", "latest"], "invalid_request", 2),
        (["--from", heard[2], "--to", heard[2]], "invalid_request", 2),
        (["--from", "earliest", "--speed", "fast"], "bad_use", 2),
        (["--from", "earliest", "--filter", "body.total >"], "invalid_request", 2),
        (["--from", "earliest", "--into", "mine"], "subscription_exists", 1),
    ):
        assert hoot.refused(*replay, *options, status=status)["error"] == error, options
    assert hoot.refused("subscription", "promote", queue, "mine", "--yes", status=2)["error"] == "invalid_request"
    assert len(hoot.json("subscription", "list", queue)) == 1
