"""`hoot spark archive`, as far as it goes without a Spark, and what other commands tell of an archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from delivery import Client
from tests.integration.cli.running import Hoot
from tests.integration.spark import archiver

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def test_an_archive_is_planned_and_shown_and_nothing_is_left_to_do(
    client: Client, hoot: Hoot, queue: str, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    client.queue(queue).put_many([b"one", b"two", b"three"])
    command = ["spark", "archive", queue, "--to", str(folder)]
    planned = hoot.json(*command, "--dry-run")
    assert (planned["archived"], sum(one["messages"] for one in planned["partitions"])) == (False, 3)
    assert "these messages of queue" in hoot(*command, "--dry-run").stderr
    assert not folder.exists()

    archiver.main(hoot.zookeeper, queue, folder)
    assert hoot.json(*command)["partitions"][0]["messages"] == 0
    assert "is archived" in hoot("spark", "archive", queue).stderr
    info = hoot.json("queue", "info", queue)
    assert (info["archive"], info["archive_first"]) == (str(folder), False)
    assert sum(file["messages"] for one in info["stored"] for file in one["archived"]) == 3
    assert sum(one["messages"] for one in info["stored"]) == 3, "what is in both counts once"
    shown = hoot("queue", "info", queue).stdout
    assert str(folder) in shown
    assert "ARCHIVED" in shown

    elsewhere = hoot.refused("spark", "archive", queue, "--to", str(tmp_path / "other"), status=2)
    assert str(folder) in elsewhere["message"]


def test_retention_waits_for_the_archive_if_it_is_told_to(hoot: Hoot, queue: str) -> None:
    hoot("queue", "update", queue, "--archive-first")
    assert "the archive" in hoot("queue", "info", queue).stdout
    hoot("queue", "update", queue, "--no-archive-first")
    assert hoot.json("queue", "info", queue)["archive_first"] is False


def test_bad_use_is_one_error(hoot: Hoot, queue: str, tmp_path: Path) -> None:
    command = ["spark", "archive", queue]
    assert "--to" in hoot.refused(*command, status=2)["message"]
    to = ["--to", str(tmp_path / "archive")]
    assert hoot.refused("spark", "archive", f"{queue}x", *to)["error"] == "unknown_queue"
    hoot.refused(*command, *to, "--until", "-1h", "--older-than", "1h", status=2)
    hoot.refused(*command, *to, "--until", "latest", status=2)
    hoot.refused(*command, *to, "--older-than", "soon", status=2)
    assert hoot.refused(*command, *to, "--partition", "7", status=2)["error"] == "unknown_partition"
    (tmp_path / "file").write_text("")
    assert hoot.refused(*command, "--to", str(tmp_path / "file"))["error"] == "archive_refused"
    assert not (tmp_path / "archive").exists()
