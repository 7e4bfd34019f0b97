"""`hoot subscription snapshot`, with a real host and subscribers."""

from __future__ import annotations

import signal

import pytest

from tests.integration.cli.running import SECONDS, Child, Hoot
from tests.integration.embedded import eventually

pytestmark = pytest.mark.integration

BODIES = ["one", "two", "three"]


def listen(hoot: Hoot, queue: str, limit: int) -> list[str]:
    subscribe = ["subscribe", queue, "--name", "mine", "--from", "earliest", "--format", "body"]
    heard = hoot(*subscribe, "--limit", str(limit)).stdout.split()
    eventually(lambda: hoot.json("subscription", "info", queue, "mine")["listener"] is None, "detached", SECONDS)
    return heard


@pytest.fixture
def heard(hoot: Hoot, queue: str) -> str:
    """The id of the first of three messages in partition 0; the subscription `mine` has handled that one."""
    [first, *_] = hoot.json("publish", queue, *BODIES, "--partition", "0")["ids"]
    assert listen(hoot, queue, 1) == ["one"]
    return str(first["id"])


def test_a_subscription_goes_back_to_where_a_snapshot_was_taken(hoot: Hoot, queue: str, heard: str) -> None:
    snapshot = ["subscription", "snapshot"]
    assert "would create snapshot before" in hoot(*snapshot, "create", queue, "mine", "before", "--dry-run").stdout
    assert hoot.json(*snapshot, "list", queue, "mine") == []
    made = hoot.json(*snapshot, "create", queue, "mine", "before")
    assert made["created"]
    assert made["partitions"][0] == {"partition": 0, "position": heard, "parked": 0}
    assert listen(hoot, queue, 2) == ["two", "three"]

    told = hoot(*snapshot, "restore", queue, "mine", "before", "--dry-run").stdout
    assert f"would move subscription mine of queue {queue}: 2 messages come again" in told
    restored = hoot.json(*snapshot, "restore", queue, "mine", "before", "--yes")
    assert [one["messages"] for one in restored["partitions"]] == [2, 0, 0]
    assert listen(hoot, queue, 2) == ["two", "three"]

    assert "would delete" in hoot(*snapshot, "delete", queue, "mine", "before", "--dry-run").stdout
    assert heard in hoot(*snapshot, "show", queue, "mine", "before").stdout
    assert hoot.json(*snapshot, "delete", queue, "mine", "before", "--yes")["deleted"]
    assert hoot.json(*snapshot, "list", queue, "mine") == []


def test_an_attached_subscription_goes_back_only_by_force_and_then_at_once(hoot: Hoot, queue: str, heard: str) -> None:
    hoot("subscription", "snapshot", "create", queue, "mine", "before")
    restore = ["subscription", "snapshot", "restore", queue, "mine", "before", "--yes"]
    with Child("subscribe", queue, "--name", "mine", "--format", "body", zookeeper=hoot.zookeeper) as child:
        child.says("three")
        assert hoot.refused(*restore)["error"] == "subscription_busy"
        child.lines.clear()
        hoot(*restore, "--force")
        child.says("three")
        assert child.lines == ["two\n", "three\n"]
        assert child.end(signal.SIGINT) == 130


def test_what_cannot_be_is_refused_with_what_to_do(hoot: Hoot, queue: str, heard: str) -> None:
    snapshot = ["subscription", "snapshot"]
    hoot(*snapshot, "create", queue, "mine", "before")
    assert hoot.refused(*snapshot, "create", queue, "mine", "before")["error"] == "snapshot_exists"
    assert hoot.refused(*snapshot, "create", queue, "mine", "a/b", status=2)["error"] == "invalid_request"
    assert hoot.refused(*snapshot, "create", queue, "yours", "before")["error"] == "unknown_subscription"
    for command in (["show"], ["delete", "--yes"], ["restore", "--yes"]):
        told = hoot.refused(*snapshot, command[0], queue, "mine", "befor", *command[1:])
        assert told["error"] == "unknown_snapshot"
        assert "did you mean before" in told["message"]
