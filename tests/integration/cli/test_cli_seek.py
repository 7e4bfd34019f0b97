"""`hoot subscription seek`, with real hosts and subscribers."""

from __future__ import annotations

import signal

import pytest

from delivery import Client
from tests.integration.cli.running import SECONDS, Child, Hoot
from tests.integration.embedded import eventually
from tests.saving import is_saved

pytestmark = pytest.mark.integration

BODIES = ["one", "two", "three"]


@pytest.fixture
def heard(client: Client, hoot: Hoot, queue: str) -> list[str]:
    """The ids of three messages in partition 0, which the subscription `mine` has handled."""
    published = hoot.json("publish", queue, *BODIES, "--partition", "0")
    listen(client, hoot, queue, len(BODIES))
    return [one["id"] for one in published["ids"]]


def listen(client: Client, hoot: Hoot, queue: str, limit: int) -> list[str]:
    subscribe = ["subscribe", queue, "--name", "mine", "--from", "earliest", "--format", "body"]
    heard = hoot(*subscribe, "--limit", str(limit)).stdout.split()
    eventually(lambda: client.subscription_info(queue, "mine").listener is None, "detached", SECONDS)
    eventually(lambda: is_saved(client, queue, "mine"), "its position is saved", SECONDS)
    return heard


def seek(hoot: Hoot, queue: str, *options: str) -> dict[int, int]:
    """Per partition of the subscription how many messages come again (below zero: are skipped)."""
    done = hoot.json("subscription", "seek", queue, "mine", *options, "--yes")
    back = {one["partition"]: 1 if one["after"] <= one["before"] else -1 for one in done["partitions"]}
    return {one["partition"]: one["messages"] * back[one["partition"]] for one in done["partitions"]}


def test_a_subscription_hears_again_what_it_is_moved_back_to(
    client: Client, hoot: Hoot, queue: str, heard: list[str]
) -> None:
    assert seek(hoot, queue, "--to", heard[1], "--partition", "0") == {0: 2}
    assert listen(client, hoot, queue, 2) == ["two", "three"]
    assert seek(hoot, queue, "--to", "earliest")[0] == 3
    assert listen(client, hoot, queue, 3) == BODIES


def test_a_subscription_skips_what_it_is_moved_over(client: Client, hoot: Hoot, queue: str, heard: list[str]) -> None:
    hoot("publish", queue, "four", "five", "--partition", "0")
    assert seek(hoot, queue, "--to", "latest")[0] == -2
    hoot("publish", queue, "six", "--partition", "0")
    assert listen(client, hoot, queue, 1) == ["six"]


def test_a_dry_run_tells_and_moves_nothing(hoot: Hoot, queue: str, heard: list[str]) -> None:
    before = hoot.json("subscription", "info", queue, "mine")["partitions"]
    said = hoot("subscription", "seek", queue, "mine", "--to", "-1h", "--dry-run").stdout
    assert f"would move subscription mine of queue {queue}: 3 messages come again" in said
    assert hoot.json("subscription", "info", queue, "mine")["partitions"] == before


def test_an_attached_subscription_moves_only_by_force_and_then_at_once(
    hoot: Hoot, queue: str, heard: list[str]
) -> None:
    with Child("subscribe", queue, "--name", "mine", "--format", "body", zookeeper=hoot.zookeeper) as child:
        eventually(lambda: hoot.json("subscription", "info", queue, "mine")["listener"], "attached", SECONDS)
        hoot("publish", queue, "four", "--partition", "0")
        child.says("four")
        seeking = ["subscription", "seek", queue, "mine", "--to", heard[1], "--yes"]
        assert hoot.refused(*seeking)["error"] == "subscription_busy"
        for _ in range(2):  # the second time back over what was handled since the first
            child.lines.clear()
            hoot(*seeking, "--force")
            child.says("four")
            assert child.lines == ["two\n", "three\n", "four\n"]
        assert child.end(signal.SIGINT) == 130


def test_places_that_are_not_there_are_refused_and_nothing_moves(hoot: Hoot, queue: str, heard: list[str]) -> None:
    before = hoot.json("subscription", "info", queue, "mine")["partitions"]
    future = f"{int(heard[-1].partition('-')[0]) + 60_000}-0"
    for options, error, status in (
        (["--to", future], "invalid_request", 2),
        (["--to", "earliest", "--partition", "900"], "unknown_partition", 2),
    ):
        assert hoot.refused("subscription", "seek", queue, "mine", *options, "--yes", status=status)["error"] == error
    refused = hoot.refused("subscription", "seek", queue, "other", "--to", "latest", "--yes")
    assert refused["error"] == "unknown_subscription"
    assert hoot.json("subscription", "info", queue, "mine")["partitions"] == before
