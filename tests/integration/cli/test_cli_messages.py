"""`hoot publish` and `hoot scan`: what goes in comes out, and what cannot is told."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.running import HOOT, SECONDS, Child, Hoot, environment
from tests.integration.embedded import ROOT

pytestmark = pytest.mark.integration


def scanned(hoot: Hoot, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in hoot("scan", *arguments, "--json").stdout.splitlines()]


def test_arguments_become_messages_and_their_ids_are_printed(hoot: Hoot, queue: str) -> None:
    ids = hoot("publish", queue, "one", "two", "--partition", "1").stdout.split()
    assert hoot("scan", queue, "--format", "{id} {partition} {body}").stdout.splitlines() == [
        f"{ids[0]} 1 one", f"{ids[1]} 1 two"
    ]  # fmt: skip


def test_lines_of_standard_input_become_messages_in_order(hoot: Hoot, queue: str) -> None:
    lines = [f"line {n}" for n in range(5_000)]
    summary = hoot("publish", queue, "--key", "k", stdin="\n".join(lines) + "\n")
    assert "5,000" in summary.stdout
    assert hoot("scan", queue, "--format", "body").stdout.splitlines() == lines


def test_a_dash_means_standard_input_and_the_last_line_needs_no_end(hoot: Hoot, queue: str) -> None:
    told = hoot.json("publish", queue, "-", "--partition", "0", stdin="a\n\nb")
    assert (told["messages"], told["bytes"], told["durability"], told["ids"]) == (3, 2, "fsync", None)
    assert [one["body"] for one in scanned(hoot, queue)] == ["a", "", "b"]


def test_key_topic_and_headers_come_back(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, "x", "--key", "AA", "--topic", "JFK", "--header", "a=1", "--header", "b=ü=2")
    [found] = scanned(hoot, queue)
    assert (found["key"], found["topic"], found["headers"]) == ("AA", "JFK", {"a": "1", "b": "ü=2"})


def test_a_file_is_published_by_lines_or_whole(hoot: Hoot, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "events"
    file.write_bytes(b"one\n\xff\xfe\n")
    hoot("publish", queue, "--file", str(file), "--partition", "0")
    hoot("publish", queue, "--file", str(file), "--whole", "--partition", "1")
    bodies = [one["body"] for one in scanned(hoot, queue, "--partition", "0")]
    assert bodies == ["one", {"base64": "//4="}]
    assert hoot("scan", queue, "-p", "1", "-f", "body").stdout.encode(errors="surrogateescape") == b"one\n\xff\xfe\n\n"


def test_a_file_that_is_not_there_is_told_in_one_line(hoot: Hoot, queue: str, tmp_path: Path) -> None:
    told = hoot.refused("publish", queue, "--file", str(tmp_path / "none"))
    assert told["error"] == "os_error"
    assert "No such file" in told["message"]
    assert scanned(hoot, queue) == []


def test_a_scan_is_cut_by_topic_partition_place_and_limit(hoot: Hoot, queue: str) -> None:
    ids = []
    for number in range(6):
        topic, partition = "ab"[number % 2], str(number % 3)
        ids += hoot("publish", queue, f"m{number}", "--topic", topic, "--partition", partition).stdout.split()

    def bodies(*arguments: str) -> list[str]:
        return hoot("scan", queue, "--format", "body", *arguments).stdout.split()

    assert sorted(bodies()) == [f"m{n}" for n in range(6)]
    assert sorted(bodies("--topic", "a")) == ["m0", "m2", "m4"]
    assert sorted(bodies("--partition", "0-1")) == ["m0", "m1", "m3", "m4"]
    assert sorted(bodies("--from", ids[3])) == ["m3", "m4", "m5"]
    assert sorted(bodies("--to", ids[3])) == ["m0", "m1", "m2"]
    assert sorted(bodies("--from", "-1h")) == [f"m{n}" for n in range(6)]
    assert bodies("--to", "1h ago") == []
    assert bodies("--from", "latest") == []
    assert len(bodies("--limit", "4")) == 4
    assert bodies("--limit", "0") == []


def test_a_scan_that_follows_prints_what_comes_and_ends_with_ctrl_c(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, "before")
    with Child("scan", queue, "--follow", "--format", "body", zookeeper=hoot.zookeeper) as child:
        child.says("before")
        hoot("publish", queue, "after")
        child.says("after")
        assert child.end(signal.SIGINT) == 130
        assert child.errors == []


def test_a_scan_whose_reader_goes_away_is_quiet(hoot: Hoot, queue: str) -> None:
    hoot("publish", queue, stdin="x\n" * 50_000)
    command = f"{' '.join(HOOT)} scan {queue} --format text | head -n 1; echo ${{PIPESTATUS[0]}}"
    run = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=SECONDS, cwd=ROOT,
        env=environment(hoot.zookeeper), check=True,
    )  # fmt: skip
    assert run.stdout.splitlines()[-1] == "141"
    assert run.stderr == ""


def test_what_cannot_be_published_is_told_with_how_much_was_stored(hoot: Hoot, queue: str) -> None:
    hoot("queue", "update", queue, "--body-limit", "10")
    told = hoot("publish", queue, "-p", "0", "--json", stdin=f"one\ntwo\n{'x' * 11}\nfour", status=2).stderr
    assert json.loads(told)["error"] == "message_too_large"
    assert "2 messages before it were stored" in told
    assert [one["body"] for one in scanned(hoot, queue)] == ["one", "two"]


@pytest.mark.parametrize(
    "arguments",
    [["--partition", "3"], ["--topic", ".."], ["--topic", "a\nb"], ["--header", "none"], ["--header", "=x"]],
    ids=repr,
)
def test_a_publish_with_a_wrong_value_is_bad_use_and_stores_nothing(
    hoot: Hoot, queue: str, arguments: list[str]
) -> None:
    hoot.refused("publish", queue, "x", *arguments, status=2)
    assert scanned(hoot, queue) == []


@pytest.mark.parametrize(
    "arguments",
    [["--from", "yesterdayish"], ["--from", "1-99999"], ["--partition", "7"], ["--limit", "-1"], ["--format", "{no}"],
     ["--from", "9999999999999-0"]],
    ids=" ".join,
)  # fmt: skip
def test_a_scan_with_a_wrong_value_is_bad_use(hoot: Hoot, queue: str, arguments: list[str]) -> None:
    hoot.refused("scan", queue, *arguments, status=2)
