"""Values on the command line: sizes, times, places in a queue, partitions, headers. Nonsense is bad use."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from hypothesis import given, strategies as st

from delivery.cli import run
from delivery.cli.options import (
    chosen,
    data_folder,
    parse_header,
    parse_partitions,
    parse_place,
    parse_size,
    parse_span,
)
from delivery.ids import ID_MAX, MessageId


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64KiB", 65_536),
        ("64 kb", 65_536),
        ("1.5m", 1_572_864),
        ("10GiB", 10 << 30),
        ("7b", 7),
    ],
)
def test_sizes_take_binary_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1e9", "ten", "5 XB", "1" * 30, "٣", "0x10", "1_000"])
def test_what_is_no_size_is_bad_use(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5s", 1.5), ("10m", 600), ("1h30m", 5400), ("7d", 604_800), ("2w", 1_209_600), ("250ms", 0.25)],
)
def test_lengths_of_time_take_units(text: str, seconds: float) -> None:
    assert parse_span(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-5s", "1y", "s", "nan", "inf", "1h and 5m", "٣s"])
def test_what_is_no_length_of_time_is_bad_use(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no length of time"):
        parse_span(text)


def test_the_ends_of_a_queue_are_words() -> None:
    assert parse_place("earliest") == "earliest"
    assert parse_place("latest") == "latest"


@given(st.integers(0, ID_MAX))
def test_an_id_is_read_as_it_is_printed_and_as_its_number(number: int) -> None:
    assert parse_place(str(MessageId(number))) == number
    assert isinstance(parse_place(str(MessageId(number))), MessageId)


def test_a_plain_number_is_a_message_id() -> None:
    assert parse_place("1732165000000") == MessageId(1_732_165_000_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31 12:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("2026-01-31T12:00:00.250Z", datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)),
    ],
)
def test_a_time_with_a_zone_is_that_moment(text: str, expected: datetime) -> None:
    assert parse_place(text) == expected


def test_a_time_without_a_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert parse_place("2026-01-31T12:00") == datetime(2026, 1, 31, 17, tzinfo=UTC)
        assert parse_place("2026-01-31") == datetime(2026, 1, 31, 5, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"), [("-1h", 3600), ("10m ago", 600), ("10m AGO", 600), ("- 90", 90), ("1h30m ago", 5400)]
)
def test_a_time_ago_counts_from_now(text: str, seconds: float) -> None:
    found = parse_place(text)
    assert isinstance(found, datetime)
    assert datetime.now(UTC) - found == pytest.approx(timedelta(seconds=seconds), abs=timedelta(seconds=5))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "1-99999",
        "99999999999999999999",
        "2026-13-01",
        "-",
        "ago",
        "-999999999w",
        "..",
        "1\n2",
        "9" * 10_000,
    ],
)
def test_what_is_no_place_is_bad_use(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_place(text)


def test_partitions_are_numbers_ranges_and_lists() -> None:
    assert parse_partitions("3") == (3,)
    assert parse_partitions("0-2") == (0, 1, 2)
    assert parse_partitions("0, 4,7") == (0, 4, 7)
    assert parse_partitions("32766") == (32_766,)
    assert chosen(["3", "0-1", "1"]) == (0, 1, 3)
    assert chosen(None) is None
    assert chosen([]) is None


@pytest.mark.parametrize("text", ["", "-1", "2-1", "0-32767", "99999", "a", "1,,2", "0-1-2", "٣"])
def test_what_names_no_partitions_is_bad_use(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="names no partitions"):
        parse_partitions(text)


def test_a_header_is_split_at_its_first_equals_sign() -> None:
    assert parse_header("trace=a=b") == ("trace", b"a=b")
    assert parse_header("empty=") == ("empty", b"")
    assert parse_header("raw=\udcff") == ("raw", b"\xff"), "a byte that is no UTF-8 comes through as it was typed"


@pytest.mark.parametrize("text", ["", "name", "=value"])
def test_what_is_no_header_is_bad_use(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no header"):
        parse_header(text)


@pytest.mark.parametrize("name", ["", " "])
def test_a_data_folder_without_a_name_is_bad_use(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The shell gives that for a variable that is not set, and it would be the folder that one is in."""
    for command in ("serve", "zookeeper"):
        assert run([command, "--data", name]) == 2
        assert "--data" in capsys.readouterr().err


def test_the_data_folder_is_the_one_chosen_else_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert data_folder(tmp_path / "mine") == tmp_path / "mine"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data_folder(None) == tmp_path / "hoot"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder(None) == tmp_path / ".local" / "share" / "hoot"
