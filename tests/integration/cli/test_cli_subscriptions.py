"""`hoot subscribe`, `hoot subscription …` and `hoot host list`."""

from __future__ import annotations

import signal
from functools import partial

import pytest

from delivery import Client
from subscriber.service import ListenerService
from tests.integration.cli.calling import call
from tests.integration.cli.running import SECONDS, Child, Hoot, environment
from tests.integration.embedded import eventually
from tests.saving import is_saved

pytestmark = pytest.mark.integration


def test_a_named_subscriber_prints_messages_and_resumes_where_it_stopped(
    client: Client, hoot: Hoot, queue: str
) -> None:
    hoot("publish", queue, "one", "two", "--partition", "0")
    subscribe = ["subscribe", queue, "--name", "mine", "--from", "earliest", "--format", "body"]
    assert hoot(*subscribe, "--limit", "2").stdout.split() == ["one", "two"]
    eventually(lambda: is_saved(client, queue, "mine"), "its position is saved", SECONDS)
    hoot("publish", queue, "three", "--partition", "0")

    info = hoot.json("subscription", "info", queue, "mine")
    assert (info["lag"], info["listener"], info["all_partitions"]) == (1, None, True)
    [first] = [one for one in info["partitions"] if one["partition"] == 0]
    assert first["lag"] == 1
    assert first["lag_seconds"] > 0
    assert first["position"] < first["end"]
    text = hoot("subscription", "info", queue, "mine").stdout
    assert "POSITION" in text
    assert "LAG" in text

    with Child(*subscribe, zookeeper=hoot.zookeeper) as child:
        child.says("three")
        assert child.lines == ["three\n"]
        attached = hoot.json("subscription", "info", queue, "mine")
        assert attached["listener"]
        busy = hoot.refused("subscribe", queue, "--name", "mine", "--limit", "1")
        assert busy["error"] == "subscription_busy"
        assert child.end(signal.SIGINT) == 130
    eventually(lambda: hoot.json("subscription", "info", queue, "mine")["lag"] == 0, "acknowledged", SECONDS)


@pytest.mark.parametrize("outlives", [False, True], ids=["", "nohup"])
def test_a_subscriber_whose_terminal_is_closed_ends_and_under_nohup_goes_on(
    client: Client, hoot: Hoot, queue: str, outlives: bool
) -> None:
    before = ["nohup"] if outlives else []
    with Child("subscribe", queue, "--format", "body", zookeeper=hoot.zookeeper, before=before) as child:
        eventually(lambda: client.subscriptions(queue) != [], "attached", SECONDS)
        client.queue(queue).put(b"one")
        child.says("one")
        child.process.send_signal(signal.SIGHUP)
        if outlives:
            client.queue(queue).put(b"two")
            child.says("two")
            child.process.send_signal(signal.SIGTERM)
        assert child.wait() == 0, child.errors
    assert client.subscriptions(queue) == [], "it had no name, and is not left behind"


def test_a_subscriber_without_a_name_leaves_nothing_behind(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, "one")
    assert hoot("subscribe", queue, "--from", "earliest", "--limit", "1", "--format", "body").stdout == "one\n"
    with Child("subscribe", queue, "--topic", "wanted", "--format", "body", zookeeper=hoot.zookeeper) as child:
        eventually(lambda: hoot.json("subscription", "list", queue) != [], "attached", SECONDS)
        eventually(lambda: hoot.json("subscription", "list", queue)[0]["listener"], "listening", SECONDS)
        hoot("publish", queue, "no", "--topic", "other")
        hoot("publish", queue, "yes", "--topic", "wanted")
        child.says("yes")
        assert child.lines == ["yes\n"]
        assert child.end(signal.SIGTERM) == 0
    assert hoot.json("subscription", "list", queue) == []


