"""One verdict for every observation: each can be reached, the worse reason wins, and what is told can be acted on."""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, strategies as st

from delivery.dispatch import verdict as module
from delivery.dispatch.observation import Callback, Observation, Stage
from delivery.dispatch.verdict import LEVELS, Limits, Name, verdict
from tests.integration.embedded import ROOT

NOW = 1_800_000_000_000


def id_at(seconds_ago: float) -> int:
    return int(NOW - seconds_ago * 1000) << 15


def ago(seconds: float) -> int:
    return int(NOW - seconds * 1000)


def seen(**facts: Any) -> Observation:
    """A partition that has delivered for an hour, has all acknowledged, and had its last message a second ago."""
    usual: dict[str, Any] = {
        "began_ms": ago(3600), "delivered_ms": ago(1), "moved_ms": ago(1), "acknowledged_ms": ago(1),
        "position": id_at(1), "heard": id_at(1), "scanned": id_at(1), "last": id_at(1),
    }  # fmt: skip
    return Observation(partition=0, now_ms=NOW, host="h:1", **(usual | facts))


BEHIND: dict[str, Any] = {"position": id_at(600), "oldest_ms": ago(600)}
QUIET: dict[str, Any] = {"delivered_ms": ago(600), "moved_ms": ago(300)}
STUCK: dict[str, Any] = {"out": 3, "out_since_ms": ago(40), **BEHIND}
AT_WORK = Callback("on_order (app.py:7)", "orders", 0, id_at(600), 40.0, False, "File app.py, line 9")
WAITED_FOR = ago(40) * 1_000_000 + 7
"""A transaction that began 40 seconds ago."""

CASES: list[tuple[Name, Observation]] = [
    ("healthy", seen()),
    ("healthy", seen(out=3, out_since_ms=ago(1), oldest_ms=ago(2), full=True)),
    ("idle", seen(**QUIET)),
    ("idle", seen(delivered_ms=0, position=0, heard=0, scanned=0, last=0)),
    ("filter_starving", seen(**QUIET, filtered=True, heard=id_at(600))),
    ("idle", seen(**QUIET, filtered=True)),
    ("catching_up", seen(**BEHIND)),
    ("catching_up", seen(**BEHIND, full=True, out=3, out_since_ms=ago(1), trend=-0.5)),
    ("stalled", seen(**(BEHIND | QUIET))),
    ("limited", seen(**(BEHIND | QUIET), limited=True)),
    ("limited", seen(**BEHIND, limited=True, out=3, out_since_ms=ago(1), trend=-0.5)),
    ("healthy", seen(limited=True, oldest_ms=ago(2))),
    ("waiting_for_transaction", seen(**(BEHIND | QUIET), waiting_for=WAITED_FOR, waiting_ms=ago(9))),
    ("waiting_for_transaction", seen(**BEHIND, limited=True, waiting_ms=ago(9), waiting_trouble="no host")),
    ("catching_up", seen(**BEHIND, waiting_for=WAITED_FOR, waiting_ms=ago(2))),
    ("window_full", seen(**BEHIND, limited=True, full=True, out=3, out_since_ms=ago(1), trend=0.5)),
    ("window_full", seen(**BEHIND, full=True, out=3, out_since_ms=ago(1), trend=0.5)),
    ("window_full", seen(**STUCK, callback=msgspec.structs.replace(AT_WORK, moving=True))),
    ("key_parked", seen(parked=7, parked_keys=2, failures=3, error="ValueError: no")),
    ("retrying", seen(**BEHIND, failing=id_at(600), failures=2, error="ValueError: no", again_ms=NOW + 9000)),
    ("handler_stuck", seen(**STUCK)),
    ("handler_stuck", seen(**STUCK, callback=AT_WORK)),
    ("handler_stuck", seen(parked=2, parked_keys=1, callback=AT_WORK)),
    ("key_parked", seen(parked=2, parked_keys=1, callback=msgspec.structs.replace(AT_WORK, seconds=20.0))),
    ("key_parked", seen(parked=2, parked_keys=1, callback=msgspec.structs.replace(AT_WORK, partition=1))),
    ("key_parked", seen(parked=2, parked_keys=1, callback=msgspec.structs.replace(AT_WORK, moving=True))),
    ("key_parked", seen(parked=2, parked_keys=1, callback=msgspec.structs.replace(AT_WORK, name=""))),
    ("store_slow", seen(**BEHIND, reading_ms=ago(6))),
    ("store_slow", seen(**BEHIND, shelving_ms=ago(6))),
    ("listener_unreachable", seen(**BEHIND, unreachable_ms=ago(4))),
    ("catching_up", seen(**BEHIND, unreachable_ms=ago(1), unreachable="refused")),
    ("paused", seen(**(BEHIND | QUIET), paused_ms=ago(60), paused_until_ms=NOW + 60_000)),
    ("starting", seen(stage="starting", trouble="a disk is full")),
    ("pulled", seen(**(BEHIND | QUIET), stage="pulled")),
    ("no_listener", seen(**BEHIND, stage="no_listener")),
    ("host_unreachable", seen(stage="host_unreachable", trouble="refused")),
    ("no_owner", seen(stage="no_owner")),
    ("zookeeper_lost", seen(zookeeper_lost_ms=ago(4))),
    ("healthy", seen(zookeeper_lost_ms=ago(2))),
]


