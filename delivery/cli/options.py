"""Options that several commands share, and the parsers of their values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer

from delivery.errors import InvalidRequest
from delivery.ids import LATEST_PER_KEY, MessageId
from delivery.model import PARTITIONS_MAX

ZOOKEEPER_DEFAULT = "127.0.0.1:2181"

Start = Literal["earliest", "latest"] | MessageId | datetime
"""A place in a queue: an end, a message, or a time."""

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*(?:([kmgt])(?:i?b)?|b)?\Z", re.ASCII | re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SPAN = re.compile(r"(?:\d{1,9}(?:\.\d{1,6})?(?:ms|[smhdw])\s*)+\Z", re.ASCII)
_SPAN_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])", re.ASCII)
_SPAN_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SECONDS = re.compile(r"\d{1,12}(?:\.\d{1,6})?\Z", re.ASCII)
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?\Z", re.ASCII)


def parse_size(text: str) -> int:
    """Bytes: `4096`, `64KiB`, `10 GB`. Units are binary, with or without the i."""
    found = _SIZE.match(text.strip())
    if not found:
        raise typer.BadParameter(f"{text[:40]!r} is no size: use bytes or a unit, such as 4096, 64KiB or 10GiB")
    unit = _SIZE_UNITS[(found[2] or "").lower()]
    return int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit


def parse_span(text: str) -> float:
    """Seconds: `90`, `1.5s`, `10m`, `1h30m`, `7d`, `2w`."""
    stripped = text.strip().lower()
    if _SECONDS.match(stripped):
        return float(stripped)
    if not _SPAN.match(stripped):
        raise typer.BadParameter(f"{text[:40]!r} is no length of time: use seconds or units, such as 90s, 1h30m or 7d")
    return float(sum(float(count) * _SPAN_UNITS[unit] for count, unit in _SPAN_PART.findall(stripped)))


def place(text: str, option: str) -> Start:
    """The place that the value of `option` names. Raises typer.BadParameter."""
    try:
        return parse_place(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint=option) from None


def first(text: str, option: str) -> Start | str:
    """Where a subscription is to begin: `latest-per-key`, or a place. Raises typer.BadParameter."""
    return text if text == LATEST_PER_KEY else place(text, option)


def parse_place(text: str) -> Start:
    """`earliest`, `latest`, a message id, a time, or a time ago: `-1h`, `10m ago`."""
    stripped = text.strip()
    if stripped in ("earliest", "latest"):
        return "earliest" if stripped == "earliest" else "latest"
    if stripped.startswith("-") or stripped.lower().endswith("ago"):
        return _ago(stripped.removeprefix("-").strip())
    try:
        return MessageId.parse(stripped)
    except InvalidRequest as error:
        if re.fullmatch(r"\d+(-\d+)?", stripped, re.ASCII):
            if moment := _time(stripped):
                return moment
            raise typer.BadParameter(error.message) from None
    moment = _time(stripped)
    if moment is None:
        raise typer.BadParameter(
            f"{text[:40]!r} is no place in a queue: use earliest, latest, a message id, a time such as"
            " 2026-01-31T12:00:00Z (without a zone it is local), or a time ago such as -1h or '10m ago'"
        )
    return moment


def _ago(text: str) -> datetime:
    seconds = parse_span(re.sub(r"\s*ago\Z", "", text, flags=re.IGNORECASE))
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds)
    except OverflowError:
        raise typer.BadParameter(f"{text[:40]!r} is too long ago") from None


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def parse_header(text: str) -> tuple[str, bytes]:
    """`name=value`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text[:40]!r} is no header: use NAME=VALUE", param_hint="--header")
    return name, os.fsencode(value)


