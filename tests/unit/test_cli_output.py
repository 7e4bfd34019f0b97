"""What commands print: numbers for people, tables that are never cut off, and messages in every format."""

from __future__ import annotations

import io
import json
import sys

import pytest
import typer
from hypothesis import given, strategies as st

from delivery.cli.formats import Printer, message_fields, printable, render, text_or_base64
from delivery.cli.output import Column, age, moment, number, show_fields, show_table, size, span
from delivery.ids import MessageId
from delivery.model import Message, encode_headers

ID = MessageId.of(1_732_165_000_250, 12)


def message(**changes: object) -> Message:
    fields: dict[str, object] = {
        "number": int(ID), "body": b"hello", "topic": "JFK", "key": b"AA", "partition": 3, "queue": "flights",
        "header_block": encode_headers({"trace": b"t1", "raw": b"\xff"}),
    }  # fmt: skip
    return Message(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_572_864, "1.5 MiB"), (10 << 40, "10.0 TiB"), (None, "-")],
)
def test_sizes_are_shown_in_the_largest_unit(count: int | None, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "250 ms"),
        (2.5, "2.5 s"),
        (59, "59s"),
        (250, "4m 10s"),
        (3600, "1h"),
        (273_600, "3d 4h"),
        (None, "-"),
    ],
)
def test_spans_are_shown_in_their_two_largest_units(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [(999_800, "just now"), (750_000, "4m 10s ago"), (1_090_000, "in 1m 30s"), (0, "-"), (None, "-")],
)
def test_ages_are_relative(timestamp_ms: int | None, text: str) -> None:
    assert age(timestamp_ms, clock=lambda: 1000.0) == text


@given(st.floats(0, 1e12))
def test_every_span_has_a_text(seconds: float) -> None:
    assert span(seconds)


def test_counts_have_their_thousands_apart_and_moments_are_utc() -> None:
    assert number(1_234_567) == "1,234,567"
    assert moment(1_732_165_000_250) == "2024-11-21T04:56:40.250Z"
    assert moment(0) is None


def test_a_table_in_a_pipe_is_aligned_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    show_table([Column("queue"), Column("lag", "right")], [["a", "10"], [long, "1,234"]], total=["", "1,244"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("QUEUE")
    assert lines[2] == f"{long}  1,234"
    assert [line[-5:].strip() for line in lines] == ["LAG", "10", "1,234", "1,244"]


def test_a_table_without_rows_still_has_its_titles(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([Column("queue"), Column("lag", "right")], [])
    assert capsys.readouterr().out == "QUEUE  LAG\n"


def test_a_table_on_a_terminal_has_bold_titles_and_is_whole_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    show_table([Column("queue"), Column("lag", "right")], [["x" * 300, "10"]])
    assert capsys.readouterr().out.splitlines() == [f"\x1b[1m{'QUEUE'.ljust(300)}  LAG\x1b[0m", f"{'x' * 300}   10"]
    monkeypatch.setenv("NO_COLOR", "1")
    show_table([Column("queue")], [])
    assert capsys.readouterr().out == "QUEUE\n"


def test_fields_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    show_fields([("queue", "a"), ("durability", "fsync")])
    assert capsys.readouterr().out == "queue       a\ndurability  fsync\n"


def test_text_is_one_line_with_what_identifies_a_message() -> None:
    line = render("text")(message()).decode()
    assert line == "2024-11-21T04:56:40.250Z  1732165000250-12  3  JFK  AA  hello"
    assert render("text")(message(topic="", key=None)).decode().split("  ")[3:5] == ["-", "-"]


@pytest.mark.parametrize("body", [b"a\nb\r\n", b"\x1b[2Jgone", b"\xff\x00", "c\x9b1m".encode()])
def test_text_cannot_steer_the_terminal_or_break_the_line(body: bytes) -> None:
    line = render("text")(message(body=body)).decode()
    assert line.isprintable(), repr(line)


def test_printable_leaves_ordinary_text_alone() -> None:
    assert printable("naïve C:\\dir €".encode()) == "naïve C:\\dir €"


def test_json_has_every_field_and_loses_nothing() -> None:
    found = json.loads(render("json")(message(body=b"\xfe\xff")))
    assert found == {
        "queue": "flights", "partition": 3, "id": "1732165000250-12", "time": "2024-11-21T04:56:40.250Z",
        "topic": "JFK", "key": "AA", "headers": {"trace": "t1", "raw": {"base64": "/w=="}},
        "body": {"base64": "/v8="},
    }  # fmt: skip
    assert message_fields(message(topic="", key=None))["topic"] is None


@given(st.binary(max_size=50))
def test_json_text_or_base64_round_trips(data: bytes) -> None:
    import base64

    found = text_or_base64(data)
    assert found is not None
    assert (found.encode() if isinstance(found, str) else base64.b64decode(found["base64"])) == data


def test_body_is_the_bytes() -> None:
    assert render("body")(message(body=b"\xff\n\0")) == b"\xff\n\0"


def test_a_template_takes_fields_headers_braces_and_escapes() -> None:
    form = r"{id}\t{number} {partition}/{topic} {key}={body} {{x}} {header.trace}{header.none} \x \\ {queue} {time}"
    expected = f"{ID}\t{int(ID)} 3/JFK AA=hello {{x}} t1 \\x \\ flights 2024-11-21T04:56:40.250Z"
    assert render(form)(message()).decode() == expected
    assert json.loads(render("{headers}")(message())) == {"trace": "t1", "raw": {"base64": "/w=="}}


@pytest.mark.parametrize(
    "form", ["", "txt", "{nothing}", "{id", "id}", "{id.x}", "{0}", "{header}", "{header.}", "{}", "{id!r}"]
)
def test_a_format_that_makes_no_sense_is_bad_use(form: str) -> None:
    with pytest.raises(typer.BadParameter):
        render(form)


def test_a_printer_ends_each_message_with_a_line_end_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", out)
    printer = Printer("body")
    printer.show(message(body=b"\xff"))
    printer.show(message(body=b"two"))
    printer.flush()
    assert out.buffer.getvalue() == b"\xff\ntwo\n"
    assert printer.count == 2
