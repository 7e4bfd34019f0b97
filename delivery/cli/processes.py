"""`hoot serve --processes N`: N region hosts on one machine, the way past what one Python process can do.

The parent holds the embedded ZooKeeper, if there is one, and starts N children that are ordinary hosts on one data
folder. A child that was killed is not replaced: the others take its partitions over, the log says so, and the command
ends with status 1. One that ends with an error of its own, such as a taken port, ends them all. SIGTERM and Ctrl-C are
passed on as SIGTERM. Each child's standard input is a pipe to the parent: should that be killed, they stop, too.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import trio

from delivery.cli.errors import FAILED
from delivery.cli.settings import as_options
from delivery.config import HostConfig
from delivery.errors import ConfigError

if TYPE_CHECKING:
    from delivery.cli.logs import Level

log = logging.getLogger(__name__)


def configs(config: HostConfig, count: int) -> list[HostConfig]:
    """The settings of each host: ports that are given are the first of consecutive ones. Raises ConfigError."""
    import msgspec

    found = [
        msgspec.structs.replace(
            config,
            port=config.port and config.port + number,
            http_port=config.http_port and config.http_port + number,
        )
        for number in range(count)
    ]
    ports = [port for one in found for port in (one.port, one.http_port) if port]
    if len(set(ports)) < len(ports):
        raise ConfigError(f"--port and --http-port are too near one another for {count} processes")
    return [one.check() for one in found]


def command(config: HostConfig, level: Level, *, as_json: bool) -> list[str]:
    """The command line of one child."""
    return [
        sys.executable, "-m", "delivery.cli", "serve", "--until-eof", "--log-level", level,
        *(["--log-json"] if as_json else []), *as_options(config),
    ]  # fmt: skip


class Crew:
    """The children. `run` owns them."""

    def __init__(self, commands: list[list[str]]) -> None:
        self._commands = commands
        self._processes: list[trio.Process] = []
        self.status = 0
        """What the command ends with."""

    async def run(self, stop: trio.Event) -> None:
        """Start all, pass the stop on, and return when all have ended."""
        try:
            async with trio.open_nursery() as nursery:
                for number, one in enumerate(self._commands):
                    process = await trio.lowlevel.open_process(
                        one, stdin=subprocess.PIPE, start_new_session=True
                    )  # fmt: skip
                    self._processes.append(process)
                    nursery.start_soon(self._wait_for, number, process, stop)
                nursery.start_soon(self._pass_on, stop)
        finally:
            for process in self._processes:
                if process.returncode is None:
                    process.kill()

    async def _wait_for(self, number: int, process: trio.Process, stop: trio.Event) -> None:
        status = await process.wait()
        if status and not stop.is_set():
            self.status = FAILED
            if status > 0:
                log.error("host process %d ended with status %d; all others stop", number, status)
                stop.set()
            else:
                name = signal.Signals(-status).name
                log.error("host process %d was ended by %s and is not replaced; the others go on", number, name)
        if all(one.returncode is not None for one in self._processes):
            stop.set()

    async def _pass_on(self, stop: trio.Event) -> None:
        await stop.wait()
        for process in self._processes:
            if process.returncode is None:
                process.terminate()