def parse_partitions(text: str) -> tuple[int, ...]:
    """`3`, `0-2` or `0,4,7`."""
    found: list[int] = []
    for piece in text.split(","):
        part = _RANGE.match(piece.strip())
        first, last = (int(part[1]), int(part[2] or part[1])) if part else (1, 0)
        if not first <= last < PARTITIONS_MAX:
            raise typer.BadParameter(
                f"{text[:40]!r} names no partitions: use 3, 0-2 or 0,4,7, up to 32766", param_hint="--partition"
            )
        found += range(first, last + 1)
    return tuple(found)


def chosen(partitions: Iterable[str] | None) -> tuple[int, ...] | None:
    """All partitions that repeated options name, in order, each once; None without any."""
    numbers = sorted({number for text in partitions or () for number in parse_partitions(text)})
    return tuple(numbers) or None


def parse_folder(text: str) -> Path:
    """A folder that is named: what is empty would be the one that the command was called from."""
    if not text.strip():
        raise typer.BadParameter("the name of the folder is empty: a shell gives that for a variable that is not set")
    return Path(text)


def data_folder(chosen_folder: Path | None) -> Path:
    """The data folder: the one chosen, else the user's own ($XDG_DATA_HOME/hoot or ~/.local/share/hoot)."""
    if chosen_folder is not None:
        return chosen_folder
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "hoot"


ZooKeeper = Annotated[
    str, typer.Option("--zookeeper", metavar="HOSTS", envvar="HOOT_ZOOKEEPER", help="Where ZooKeeper is: HOST:PORT,…")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", show_default=False)]
OneQueue = Annotated[str | None, typer.Argument(metavar="QUEUE", help="Only of this queue.", show_default="all queues")]
SubscriptionName = Annotated[str, typer.Argument(metavar="NAME", help="The subscription's name.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
StuckAfter = Annotated[
    float | None,
    typer.Option(
        "--stuck-after", parser=parse_span, metavar="TIME", show_default="30s",
        help="A callback that takes longer is taken for stuck.",
    ),
]  # fmt: skip
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data", parser=parse_folder, metavar="DIR", envvar="HOOT_DATA",
        show_default="$XDG_DATA_HOME/hoot or ~/.local/share/hoot", help="The data folder; made when it is not there.",
    ),
]  # fmt: skip
Partitions = Annotated[
    list[str] | None,
    typer.Option(
        "--partition", "-p", metavar="N", show_default=False,
        help="Only this partition: 3, 0-2 or 0,4,7; repeatable. Default: all.",
    ),
]  # fmt: skip
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="NAME", show_default=False,
        help="Only this topic, or those that match, as orders.* does; repeatable. Default: all.",
    ),
]  # fmt: skip
Filter = Annotated[
    str | None,
    typer.Option(
        "--filter", metavar="EXPRESSION", show_default=False,
        help="Only messages for which this holds: an expression such as \"hops > 3\", or a rule as JSON.",
    ),
]  # fmt: skip
START_HELP = "latest-per-key (only the newest message of each key, then all that is new), or a place: "
Bound = Annotated[
    int | None,
    typer.Option(
        "--bound", metavar="N", min=0, show_default=False,
        help="Only so many of the newest messages of a partition matter, older ones are left out; 0: all.",
    ),
]  # fmt: skip
PLACE_HELP = "earliest, latest, a message id, a time (2026-01-31T12:00Z), or a time ago (-1h, '10m ago')."
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind", metavar="KIND", show_default="as it is; exclusive for a new one",
        help="Who may be attached: exclusive (one), failover (others stand by), shared (the partitions are spread) or"
        " key_shared (every partition is shared by key).",
    ),
]  # fmt: skip
Isolation = Annotated[
    str | None,
    typer.Option(
        "--isolation", metavar="ISOLATION", show_default="as it is; uncommitted for a new one",
        help="uncommitted (messages come as they are published) or committed (those of a transaction after it).",
    ),
]  # fmt: skip
Format = Annotated[
    str, typer.Option("--format", "-f", metavar="FORMAT", help="text, json, body, or a template such as '{id} {body}'.")
]
