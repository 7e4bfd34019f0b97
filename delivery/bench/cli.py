"""The command `hoot bench`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from delivery.bench.report import Result, Summary, described, summary
from delivery.model import Durability

_FOLDER: Final = "hoot-bench-"


class Case(StrEnum):
    """What to measure."""

    publish = "publish"
    live = "live"
    drain = "drain"
    latency = "latency"
    fanout = "fanout"
    filter = "filter"
    floor = "floor"
    fencing = "fencing"
    http_publish = "http-publish"
    http_poll = "http-poll"
    http_wait = "http-wait"


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
    rate: Annotated[float, typer.Option(min=1, help="latency and http-poll: messages per second.")] = 1000.0,
    subscriptions: Annotated[int, typer.Option(min=1, max=100, help="fanout: how many.")] = 8,
    selectivity: Annotated[float, typer.Option(min=0, max=1, help="filter: share of the topic `wanted`.")] = 0.01,
    expression: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="EXPRESSION",
            show_default="topic = 'wanted'",
            help="filter: on topic and body.n, which is 0 to 999 in turn.",
        ),
    ] = None,
    apart: Annotated[bool, typer.Option(help="filter: each topic in batches of its own.")] = False,
    partitions: Annotated[
        int, typer.Option(min=1, max=32767, help="Of the queue, dealt out to the hosts; a batch goes to a random one.")
    ] = 1,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=64, metavar="N", show_default="1", help="Hosts, each a process, of its own engine."),
    ] = None,
    durability: Annotated[
        DurabilityChoice, typer.Option(help="Of the queue; fencing: fsync or os.")
    ] = DurabilityChoice.fsync,
    per_request: Annotated[int, typer.Option(min=1, max=100_000, help="http-publish: messages in a request.")] = 1,
    connections: Annotated[
        int, typer.Option(min=1, max=10_000, help="http-publish: at once; http-wait: polls that wait.")
    ] = 32,
    batches: Annotated[bool, typer.Option(help="Receive with a batch listener.")] = False,
    with_floor: Annotated[bool, typer.Option(help="Measure `floor` beside each run and print the ratio.")] = False,
    zookeeper: Annotated[str | None, typer.Option(help="A running engine; its own embedded one without.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON line per result.")] = False,
) -> None:
    """Measure Hoot: publisher, region hosts, ZooKeeper and subscribers as separate processes.

    No rate is printed for a run that lost, doubled or reordered anything or whose checkpoint stayed behind.

    Two cases need no engine: floor decodes and calls back in one process, with neither network nor disk; fencing
    appends batches of one message to the log and tells what confirming the epoch after each adds, in microseconds.
    """
    if zookeeper is not None and processes is not None:
        raise typer.BadParameter("--zookeeper names a running engine, --processes is for its own one: give one")
    if case is Case.latency and batches:
        raise typer.BadParameter("latency is that of each message: not with --batches")
    if case is Case.fencing and durability is DurabilityChoice.memory:
        raise typer.BadParameter("fencing measures the log on disk: --durability fsync or os")
    if case is Case.http_wait and zookeeper is not None:
        raise typer.BadParameter("http-wait measures the memory of a host of its own: not with --zookeeper")
    count = messages if messages is not None else _default_count(case, size, rate, per_request)
    results = []
    with ExitStack() as stack:
        measure = _prepare(stack, case, {
            "size": size, "messages": count, "rate": rate, "subscriptions": subscriptions, "selectivity": selectivity,
            "expression": expression, "apart": apart,
            "partitions": partitions, "durability": durability.value, "batches": batches,
            "per_request": per_request, "connections": connections,
        }, zookeeper, processes or 1)  # fmt: skip
        for _ in range(runs):
            found = measure()
            if with_floor and case not in (Case.floor, Case.fencing):
                found = _against_floor(found)
            results.append(found)
            _print(found, json=json)
    if runs > 1:
        _print(summary(results), json=json)


def _prepare(
    stack: ExitStack, case: Case, options: dict[str, Any], zookeeper: str | None, processes: int
) -> Callable[[], Result]:
    """What measures once. The engine is started here, so that all runs have the same."""
    from delivery.bench import cases, http
    from delivery.client import connect
    from delivery.local import LocalEngine

    if case is Case.floor:
        return lambda: cases.floor(options["size"], options["messages"])
    if case is Case.fencing:
        return lambda: _fencing(options["size"], options["messages"], options["durability"])
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_FOLDER)))
    pid = 0
    if zookeeper is None:
        engine = stack.enter_context(LocalEngine(folder, processes=processes))
        zookeeper, pid = engine.address, engine.host.pid
    client = stack.enter_context(connect(zookeeper))
    setup = cases.Setup(client=client, zookeeper=zookeeper, folder=folder, host_pid=pid, **options)
    measured = {**cases.CASES, **http.CASES}[case.value]
    return lambda: measured(setup)


def _fencing(size: int, messages: int, durability: Durability) -> Result:
    from delivery.bench.fencing import fencing

    with tempfile.TemporaryDirectory(prefix=_FOLDER) as folder:
        return fencing(size, messages, durability, Path(folder))


def _against_floor(found: Result) -> Result:
    from delivery.bench.cases import floor

    limit = floor(found.size, min(found.messages, 2_000_000))
    ratio = found.messages_per_second / limit.messages_per_second
    return msgspec.structs.replace(found, ratio_to_floor=round(ratio, 3))


def _default_count(case: Case, size: int, rate: float, per_request: int) -> int:
    if case is Case.http_publish:
        return 20_000 * min(per_request, 50)
    if case is Case.latency:
        return int(rate * 10)
    if case is Case.fencing:
        return 2_000
    return max(20_000, min(2_000_000, 400_000_000 // size))


def _print(found: Result | Summary, *, json: bool) -> None:
    typer.echo(msgspec.json.encode(found).decode() if json else described(found))
