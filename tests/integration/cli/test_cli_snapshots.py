"""`hoot subscription snapshot`, with a real host and subscribers."""

from __future__ import annotations

import signal

import pytest

from delivery import Client
from delivery.errors import InvalidRequest, SnapshotExists, UnknownSnapshot, UnknownSubscription
from tests.integration.cli.running import SECONDS, Child, Hoot
from tests.integration.embedded import eventually
from tests.saving import is_saved

pytestmark = pytest.mark.integration

BODIES = ["one", "two", "three"]


def listen(client: Client, hoot: Hoot, queue: str, limit: int) -> list[str]:
    heard = hoot("subscribe", queue, "--name", "mine", "--format", "body", "--limit", str(limit)).stdout.split()
    eventually(lambda: client.subscription_info(queue, "mine").listener is None, "detached", SECONDS)
    eventually(lambda: is_saved(client, queue, "mine"), "its position is saved", SECONDS)
    return heard


@pytest.fixture
def heard(client: Client, queue: str) -> str:
    """The id of the first of three messages in partition 0; the subscription `mine` is behind that one."""
    first = client.queue(queue).put(BODIES[0].encode(), partition=0).id
    client.create_subscription(queue, "mine")
    for body in BODIES[1:]:
        client.queue(queue).put(body.encode(), partition=0)
    return str(first)


def test_a_subscription_goes_back_to_where_a_snapshot_was_taken(
    client: Client, hoot: Hoot, queue: str, heard: str
) -> None:
    snapshot = ["subscription", "snapshot"]
    assert "would create snapshot before" in hoot(*snapshot, "create", queue, "mine", "before", "--dry-run").stdout
    assert client.snapshots(queue, "mine") == {}
    made = hoot.json(*snapshot, "create", queue, "mine", "before")
    assert made["created"]
    assert made["partitions"][0] == {"partition": 0, "position": heard, "parked": 0}
    assert listen(client, hoot, queue, 2) == ["two", "three"]

    told = hoot(*snapshot, "restore", queue, "mine", "before", "--dry-run").stdout
    assert f"would move subscription mine of queue {queue}: 2 messages come again" in told
    assert [one["snapshot"] for one in hoot.json(*snapshot, "list", queue, "mine")] == ["before"]
    restored = hoot.json(*snapshot, "restore", queue, "mine", "before", "--yes")
    assert [one["messages"] for one in restored["partitions"]] == [2, 0, 0]
    assert listen(client, hoot, queue, 2) == ["two", "three"]

    assert "would delete" in hoot(*snapshot, "delete", queue, "mine", "before", "--dry-run").stdout
    assert heard in hoot(*snapshot, "show", queue, "mine", "before").stdout
    assert hoot.json(*snapshot, "delete", queue, "mine", "before", "--yes")["deleted"]
    assert client.snapshots(queue, "mine") == {}


def test_an_attached_subscription_goes_back_only_by_force_and_then_at_once(
    client: Client, hoot: Hoot, queue: str, heard: str
) -> None:
    client.create_snapshot(queue, "mine", "before")
    restore = ["subscription", "snapshot", "restore", queue, "mine", "before", "--yes"]
    with Child("subscribe", queue, "--name", "mine", "--format", "body", zookeeper=hoot.zookeeper) as child:
        child.says("three")
        assert hoot.refused(*restore)["error"] == "subscription_busy"
        child.lines.clear()
        hoot(*restore, "--force")
        child.says("three")
        assert child.lines == ["two\n", "three\n"]
        assert child.end(signal.SIGINT) == 130


def test_what_cannot_be_is_refused_with_what_to_do(client: Client, hoot: Hoot, queue: str, heard: str) -> None:
    client.create_snapshot(queue, "mine", "before")
    for name, snapshot, error in (
        ("mine", "before", SnapshotExists), ("mine", "a/b", InvalidRequest), ("yours", "before", UnknownSubscription)
    ):  # fmt: skip
        with pytest.raises(error):
            client.create_snapshot(queue, name, snapshot)
    for call in (client.snapshot, client.delete_snapshot, client.restore_snapshot):
        with pytest.raises(UnknownSnapshot, match="did you mean before"):
            call(queue, "mine", "befor")
    told = hoot.refused("subscription", "snapshot", "restore", queue, "mine", "befor", "--yes")
    assert (told["error"], "did you mean before" in told["message"]) == ("unknown_snapshot", True)
