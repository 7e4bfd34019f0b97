"""`hoot serve`, a region host, and `hoot zookeeper`, an embedded ZooKeeper by itself.

The embedded ZooKeeper takes ZooKeeper's own port, 2181, when that is free, so that the other commands find it without a
word; otherwise any free one, and the start says how to name it. It outlives the host's stop by a moment: checkpoints
and the end of the session are still written to it.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from delivery.cli import logs, options
from delivery.cli.embedding import keep_running, started
from delivery.cli.errors import INTERRUPTED
from delivery.cli.settings import with_settings
from delivery.cli.stopping import ends, on_sigterm
from delivery.networks import host_port

if TYPE_CHECKING:
    from delivery.cli.processes import Crew
    from delivery.config import HostConfig
    from delivery.embedded import EmbeddedZooKeeper

_SWITCH_SECONDS = 0.0005
"""How long a thread of the host may keep the others from running. After each system call the committing thread waits
for its turn: with Python's 5 ms a busy host stored a fifth less."""
_COLLECTED_AFTER = (20_000, 10, 10)
"""New objects after which the collector of cycles looks at them, as gc.set_threshold takes it. With Python's 700 a host
spent half of its time on looking while it took thousands of partitions over, and stood still for seconds."""

log = logging.getLogger(__name__)

Port = Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="Where clients connect; 0: any free.")]
HttpPort = Annotated[
    int,
    typer.Option(
        min=0, max=65535, metavar="PORT", help="For topics over HTTP, /metrics, /healthz and /readyz; 0: any free one."
    ),
]
OtherZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper", metavar="HOSTS", envvar="HOOT_ZOOKEEPER", show_default="an embedded one",
        help="Where ZooKeeper is: HOST:PORT,…",
    ),
]  # fmt: skip
Embedded = Annotated[bool, typer.Option("--embedded", help="Start a ZooKeeper here, even if HOOT_ZOOKEEPER names one.")]
HBaseThrift = Annotated[
    str | None,
    typer.Option(metavar="HOSTS", show_default="127.0.0.1:9090", help="HBase's Thrift gateways: HOST:PORT,…"),
]
ListenerNetworks = Annotated[
    str | None,
    typer.Option(
        metavar="CIDR,…", show_default="all but loopback and link-local",
        help="Where listeners of subscribers may be.",
    ),
]  # fmt: skip
Processes = Annotated[
    int, typer.Option(min=1, max=64, metavar="N", help="Hosts to run, each a process; given ports are the first ones.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of a host; repeatable.", show_default=False),
]
UntilEof = Annotated[
    bool, typer.Option("--until-eof", hidden=True, help="Stop, as on SIGTERM, when standard input ends.")
]
LogLevel = Annotated[logs.Level, typer.Option(help="What is logged at least.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log JSON lines.")]


def _zookeeper_port(help: str) -> Any:  # noqa: ANN401 - typer's own type for it
    return typer.Option(min=0, max=65535, metavar="PORT", show_default="2181 if free", help=help)


def _size(help: str) -> Any:  # noqa: ANN401 - as above
    return typer.Option(parser=options.parse_size, metavar="SIZE", show_default=False, help=help)


def _span(help: str) -> Any:  # noqa: ANN401 - as above
    return typer.Option(parser=options.parse_span, metavar="TIME", show_default=False, help=help)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(serve)
    app.command("zookeeper")(zookeeper_command)


