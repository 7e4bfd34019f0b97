"""The command `hoot bench`: a command for each case of the catalogue, with the options that the case has."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import typer

from delivery.bench.catalogue import CASES, Case
from delivery.bench.comparing import compare

if TYPE_CHECKING:
    from delivery.bench.report import Result, Summary

_FLOOR_MESSAGES_MAX: Final = 2_000_000
_OF_THE_COMMAND: Final = (
    "runs", "json", "with_floor", "zookeeper", "processes", "store", "hbase_thrift", "layout"
)  # fmt: skip
"""Options that are no business of the cases."""

_FROM_STORE: Final = ("drain", "scan")
"""Cases of what is read from HBase, and not from the memory of a host."""

bench = typer.Typer(
    no_args_is_help=True, add_completion=False,
    help="Measure Hoot: publisher, region hosts, ZooKeeper and subscribers as separate processes.\n\nNothing is printed"
    " for a run that lost, doubled or reordered anything, or whose checkpoint stayed behind.",
)  # fmt: skip


def _command(case: Case) -> Callable[..., None]:
    """The function whose parameters are the case's options, for typer to make the command of."""

    def command(**given: Any) -> None:  # noqa: ANN401 - each as its option says
        _run(case, given)

    command.__annotations__ = {name: option.kind for name, option in case.options.items()}
    cast("Any", command).__signature__ = Signature(
        [
            Parameter(name, Parameter.KEYWORD_ONLY, default=option.info, annotation=option.kind)
            for name, option in case.options.items()
        ]
    )
    return command


for _case in CASES:
    bench.command(_case.name, help=_case.about)(_command(_case))
bench.command()(compare)


def _run(case: Case, given: dict[str, Any]) -> None:
    from delivery.bench.report import summary

    if given.get("zookeeper") is not None and given.get("processes") is not None:
        raise typer.BadParameter("--zookeeper names a running engine, --processes is for its own one: give one")
    if given.get("zookeeper") is not None and given.get("store") == "hbase":
        raise typer.BadParameter("--zookeeper names a running engine, --store is for its own one: give one")
    if given.get("messages") is None:
        given["messages"] = case.messages(given)
    results = []
    with ExitStack() as stack:
        measure = _prepared(stack, case, given)
        for _ in range(given["runs"]):
            found = measure()
            results.append(_against_floor(found) if given.get("with_floor") else found)
            _print(results[-1], json=given["json"])
    if given["runs"] > 1:
        _print(summary(results), json=given["json"])


def _prepared(stack: ExitStack, case: Case, given: dict[str, Any]) -> Callable[[], Result]:
    """What measures once. The engine is started here, so that all runs have the same."""
    from delivery.bench.stage import Plan

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hoot-bench-")))
    module = importlib.import_module(f"delivery.bench.{case.module}")
    measure: Callable[[Plan], Result] = getattr(module, case.name.replace("-", "_"))
    options: dict[str, Any] = {name: _plain(value) for name, value in given.items() if name not in _OF_THE_COMMAND}
    if not case.needs_engine:
        return lambda: measure(Plan(folder=folder, **options))
    setup = _setup(stack, folder, case, given, options)
    return lambda: measure(setup)


def _plain(value: object) -> object:
    return value.value if isinstance(value, StrEnum) else value


def _setup(stack: ExitStack, folder: Path, case: Case, given: dict[str, Any], options: dict[str, Any]) -> Any:  # noqa: ANN401
    from delivery.bench.raw import Raw
    from delivery.bench.stage import Setup
    from delivery.client import connect
    from delivery.local import LocalEngine

    zookeeper, pid = given.get("zookeeper"), None
    raw = Raw(given["hbase_thrift"], f"bench{folder.name[-8:]}") if given.get("store") == "hbase" else None
    if zookeeper is None:
        stored = () if raw is None else raw.host_options(given["layout"], from_memory=case.name not in _FROM_STORE)
        engine = stack.enter_context(LocalEngine(folder, *stored, processes=given["processes"] or 1))
        zookeeper, pid = engine.address, engine.host.pid
    client = stack.enter_context(connect(zookeeper))
    return Setup(folder=folder, client=client, zookeeper=zookeeper, host_pid=pid, raw=raw, **options)


def _against_floor(found: Result) -> Result:
    from delivery.bench.cases import floor
    from delivery.bench.stage import Plan

    limit = floor(Plan(found.size, min(found.messages, _FLOOR_MESSAGES_MAX)))
    ratio = found.messages_per_second / limit.messages_per_second
    return msgspec.structs.replace(found, ratio_to_floor=round(ratio, 3))


def _print(found: Result | Summary, *, json: bool) -> None:
    from delivery.bench.report import described

    typer.echo(msgspec.json.encode(found).decode() if json else described(found))
