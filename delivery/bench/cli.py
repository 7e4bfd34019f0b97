"""The command `hoot bench`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from delivery.bench.report import Result, Summary, summary


class Case(StrEnum):
    """What to measure."""

    publish = "publish"
    live = "live"
    drain = "drain"
    latency = "latency"
    fanout = "fanout"
    filter = "filter"
    floor = "floor"


class DurabilityChoice(StrEnum):
    """See model.Durability."""

    fsync = "fsync"
    os = "os"
    memory = "memory"


def bench(
    case: Annotated[Case, typer.Argument(help="What to measure.")],
    size: Annotated[int, typer.Option(min=8, max=1 << 20, help="Bytes in each body.")] = 100,
    messages: Annotated[int | None, typer.Option(min=1, max=1 << 30, help="How many.", show_default="by case")] = None,
    runs: Annotated[int, typer.Option(min=1, max=100, help="Repeat, and print the medians at the end.")] = 1,
    rate: Annotated[float, typer.Option(min=1, help="latency: messages per second.")] = 1000.0,
    subscriptions: Annotated[int, typer.Option(min=1, max=100, help="fanout: how many.")] = 8,
    selectivity: Annotated[float, typer.Option(min=0, max=1, help="filter: share that is wanted.")] = 0.01,
    partitions: Annotated[int, typer.Option(min=1, max=32767, help="Partitions of the queue.")] = 1,
    durability: Annotated[DurabilityChoice, typer.Option(help="Of the queue.")] = DurabilityChoice.fsync,
    batches: Annotated[bool, typer.Option(help="Receive with a batch listener.")] = False,
    with_floor: Annotated[bool, typer.Option(help="Measure `floor` beside each run and print the ratio.")] = False,
    zookeeper: Annotated[str | None, typer.Option(help="A running engine; its own embedded one without.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON line per result.")] = False,
) -> None:
    """Measure Hoot: publisher, region host, ZooKeeper and subscribers as separate processes.

    No rate is printed for a run that lost, doubled or reordered anything or whose checkpoint stayed behind.
    """
    count = messages if messages is not None else _default_count(case, size, rate)
    results = []
    with ExitStack() as stack:
        measure = _prepare(stack, case, size, count, zookeeper, {
            "rate": rate, "subscriptions": subscriptions, "selectivity": selectivity, "partitions": partitions,
            "durability": durability.value, "batches": batches,
        })  # fmt: skip
        for _ in range(runs):
            found = measure()
            if with_floor and case is not Case.floor:
                found = _against_floor(found)
            results.append(found)
            _print(found, json=json)
    if runs > 1:
        _print(summary(results), json=json)


def _prepare(
    stack: ExitStack, case: Case, size: int, count: int, zookeeper: str | None, options: dict[str, object]
) -> Callable[[], Result]:
    from delivery.bench import cases
    from delivery.client import connect
    from delivery.local import LocalEngine

    if case is Case.floor:
        return lambda: cases.floor(size, count)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hoot-bench-")))
    if zookeeper is None:
        zookeeper = stack.enter_context(LocalEngine(folder)).address
    client = stack.enter_context(connect(zookeeper))
    fields = {"client": client, "zookeeper": zookeeper, "folder": folder, "size": size, "messages": count}
    setup = cases.Setup(**fields, **options)  # type: ignore[arg-type]
    return lambda: cases.CASES[case.value](setup)


def _against_floor(found: Result) -> Result:
    from delivery.bench.cases import floor

    limit = floor(found.size, min(found.messages, 2_000_000))
    ratio = found.messages_per_second / limit.messages_per_second
    return msgspec.structs.replace(found, ratio_to_floor=round(ratio, 3))


def _default_count(case: Case, size: int, rate: float) -> int:
    if case is Case.latency:
        return int(rate * 10)
    return max(20_000, min(2_000_000, 400_000_000 // size))


def _print(found: Result | Summary, *, json: bool) -> None:
    if json:
        typer.echo(msgspec.json.encode(found).decode())
    elif isinstance(found, Summary):
        low, high = found.messages_per_second_min, found.messages_per_second_max
        typer.echo(f"median of {found.runs}: {_line(found.median)} (lowest {low:,.0f}, highest {high:,.0f})")
    else:
        typer.echo(_line(found))


def _line(found: Result) -> str:
    text = f"{found.case} {found.size} B: {found.messages_per_second:,.0f} messages/s"
    text += f", {found.megabytes_per_second:,.1f} MB/s"
    if found.p50_ms is not None:
        text += f", p50 {found.p50_ms} ms, p99 {found.p99_ms} ms, p99.9 {found.p999_ms} ms"
    if found.ratio_to_floor is not None:
        text += f", {found.ratio_to_floor} of the floor"
    return f"{text} ({found.messages:,} messages, {found.durability or 'no disk'})"
