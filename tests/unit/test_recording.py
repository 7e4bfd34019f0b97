"""What a Recorder writes: a line for each push, whole, in a file of its own."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from delivery import wall
from delivery.errors import InvalidRequest
from delivery.model import Message
from subscriber import Recorder
from subscriber.recording import SUFFIX, Line


def message(number: int, partition: int = 0) -> Message:
    return Message(number, b"", "", None, partition, "orders")


def lines(folder: Path) -> list[Line]:
    files = sorted(folder.glob("*" + SUFFIX))
    return [msgspec.json.decode(line, type=Line) for one in files for line in one.read_bytes().splitlines()]


def test_each_push_is_a_line_that_is_there_before_it_is_acknowledged(tmp_path: Path) -> None:
    before = wall.use(lambda: 1_700_000_000.5)
    try:
        with Recorder(tmp_path / "new" / "folder", "audit") as recorder:
            recorder([message(7), message(9), message(2, partition=1)])
            found = lines(tmp_path / "new" / "folder")
    finally:
        wall.use(before)
    assert [(one.partition, one.ids) for one in found] == [(0, [7, 9]), (1, [2])]
    assert {(one.queue, one.subscription, one.at_ms) for one in found} == {("orders", "audit", 1_700_000_000_500)}


def test_recorders_of_one_subscription_write_a_file_each(tmp_path: Path) -> None:
    with Recorder(tmp_path, "audit") as one, Recorder(tmp_path, "audit") as other:
        one([message(1)])
        other([message(1)])
    assert len(list(tmp_path.iterdir())) == 2
    assert len(lines(tmp_path)) == 2


def test_what_cannot_be_written_is_an_error_and_not_a_delivery_without_a_record(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="cannot be recorded"):
        Recorder(tmp_path / "file", "audit")
    recorder = Recorder(tmp_path, "audit")
    recorder.close()
    with pytest.raises(OSError, match="descriptor"):
        recorder([message(1)])