@pytest.mark.parametrize(("name", "observation"), CASES, ids=lambda case: case if isinstance(case, str) else "")
def test_each_reason_is_told(name: Name, observation: Observation) -> None:
    assert verdict(observation).name == name


def test_every_verdict_has_a_case_a_level_and_a_line_in_the_table() -> None:
    assert {name for name, _ in CASES} == set(get_args(Name)) == set(LEVELS)
    rows = re.findall(r"^\| (\w+) \| .* \| (\w+) \|$", module.__doc__ or "", re.MULTILINE)
    assert rows[1:] == [*LEVELS.items()]


def test_the_page_for_operators_has_the_same_verdicts_in_the_same_order() -> None:
    page = (ROOT / "docs" / "verdicts.md").read_text()
    rows = re.findall(r"^\| ([\w ]+?) \| .* \| .* \| (fine|warning|critical) \|$", page, re.MULTILINE)
    assert rows == [(name.replace("_", " "), level) for name, level in LEVELS.items()]


def test_the_table_is_in_the_order_of_the_rules_so_that_the_worse_of_two_reasons_wins() -> None:
    assert [name for name, _ in module._RULES] == [name for name in LEVELS if name != "healthy"]
    everything = seen(
        **STUCK, zookeeper_lost_ms=ago(9), failing=id_at(600), parked=1, reading_ms=ago(60), paused_ms=ago(9)
    )
    for name, without in [
        ("zookeeper_lost", {"zookeeper_lost_ms": 0}), ("paused", {"paused_ms": 0}), ("store_slow", {"reading_ms": 0}),
        ("handler_stuck", {"out_since_ms": 0}), ("retrying", {"failing": 0}), ("key_parked", {"parked": 0}),
    ]:  # fmt: skip
        assert verdict(everything).name == name
        everything = msgspec.structs.replace(everything, **without)


@pytest.mark.parametrize(
    ("observation", "says"),
    [
        (seen(**STUCK, callback=AT_WORK), ["on_order", str(AT_WORK.message >> 15), "orders/0", "40 s"]),
        (seen(**STUCK, callback=msgspec.structs.replace(AT_WORK, name="")), ["acknowledged", "orders/0", "40 s"]),
        (seen(parked=1, parked_keys=1, callback=AT_WORK), ["on_order", "40 s", str(AT_WORK.message >> 15), "returns"]),
        (seen(failing=id_at(5), failures=2, error="ValueError: no", again_ms=NOW + 9000), ["2 times", "9 s", "no"]),
        (seen(parked=7, parked_keys=2, failures=1, parking_full=True), ["7 messages", "2 keys", "once", "release"]),
        (seen(stage="no_owner", trouble="the disk is full"), ["the disk is full", "hoot host list"]),
        (seen(unreachable_ms=ago(9), unreachable="refused"), ["refused", "subscriber"]),
        (seen(paused_ms=ago(60), paused_until_ms=NOW + 60_000), ["60 s more", "resume"]),
        (seen(**QUIET, filtered=True, heard=id_at(600)), ["hoot subscription explain"]),
        (seen(waiting_for=WAITED_FOR, waiting_ms=ago(9)), [f"transaction {WAITED_FOR}", "40 s ago", "timeout"]),
        (seen(waiting_for=2**62, waiting_ms=ago(9)), [f"transaction {2**62}", "made it up", "seek"]),
        (seen(waiting_ms=ago(9), waiting_trouble="refused"), ["refused", "hoot host list"]),
        (seen(**BEHIND, limited=True, trend=0.5), ["its own limits", "10 min behind, which grows", "update"]),
    ],
)
def test_the_text_names_what_is_the_matter_and_what_to_do(observation: Observation, says: list[str]) -> None:
    text = verdict(observation).text
    assert all(word in text for word in says), text


def test_limits_say_from_when_on() -> None:
    assert verdict(seen(**STUCK), Limits(stuck_seconds=60)).name == "catching_up"
    assert verdict(seen(**QUIET), Limits(quiet_seconds=3600)).name == "healthy"


@given(st.data())
def test_any_snapshot_whatever_has_one_verdict(data: st.DataObject) -> None:
    at = st.sampled_from([0, ago(3600), ago(10), NOW, NOW + 5000])
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        int: at, "int | None": st.none() | at, bool: st.booleans(), str: st.sampled_from(["", "why"]),
    }  # fmt: skip
    facts: dict[str, Any] = {
        field.name: data.draw(kinds[field.type])
        for field in msgspec.structs.fields(Observation)
        if field.type in kinds and field.name != "now_ms"
    }
    facts["stage"] = data.draw(st.sampled_from(get_args(Stage)))
    facts["trend"] = data.draw(st.sampled_from([None, -1.0, 0.0, 1.0]))
    facts["callback"] = data.draw(st.none() | st.just(AT_WORK))
    observation = Observation(**{**facts, "now_ms": NOW, "partition": 0})
    judged = verdict(observation)
    assert judged.name in LEVELS
    assert judged.text
    assert judged == verdict(observation)


def test_where_members_share_a_partition_it_says_which_of_them_it_is_about() -> None:
    assert verdict(seen(**STUCK, member="billing-3")).text == f"member billing-3: {verdict(seen(**STUCK)).text}"
