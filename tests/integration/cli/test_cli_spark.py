"""Commands about Spark's jobs that need no Spark: recording deliveries, and what is refused before it starts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from delivery import Client
from subscriber.recording import SUFFIX, Line
from tests.integration.cli.running import Hoot

pytestmark = pytest.mark.integration


def test_what_subscribe_printed_is_recorded_and_nothing_else(
    client: Client, hoot: Hoot, queue: str, tmp_path: Path
) -> None:
    stored = [client.queue(queue).put(body, partition=0) for body in (b"one", b"two", b"three")]
    listening = ["subscribe", queue, "--name", "mine", "--from", "earliest", "--record", str(tmp_path / "records")]
    assert hoot(*listening, "--limit", "2", "--format", "body").stdout.split() == ["one", "two"]
    lines = [line for file in (tmp_path / "records").glob("*" + SUFFIX) for line in file.read_bytes().splitlines()]
    found = [msgspec.json.decode(line, type=Line) for line in lines]
    assert [number for one in found for number in one.ids] == [int(one.id) for one in stored[:2]]
    assert {(one.queue, one.subscription, one.partition) for one in found} == {(queue, "mine", 0)}


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "q", "out", "--format", "xml"], ["export", "q", "out", "--bodies", "hex"],
        ["export", "q", "out", "--from", "sometime"], ["replay", "q", "other", "--rate", "0"],
        ["replay", "q"], ["replay", "q", "other", "--to-subscription", "billing"],
        ["compact", "q"], ["compact", "q", "--into-queue", "q"],
        ["compact", "q", "--in-place"], ["compact", "q", "--in-place", "--yes", "--into-folder", "out"],
        ["compact", "q", "--in-place", "--yes", "--topic", "a"], ["audit", "q", "out", "--late", "soon"],
        ["export", "q", "out", "--master", "sc://spark:15002"], ["export", "q", "out", "--master", "sparc://s:7077"],
        ["export", "q", "out", "--master", "local[abc]"], ["export", "q", "out", "--master", "local[0]"],
        ["export", "q", "out", "--master", "spark://s"],
        ["audit", "q", "out", "--master", "sparc://s:7077"], ["compact", "q", "--into-folder", "o", "--master", "sc://s"],
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_spark_starts(hoot: Hoot, arguments: list[str]) -> None:
    assert hoot.refused("spark", *arguments, status=2)["error"] in {"bad_use", "invalid_request"}