def serve(
    context: typer.Context,
    *,
    zookeeper: OtherZooKeeper = None,
    embedded: Embedded = False,
    data: options.DataFolder = None,
    address: Annotated[str, typer.Option(help="The address to listen on; others must reach it.")] = "127.0.0.1",
    port: Port = 0,
    http_port: HttpPort = 0,
    no_http: Annotated[bool, typer.Option("--no-http", help="No HTTP at all.")] = False,
    zookeeper_port: Annotated[int | None, _zookeeper_port("Of the embedded ZooKeeper.")] = None,
    store: Annotated[str, typer.Option(metavar="KIND", help="Where messages are stored: log or hbase.")] = "log",
    hbase_thrift: HBaseThrift = None,
    session_timeout: Annotated[float | None, _span("How soon others notice that this host died (6s).")] = None,
    listener_networks: ListenerNetworks = None,
    grace: Annotated[float | None, _span("How long a stop waits for subscribers' answers (10s).")] = None,
    segment_size: Annotated[int | None, _size("Of a log segment; retention drops whole ones (64MiB).")] = None,
    tail_cache: Annotated[int | None, _size("Memory for the newest messages (64MiB).")] = None,
    processes: Processes = 1,
    settings: Settings = None,
    until_eof: UntilEof = False,
    log_level: LogLevel = "info",
    log_json: LogJson = False,
) -> None:
    """Run a region host: it stores what is published and pushes it to the subscribers.

    Without --zookeeper (and HOOT_ZOOKEEPER) it brings its own ZooKeeper, whose data is under the data folder, too.
    SIGTERM, Ctrl-C and the end of its terminal stop it cleanly: its partitions go to other hosts, if there are any,
    what is out is waited for and checkpoints are saved. A second Ctrl-C ends it at once.
    """
    import msgspec

    from delivery.embedded.lifeline import end_with_parent

    logs.set_up(log_level, as_json=log_json)
    given = {
        "data": options.data_folder(data), "address": address, "port": port,
        "http_port": None if no_http else http_port, "store": store,
    }  # fmt: skip
    hosts = _hosts(
        processes, settings or [], given, session_timeout_seconds=session_timeout, grace_seconds=grace,
        segment_bytes=segment_size, tail_cache_bytes=tail_cache, hbase_thrift=hbase_thrift,
        listener_networks=listener_networks,
    )  # fmt: skip
    outside = _outside(context, zookeeper, embedded=embedded)
    with on_sigterm(_leave):
        if until_eof:  # for programs that start a host of their own and must not leave it behind, like hoot bench
            end_with_parent()
        with _zookeeper(outside, hosts[0].data, zookeeper_port) as (at, own):
            _run([msgspec.structs.replace(one, zookeeper=at).check() for one in hosts], own, log_level, log_json)


def _hosts(count: int, settings: list[str], given: dict[str, Any], **flags: float | str | None) -> list[HostConfig]:
    """The settings of each of `count` hosts; a flag that is None stays at its default. Raises ConfigError."""
    from delivery.cli.processes import configs
    from delivery.config import HostConfig

    named: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    config = with_settings(HostConfig(**given, **named), settings).check()
    return configs(config, count) if count > 1 else [config]


def _outside(context: typer.Context, zookeeper: str | None, *, embedded: bool) -> str | None:
    """The ZooKeeper that is there, None where one is to be started. Raises typer.BadParameter for both."""
    said = context.get_parameter_source("zookeeper")
    if embedded and said is not None and said.name == "COMMANDLINE":
        raise typer.BadParameter("--embedded starts a ZooKeeper, --zookeeper names one: give one of them")
    return None if embedded else zookeeper


@contextlib.contextmanager
def _zookeeper(outside: str | None, data: Path, port: int | None) -> Iterator[tuple[str, EmbeddedZooKeeper | None]]:
    """The address of the ZooKeeper that is named, or that of an embedded one and this one."""
    if outside is not None:
        yield outside, None
        return
    from delivery.storage.log import check_layout

    check_layout(data)  # before anything is written there, the embedded ZooKeeper's files included
    with started(data / "zookeeper", port) as own:
        yield own.address, own


def _run(hosts: list[HostConfig], own: EmbeddedZooKeeper | None, level: logs.Level, as_json: bool) -> None:
    """One host in this process, several in processes of their own."""
    import trio

    from delivery.cli.processes import Crew, command
    from delivery.rpc.server import allow_open_files

    allow_open_files()
    if len(hosts) == 1:
        sys.setswitchinterval(_SWITCH_SECONDS)
        gc.set_threshold(*_COLLECTED_AFTER)
        trio.run(_host, hosts[0], own)
        return
    crew = Crew([command(one, level, as_json=as_json) for one in hosts])
    trio.run(_crew, crew, own)
    if crew.status:
        raise typer.Exit(crew.status)


