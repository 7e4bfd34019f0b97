"""`hoot queue …`: created, listed, changed and deleted; bad names and settings change nothing."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.running import Hoot

pytestmark = pytest.mark.integration

BAD_NAMES = ["..", ".", "%2e", "a/b", "a\rb", "a\nb", "", "x" * 10_240, "ü", "-- -"]


def test_a_queue_is_created_listed_shown_changed_and_deleted(hoot: Hoot) -> None:
    hoot("queue", "create", "life", "-n", "2", "--durability", "os", "--ttl", "7d", "--retention", "10MiB")
    [found] = [one for one in hoot.json("queue", "list") if one["queue"] == "life"]
    assert (found["partitions"], found["durability"], found["ttl_seconds"]) == (2, "os", 604_800)
    assert found["retention_bytes"] == 10 << 20
    assert "life" in hoot("queue", "list").stdout

    info = hoot.json("queue", "info", "life")
    assert {name: info[name] for name in found} == found
    assert [one["partition"] for one in info["stored"]] == [0, 1]
    assert "durability" in hoot("queue", "info", "life").stdout
    assert (found["store"], hoot.json("queue", "info", "life")["store"]) == (None, "log"), "since a host has it"

    hoot("queue", "update", "life", "--ttl", "none", "--durability", "fsync")
    changed = hoot.json("queue", "info", "life")
    assert (changed["ttl_seconds"], changed["durability"], changed["retention_bytes"]) == (None, "fsync", 10 << 20)

    hoot("queue", "update", "life", "--backlog-messages", "1000000", "--backlog-bytes", "5MiB")
    limited = hoot.json("queue", "info", "life")
    assert (limited["backlog_messages"], limited["backlog_bytes"]) == (1_000_000, 5 << 20)
    shown = hoot("queue", "info", "life").stdout
    assert "1,000,000 messages or 5.0 MiB of a partition that are not acknowledged" in shown
    hoot("queue", "update", "life", "--backlog-messages", "none", "--backlog-bytes", "none")
    assert "publishers wait" not in hoot("queue", "info", "life").stdout

    hoot("queue", "delete", "life", "--dry-run")
    assert "life" in hoot("queue", "list").stdout, "a dry run does nothing"
    hoot("queue", "delete", "life", "--yes")
    assert hoot.refused("queue", "info", "life")["error"] == "unknown_queue"


def test_deleting_asks_and_without_a_terminal_wants_yes(hoot: Hoot, queue: str) -> None:
    told = hoot.refused("queue", "delete", queue, status=2)
    assert "--yes" in told["message"]
    hoot("queue", "info", queue)


def test_a_queue_is_created_once(hoot: Hoot, queue: str) -> None:
    assert hoot.refused("queue", "create", queue)["error"] == "queue_exists"


def test_an_unknown_queue_brings_near_names(hoot: Hoot) -> None:
    hoot("queue", "create", "flights-of-2013")
    assert "flights-of-2013" in hoot.refused("scan", "flights-of-2031")["message"]
    assert hoot.refused("publish", "flights-of-2031", "x")["error"] == "unknown_queue"


@pytest.mark.parametrize("name", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_a_bad_name_is_refused_as_bad_use_and_nothing_is_changed(hoot: Hoot, name: str) -> None:
    told = hoot("queue", "create", "--json", "--", name, status=2).stderr
    assert json.loads(told)["error"] == "invalid_request"
    assert len(told) < 400
    assert name not in [one["queue"] for one in hoot.json("queue", "list")]


@pytest.mark.parametrize(
    "command",
    ["queue info", "queue update --ttl 1d", "queue delete --yes", "scan", "publish", "subscribe --limit 1",
     "subscription list", "subscription info q", "subscription delete --yes q", "subscribe q --limit 1 --name"],
)  # fmt: skip
def test_every_command_refuses_bad_names(hoot: Hoot, command: str) -> None:
    told = hoot(*command.split(), "../%2e\r\n", "--json", status=2).stderr
    assert json.loads(told)["error"] == "invalid_request"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-n", "0"],
        ["-n", "32768"],
        ["--ttl", "0"],
        ["--retention", "5"],
        ["--body-limit", "1GiB"],
        ["--durability", "no"],
    ],
    ids=" ".join,
)
def test_settings_outside_their_limits_are_bad_use(hoot: Hoot, arguments: list[str]) -> None:
    hoot.refused("queue", "create", "never", *arguments, status=2)
    assert "never" not in [one["queue"] for one in hoot.json("queue", "list")]
