"""Where bodies come from: arguments as they were typed, lines without their ends, whole files, never more than fits."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import typer
from hypothesis import given, strategies as st

from delivery.cli.sources import source
from delivery.errors import MessageTooLarge
from delivery.model import BODY_BYTES_LIMIT


def standard_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_arguments_are_bodies_byte_by_byte() -> None:
    assert list(source(["one", "", "\udcff"], None, whole=False).bodies()) == [b"one", b"", b"\xff"]
    assert not source(["one"], None, whole=False).is_stream


@pytest.mark.parametrize("messages", [[], ["-"]])
def test_without_arguments_lines_come_from_standard_input(messages: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, b"one\r\n\ntwo\rthree\n\xff")
    assert list(source(messages, None, whole=False).bodies()) == [b"one", b"", b"two\rthree", b"\xff"]
    assert source(messages, None, whole=False).is_stream


def test_a_dash_among_other_messages_is_a_message() -> None:
    assert list(source(["-", "x"], None, whole=False).bodies()) == [b"-", b"x"]


@given(st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b and not b.endswith(b"\r"))))
def test_lines_written_are_the_lines_read(lines: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        standard_input(monkeypatch, b"".join(line + b"\n" for line in lines))
        assert list(source([], None, whole=False).bodies()) == lines


def test_a_file_is_read_by_lines_or_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"one\ntwo\n")
    assert list(source([], file, whole=False).bodies()) == [b"one", b"two"]
    assert list(source([], file, whole=True).bodies()) == [b"one\ntwo\n"]
    standard_input(monkeypatch, b"a\nb")
    assert list(source([], Path("-"), whole=True).bodies()) == [b"a\nb"]


def test_a_body_that_no_queue_takes_is_refused_before_it_is_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, b"ok\n" + bytes(BODY_BYTES_LIMIT) + b"\r\n" + bytes(3 * BODY_BYTES_LIMIT))
    lines = source([], None, whole=False).bodies()
    assert next(lines) == b"ok"
    assert len(next(lines)) == BODY_BYTES_LIMIT
    with pytest.raises(MessageTooLarge, match="line 3"):
        next(lines)
    assert sys.stdin.buffer.tell() <= 2 * BODY_BYTES_LIMIT + 100


def test_a_whole_file_has_the_limit_too(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(bytes(BODY_BYTES_LIMIT + 1))
    with pytest.raises(MessageTooLarge):
        list(source([], file, whole=True).bodies())


def test_contradictions_are_bad_use(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="not from both"):
        source(["one"], tmp_path / "f", whole=False)
    with pytest.raises(typer.BadParameter, match="--whole"):
        source(["one"], None, whole=True)
