"""What commands print: tables, JSON, and numbers as people read them.

A table is plain aligned columns, never cut off, with its titles bold on a terminal. Everything that is listed can be
had as JSON instead (`--json`): one document, indented for a terminal and in one line for a pipe.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

NOTHING = "-"
"""What stands in a table where there is no value."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


class Column(NamedTuple):
    """A column of a table; numbers stand on the right."""

    title: str
    side: Literal["left", "right"] = "left"


def show_json(value: Any) -> None:  # noqa: ANN401 - JSON is any value
    """Print one JSON document."""
    print(json_line(value) if not sys.stdout.isatty() else json.dumps(value, ensure_ascii=False, indent=2))


def json_line(value: Any) -> str:  # noqa: ANN401 - as above
    """One JSON document in one line."""
    return json.dumps(value, ensure_ascii=False)


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, total: Sequence[str] | None = None) -> None:
    """Print rows under their titles; `total` is a last row that sums them up.

    Lines longer than a terminal is wide are left to it: an id that is cut or folded cannot be copied.
    """
    show_lines(table_lines(columns, rows, total=total))


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, total: Sequence[str] | None = None
) -> list[str]:
    """What `show_table` prints."""
    titles = [column.title.upper() for column in columns]
    lines = [titles, *rows, *([total] if total is not None else [])]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    first, *others = [_line(columns, widths, line) for line in lines]
    return [f"\x1b[1m{first}\x1b[0m" if _is_coloured() else first, *others]


def show_lines(lines: Sequence[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        print(line)


def _line(columns: Sequence[Column], widths: Sequence[int], line: Sequence[str]) -> str:
    cells = [
        cell.rjust(width) if column.side == "right" else cell.ljust(width)
        for column, width, cell in zip(columns, widths, line, strict=True)
    ]
    return "  ".join(cells).rstrip()


def _is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair a line."""
    show_lines(field_lines(fields))


def field_lines(fields: Sequence[tuple[str, str]]) -> list[str]:
    """What `show_fields` prints."""
    width = max(len(name) for name, _ in fields)
    return [f"{name.ljust(width)}  {value}" for name, value in fields]


def tell(text: str) -> None:
    """Say something to a person, on standard error: standard output is for data."""
    print(text, file=sys.stderr, flush=True)


def size(count: int | None) -> str:
    """Bytes in the largest binary unit that keeps them above one: `1.5 MiB`."""
    if count is None:
        return NOTHING
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def number(count: int | None) -> str:
    """A count with its thousands apart; a dash for none."""
    return NOTHING if count is None else f"{count:,}"


def span(seconds: float | None) -> str:
    """A length of time in its two largest units: `850 ms`, `2.5 s`, `4m 10s`, `3d 4h`."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms" if seconds > 0 else "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for index, (length, unit) in enumerate(_SPANS):
        if whole >= length:
            rest = whole % length
            below = _SPANS[index + 1] if index + 1 < len(_SPANS) else None
            tail = f" {rest // below[0]}{below[1]}" if below and rest >= below[0] else ""
            return f"{whole // length}{unit}{tail}"
    raise AssertionError("at least one second")


def age(timestamp_ms: int | None, *, clock: Callable[[], float] = time.time) -> str:
    """How long ago, for people: `4m 10s ago`; `in 3.0 s` when clocks differ; a dash for never."""
    if not timestamp_ms:
        return NOTHING
    passed = clock() - timestamp_ms / 1000
    if passed < -1:
        return f"in {span(-passed)}"
    return f"{span(passed)} ago" if passed >= 1 else "just now"


def moment(timestamp_ms: int | None) -> str | None:
    """A time in ISO 8601 with milliseconds, UTC, for JSON; None for never."""
    if not timestamp_ms:
        return None
    text = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
