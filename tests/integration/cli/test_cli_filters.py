"""Filters on the command line: subscribing with one, changing it while messages come, and asking why."""

from __future__ import annotations

import pytest

from tests.integration.cli.running import SECONDS, Child, Hoot
from tests.integration.embedded import eventually

pytestmark = pytest.mark.integration


def publish(hoot: Hoot, queue: str, body: str, topic: str, *headers: str) -> str:
    options = [part for header in headers for part in ("--header", header)]
    done = hoot.json("publish", queue, body, "--topic", topic, "--partition", "0", *options)
    found: str = done["ids"][0]["id"]
    return found


def test_a_running_subscription_follows_a_new_filter(hoot: Hoot, queue: str) -> None:
    subscribe = ["subscribe", queue, "--name", "mine", "--from", "earliest", "--format", "body"]
    with Child(*subscribe, "--filter", "hops > 2", "--topic", "orders.*", zookeeper=hoot.zookeeper) as child:

        def heard(body: str, topic: str) -> None:
            """Publish it until it is heard: what comes before the host has learnt of a change is judged by what was."""

            def told() -> bool:
                publish(hoot, queue, body, topic)
                return f"{body}\n" in child.lines

            eventually(told, body, SECONDS)

        publish(hoot, queue, "near", "orders.eu", "hops=1")
        publish(hoot, queue, "elsewhere", "bills.eu", "hops=9")
        publish(hoot, queue, "far", "orders.eu", "hops=9")
        child.says("far")
        assert child.lines == ["far\n"]
        hoot("subscription", "update", queue, "mine", "--filter", '{"exact": {"body.kind": "vip"}}', "--all-topics")
        heard('{"kind":"vip"}', "bills.eu")
        publish(hoot, queue, '{"kind":"other"}', "orders.eu", "hops=9")
        heard('{"kind":"vip","last":1}', "orders.eu")
        assert '{"kind":"other"}\n' not in child.lines
        hoot("subscription", "update", queue, "mine", "--no-filter")
        heard("anything", "")
        eventually(lambda: hoot.json("subscription", "info", queue, "mine")["lag"] == 0, "acknowledged", SECONDS)


def test_a_scan_takes_what_a_filter_takes(hoot: Hoot, queue: str) -> None:
    for number in range(4):
        publish(hoot, queue, f"message {number}", "a.b" if number % 2 else "a.c", f"n={number}")
    scan = ["scan", queue, "--format", "body"]
    assert hoot(*scan, "--filter", "n >= 2").stdout.splitlines() == ["message 2", "message 3"]
    assert hoot(*scan, "--filter", "n >= 2", "--topic", "*.b", "--partition", "0").stdout == "message 3\n"
    assert "at character 4" in hoot.refused(*scan, "--filter", "n == 2", status=2)["message"]


def test_what_was_changed_outlives_the_next_start_that_names_nothing_else(hoot: Hoot, queue: str) -> None:
    hoot("subscribe", queue, "--name", "mine", "--topic", "a", "--filter", "hops > 2", "--limit", "0")
    publish(hoot, queue, "one", "a", "hops=3")
    hoot("subscribe", queue, "--name", "mine", "--topic", "a", "--from", "earliest", "--limit", "1")
    updated = hoot.json("subscription", "update", queue, "mine", "--filter", "hops = 7", "--topic", "b*")
    assert (updated["updated"], updated["topics"], updated["filter"]) == (True, ["b*"], {"sql": "hops = 7"})
    publish(hoot, queue, "two", "b2", "hops=7")
    publish(hoot, queue, "three", "b3", "hops=6")
    publish(hoot, queue, "four", "b4", "hops=7")
    said = hoot("subscribe", queue, "--name", "mine", "--limit", "2", "--format", "body").stdout
    assert said.split() == ["two", "four"]
    info = hoot.json("subscription", "info", queue, "mine")
    assert (info["topics"], info["filter"]) == (["b*"], {"sql": "hops = 7"})


def test_nothing_is_written_for_a_dry_run_or_a_filter_that_does_not_parse(hoot: Hoot, queue: str) -> None:
    publish(hoot, queue, "one", "a")
    hoot("subscribe", queue, "--name", "mine", "--from", "earliest", "--limit", "1")
    update = ["subscription", "update", queue, "mine"]
    assert hoot.json(*update, "--filter", "hops > 2", "--dry-run")["updated"] is False
    told = hoot.refused(*update, "--filter", "hops > ", status=2)
    assert told["error"] == "invalid_request"
    assert "at character 8" in told["message"]
    assert "; write such as topic = 'orders'" in told["message"]
    assert hoot.refused(*update, "--topic", "a b", status=2)["error"] == "invalid_request"
    assert hoot.refused("subscribe", queue, "--filter", "a ==", status=2)["error"] == "invalid_request"
    for options in ([], ["--filter", "TRUE", "--no-filter"], ["--topic", "a", "--all-topics"]):
        hoot.refused(*update, *options, status=2)
    assert hoot.refused("subscription", "update", queue, "other", "--no-filter")["error"] == "unknown_subscription"
    info = hoot.json("subscription", "info", queue, "mine")
    assert (info["topics"], info["filter"]) == ([], None)


def test_each_message_is_explained(hoot: Hoot, queue: str) -> None:
    old = publish(hoot, queue, "old", "orders.eu", "hops=9")
    child = ["subscribe", queue, "--name", "mine", "--topic", "orders.*", "--filter", "hops > 2 AND body.total >= 100"]
    with Child(*child, "--format", "body", zookeeper=hoot.zookeeper) as running:
        eventually(lambda: hoot.json("subscription", "list", queue) != [], "attached", SECONDS)
        taken = publish(hoot, queue, '{"total": 100}', "orders.eu", "hops=3")
        running.says("total")
    cheap = publish(hoot, queue, '{"total": 99.5}', "orders.eu", "hops=3")
    bill = publish(hoot, queue, '{"total": 100}', "bills.eu")
    explain = ["subscription", "explain", queue, "mine", "--message"]

    def why(message: str) -> tuple[bool, str | None]:
        [one] = hoot.json(*explain, message)["explanations"]
        return one["taken"], one["refused_by"]

    assert [why(one) for one in (taken, cheap, bill, old)] == [
        (True, None), (False, "filter"), (False, "topics"), (False, "start"),
    ]  # fmt: skip
    [one] = hoot.json(*explain, cheap)["explanations"]
    [topics, rule] = one["rules"]
    assert (topics["text"], topics["value"]) == ("topics orders.*", True)
    [whole] = rule["parts"]
    assert [(part["text"], part["value"]) for part in whole["parts"]] == [
        ("hops > 2", True), ("body.total >= 100", False),
    ]  # fmt: skip
    assert whole["parts"][1]["parts"][0]["value"] == 99.5
    text = hoot(*explain, bill).stdout
    assert "refused: its topic is none of the subscription's" in text
    assert "hops  →  fails: there is no header hops" in text
    assert hoot.refused(*explain, "1-1", status=2)["error"] == "invalid_request"
    assert hoot.refused(*explain, "x", status=2)["error"] == "invalid_request"
