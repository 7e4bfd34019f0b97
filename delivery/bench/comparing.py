"""The command `hoot bench compare`: its options, and what it prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

if TYPE_CHECKING:
    from delivery.bench.compare import Row

_CASES: Final = "publish,drain,live,latency,fanout"
_BYTES: Final = 50_000_000
"""Published in a run, unless told otherwise."""


def compare(
    peers: Annotated[str | None, typer.Option(help="Names, with commas between.", show_default="all")] = None,
    cases: Annotated[str, typer.Option(help="Of these, with commas between.")] = _CASES,
    size: Annotated[int, typer.Option(min=16, max=1 << 20, help="Bytes in each body.")] = 100,
    messages: Annotated[
        int | None, typer.Option(min=8, help="How many; slow peers get fewer.", show_default="50 MB of them")
    ] = None,
    rate: Annotated[float, typer.Option(min=1, help="Messages per second of `latency`.")] = 1000.0,
    subscriptions: Annotated[int, typer.Option(min=1, max=64, help="Of `fanout`, a process each.")] = 8,
    runs: Annotated[int, typer.Option(min=1, max=100, help="Of each, in turn; medians are printed.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="One JSON line per row.")] = False,
) -> None:
    """Hoot beside NATS JetStream, Redis Streams, RabbitMQ and Kafka, as far as they are installed; in turn.

    Of each: publisher, server and subscribers as separate processes, a Python callback per message, acknowledged.
    Servers are found on PATH and run on loopback, clients come with Hoot's extra `compare`: see docs/performance.md.
    There is no figure for what lost, doubled or reordered anything.
    """
    from delivery.bench.compare import compare as compared
    from delivery.bench.peers.every import EVERY
    from delivery.bench.rounds import CASES, Load

    named = _chosen("--peers", peers or ",".join(EVERY), list(EVERY))
    wanted = _chosen("--cases", cases, CASES)
    load = Load(size, messages or max(1000, _BYTES // size), rate, subscriptions=subscriptions)
    rows = list(compared([EVERY[name] for name in named], wanted, load, runs, tell=_tell))
    if json:
        for row in rows:
            typer.echo(msgspec.json.encode(row).decode())
    else:
        _table(rows)


def _chosen(option: str, given: str, allowed: Sequence[str]) -> list[str]:
    names = [name.strip() for name in given.split(",")]
    if unknown := [name for name in names if name not in allowed]:
        raise typer.BadParameter(f"{option}: {unknown[0]!r} is none of {', '.join(allowed)}")
    return names


def _tell(text: str) -> None:
    typer.echo(text, err=True)


def _table(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("peer", "case", "messages/s", "lowest to highest", "p50 ms", "p99 ms", "acknowledged means", box=None)
    for row in rows:
        table.add_row(row.peer, row.case, *described(row), row.durability)
    Console().print(table)


def described(row: Row) -> tuple[str, str, str, str]:
    """The figures of a row as words; why there are none in the place of the second."""
    if row.per_second is None:
        return "–", row.absent, "", ""
    spread = f"{row.per_second_min:,.0f} – {row.per_second_max:,.0f}"
    return f"{row.per_second:,.0f}", spread, _ms(row.p50_ms), _ms(row.p99_ms)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