async def _crew(crew: Crew, own: EmbeddedZooKeeper | None) -> None:
    async with _until_stopped(own) as stop:
        await crew.run(stop)


async def _host(config: HostConfig, own: EmbeddedZooKeeper | None) -> None:
    import trio

    from delivery.app import serve as serve_host

    async with _until_stopped(own) as stop, trio.open_nursery() as hosting:
        record = await hosting.start(partial(serve_host, config, stop=stop))
        _announce(record, config, own)


def _announce(record: Any, config: HostConfig, own: EmbeddedZooKeeper | None) -> None:  # noqa: ANN401
    print(f"region host {record.host} listens on {record.host_port}")
    if record.http_port is not None:
        http = host_port(record.address, record.http_port)
        print(f"metrics and health: http://{http}/metrics /healthz /readyz")
    stored = f"tables {config.hbase_prefix}.* of HBase at {config.hbase_thrift}" if config.store == "hbase" else None
    print(f"data: {stored or config.data.absolute()}")
    print(f"ZooKeeper: {config.zookeeper}{' (embedded)' if own is not None else ''}", flush=True)
    _name_zookeeper(config.zookeeper)


def _name_zookeeper(address: str) -> None:
    """Say how the other commands find ZooKeeper, unless they find it by themselves."""
    if address != os.environ.get("HOOT_ZOOKEEPER", options.ZOOKEEPER_DEFAULT):
        print(f"for the other commands: export HOOT_ZOOKEEPER={address}", flush=True)


def zookeeper_command(
    data: options.DataFolder = None,
    port: Annotated[int | None, _zookeeper_port("Client port.")] = None,
    log_level: LogLevel = "info",
    log_json: LogJson = False,
) -> None:
    """Run an embedded ZooKeeper by itself, on loopback, for region hosts and clients on this machine.

    It keeps its data in the folder `zookeeper` of the data folder: the ZooKeeper of `hoot serve --embedded`, too.
    """
    import trio

    logs.set_up(log_level, as_json=log_json)
    with on_sigterm(_leave), started(options.data_folder(data) / "zookeeper", port) as own:
        print(f"ZooKeeper listens on {own.address}", flush=True)
        _name_zookeeper(own.address)
        trio.run(_wait_for_stop, own)


async def _wait_for_stop(own: EmbeddedZooKeeper) -> None:
    async with _until_stopped(own) as stop:
        await stop.wait()


@contextlib.asynccontextmanager
async def _until_stopped(own: EmbeddedZooKeeper | None) -> AsyncIterator[Any]:
    """The event that asks for the end; as long as the context lasts, the embedded ZooKeeper is kept running."""
    import trio

    async with _stop_signal() as stop, trio.open_nursery() as nursery:
        if own is not None:
            nursery.start_soon(keep_running, own)
        yield stop
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def _stop_signal() -> AsyncIterator[Any]:
    """An event that SIGTERM, SIGHUP or Ctrl-C sets; a second Ctrl-C ends the process at once."""
    import trio

    stop = trio.Event()

    async def listen() -> None:
        async for number in signals:
            if stop.is_set() and number == signal.SIGINT:
                os._exit(INTERRUPTED)
            if not stop.is_set():
                log.info("stopping (%s); Ctrl-C ends it at once", signal.Signals(number).name)
                stop.set()

    with trio.open_signal_receiver(signal.SIGINT, *ends()) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            yield stop
            nursery.cancel_scope.cancel()


def _leave() -> NoReturn:
    """Outside the trio loop, SIGTERM unwinds the stack as Ctrl-C does, so that nothing is left running."""
    sys.exit(0)