def test_a_subscriber_that_ends_by_itself_ends_the_command_with_what_ended_it(
    client: Client, hoot: Hoot, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(ListenerService, "_do", fail)
    client.queue(queue).put(b"one")
    done = call(["subscribe", queue, "--from", "earliest"], b"", environment(hoot.zookeeper))
    assert (done.status, done.stdout) == (1, "")
    assert "error: ZeroDivisionError: planted" in done.stderr.splitlines()
    assert client.subscriptions(queue) == [], "it had no name, and is not left behind"


def test_a_subscription_is_created_for_who_comes_later(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, "before", "--topic", "b", "--partition", "1")
    made = hoot.json("subscription", "create", queue, "mine", "--topic", "b", "--topic", "a", "--partition", "1")
    assert (made["queue"], made["subscription"], made["all_partitions"]) == (queue, "mine", False)
    assert (made["topics"], list(made["starts"]), made["isolation"]) == (["a", "b"], ["1"], "uncommitted")
    hoot("publish", queue, "no", "--topic", "c", "--partition", "1")
    hoot("publish", queue, "yes", "--topic", "a", "--partition", "1")
    subscribe = ["subscribe", queue, "--name", "mine", "--partition", "1", "--topic", "a", "--limit", "1"]
    assert hoot(*subscribe, "--format", "body").stdout == "yes\n"
    assert "created subscription all" in hoot("subscription", "create", queue, "all", "--from", "-1h").stdout
    assert hoot.refused("subscription", "create", queue, "all")["error"] == "subscription_exists"
    assert hoot.refused("subscription", "create", "nowhere", "s")["error"] == "unknown_queue"
    assert hoot.refused("subscription", "create", queue, "s", "--from", "soon", status=2)["error"] == "bad_use"
    assert hoot.refused("subscription", "create", queue, "a/b", status=2)["error"] == "invalid_request"
    assert hoot.json("subscription", "info", queue, "all")["lag"] == 3
    updated = hoot.json("subscription", "update", queue, "all", "--isolation", "committed")
    assert updated["isolation"] == hoot.json("subscription", "info", queue, "all")["isolation"] == "committed"
    refused = hoot.refused("subscription", "update", queue, "all", "--isolation", "snapshot", status=2)
    assert refused["error"] == "invalid_request"


def test_a_subscription_is_created_with_a_filter(hoot: Hoot, queue: str) -> None:
    create = ["subscription", "create", queue]
    assert hoot.json(*create, "far", "--filter", "hops > 2")["filter"] == {"sql": "hops > 2"}
    assert hoot.json(*create, "near", "--filter", '{"exact": {"hops": "1"}}')["filter"] == {"exact": {"hops": "1"}}
    assert hoot.json(*create, "all")["filter"] is None
    hoot("publish", queue, "one", "--header", "hops=1")
    hoot("publish", queue, "nine", "--header", "hops=9")
    assert hoot("subscribe", queue, "--name", "far", "--limit", "1", "--format", "body").stdout == "nine\n"
    assert "at character" in hoot.refused(*create, "bad", "--filter", "hops >", status=2)["message"]
    assert hoot.refused("subscription", "info", queue, "bad")["error"] == "unknown_subscription"


def test_subscriptions_are_listed_and_deleted(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, "one")
    hoot("subscribe", queue, "--name", "mine", "--from", "earliest", "--limit", "1")
    for listed in (hoot.json("subscription", "list", queue), hoot.json("subscription", "list")):
        assert ("mine", queue) in [(one["subscription"], one["queue"]) for one in listed]
    assert "mine" in hoot("subscription", "list").stdout
    hoot.refused("subscription", "delete", queue, "mine", status=2)
    hoot("subscription", "delete", queue, "mine", "--dry-run")
    hoot("subscription", "info", queue, "mine")
    hoot("subscription", "delete", queue, "mine", "--yes")
    told = hoot.refused("subscription", "info", queue, "mine")
    assert told["error"] == "unknown_subscription"
    assert hoot.refused("subscription", "delete", queue, "mine", "--yes")["error"] == "unknown_subscription"


def test_members_of_a_group_and_what_each_gets_are_shown(hoot: Hoot, queue: str) -> None:
    made = hoot.json("subscription", "create", queue, "crew", "--kind", "shared")
    assert made["kind"] == "shared"
    assert "no member is attached" in hoot("subscription", "info", queue, "crew").stdout
    subscribe = ["subscribe", queue, "--name", "crew", "--format", "body"]
    with (
        Child(*subscribe, "--member", "a", zookeeper=hoot.zookeeper) as a,
        Child(*subscribe, "--kind", "shared", "--member", "b", zookeeper=hoot.zookeeper) as b,
    ):
        eventually(lambda: [len(one) > 0 for one in shares(hoot, queue)] == [True, True], "both share", SECONDS)
        info = hoot.json("subscription", "info", queue, "crew")
        assert (info["kind"], info["listener"]) == ("shared", None)
        assert all(one["listener"].startswith("127.0.0.1:") for one in info["members"])
        held = {number: one["member"] for one in info["members"] for number in one["partitions"]}
        assert {one["partition"]: one["member"] for one in info["partitions"]} == held
        text = hoot("subscription", "info", queue, "crew").stdout
        assert "MEMBER" in text
        assert "2 members" in hoot("subscription", "list", queue).stdout

        for number, member in held.items():
            hoot("publish", queue, f"to-{member}-{number}", "--partition", str(number))
        for child, name in ((a, "a"), (b, "b")):
            for number in (number for number, member in held.items() if member == name):
                child.says(f"to-{name}-{number}")
        assert hoot.refused(*subscribe, "--kind", "failover", "--limit", "1")["error"] == "group_mismatch"
    told = hoot.refused("subscribe", queue, "--kind", "broadcast", "--limit", "1", status=2)
    assert "key_shared" in told["message"], "what there is"


def shares(hoot: Hoot, queue: str) -> list[list[int]]:
    """The partitions of each member of `crew`."""
    return [one["partitions"] for one in hoot.json("subscription", "info", queue, "crew")["members"]]


def test_a_pattern_subscribes_to_several_queues(hoot: Hoot, queue: str) -> None:
    subscribe = ["subscribe", f"{queue[:-1]}*", "--format", "body"]
    with Child(*subscribe, zookeeper=hoot.zookeeper) as child:
        eventually(lambda: hoot.json("subscription", "list", queue) != [], "attached", SECONDS)
        eventually(lambda: hoot.json("subscription", "list", queue)[0]["listener"], "listening", SECONDS)
        hoot("publish", queue, "here")
        child.says("here")
        assert child.end(signal.SIGTERM) == 0
    assert hoot.json("subscription", "list", queue) == [], "a passing name leaves nothing behind"


def test_hosts_are_listed(hoot: Hoot) -> None:
    [host] = hoot.json("host", "list")
    assert host["address"] == "127.0.0.1"
    assert host["port"] > 0
    assert host["host"] in hoot("host", "list").stdout


def test_a_verdict_is_in_every_listing_and_is_watched_until_ctrl_c(hoot: Hoot, queue: str) -> None:
    hoot("subscription", "create", queue, "mine", "--from", "earliest")
    hoot("publish", queue, "one", "--partition", "1")
    [listed] = hoot.json("subscription", "list", queue)
    assert (listed["verdict"]["name"], listed["verdict"]["level"]) == ("no_listener", "warning")
    text = hoot("subscription", "info", queue, "mine").stdout
    assert "partition 0, 1, 2: no listener: nobody is attached: start its subscriber" in text
    for watched in (["info", queue, "mine"], ["list", queue]):
        with Child("subscription", *watched, "--watch", "--json", zookeeper=hoot.zookeeper) as child:
            eventually(partial(shown_twice, child), "it is shown again", SECONDS)
            assert all("no_listener" in line for line in child.lines)
            assert child.end(signal.SIGINT) == 130
            assert child.errors == []


def shown_twice(child: Child) -> bool:
    return len(child.lines) >= 2


def test_what_becomes_of_what_is_not_handled_is_given_and_changed_field_by_field(hoot: Hoot, queue: str) -> None:
    given = ["--retry", "order=key", "--retry", "first_seconds=5s", "--retry", "deliveries_max=4"]
    made = hoot.json("subscription", "create", queue, "mine", *given)["retry"]
    assert (made["order"], made["first_seconds"], made["deliveries_max"], made["factor"]) == ("key", 5, 4, 2)
    changes = ["--retry", "longest_seconds=1h", "--retry", "deliveries_max=", "--retry", "dead_letters=false"]
    assert hoot.json("subscription", "update", queue, "mine", *changes, "--dry-run")["updated"] is False
    assert hoot.json("subscription", "info", queue, "mine")["retry"] == made
    changed = {**made, "longest_seconds": 3600, "deliveries_max": 0, "dead_letters": False}
    assert hoot.json("subscription", "update", queue, "mine", *changes)["retry"] == changed
    assert hoot.json("subscription", "info", queue, "mine")["retry"] == changed
    wrong = hoot.refused("subscription", "update", queue, "mine", "--retry", "first_seconds=2h", status=2)
    assert wrong["message"] == "longest_seconds must not be below first_seconds"
    hoot.refused("subscription", "update", queue, "mine", "--retry", "factor=big", status=2)
    hoot.refused("subscription", "update", queue, "mine", "--retry", "retries=1", status=2)
