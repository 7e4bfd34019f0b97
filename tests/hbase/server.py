"""A real HBase on this machine: standalone for most tests, or a master and two region servers to be killed.

    FOLDER/hbase-site.xml, log4j.properties     written at every start
           data, zookeeper                      HBase's own; emptied by every start
           master.log, thrift-0.log, …          what each program said; kept, one run after another

Every program runs under a guard, so all of them end with this process however it ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import happybase
from thriftpy2.thrift import TException

from delivery.embedded import EmbeddedZooKeeper, Java, find_java
from delivery.embedded.ports import free_port
from tests.hbase import settings
from tests.hbase.jars import hbase_jars
from tests.hbase.processes import Guarded

JAVA_MAX = 23
"""Hadoop 3.3 asks Java who its user is in a way that Java 24 took away."""
START_SECONDS = 120.0
_LOOK_SECONDS = 0.2
_PROBE_MS = 20_000


class HBaseError(Exception):
    """HBase does not start; the message says why."""


class HBase:
    """An HBase with its Thrift gateways (framed, binary), on loopback. Blocking; a context manager."""

    def __init__(
        self, folder: Path, *, region_servers: int = 0, second: bool = False, others: Mapping[str, str] | None = None
    ) -> None:
        """Standalone with one gateway, or `region_servers` on a ZooKeeper of their own with as many gateways.

        `second` adds a gateway of the second Thrift interface; `others` are settings that are not as they should be.
        """
        self.folder = folder.absolute()
        self.processes: dict[str, Guarded] = {}
        """By name: `master`, `region-0` …, `thrift-0` …; each may be killed and started again."""
        self.gateways: list[tuple[str, int]] = []
        """Where the Thrift gateways listen."""
        self.zookeeper: EmbeddedZooKeeper | None = None
        """That of an HBase whose servers may be killed; the other one has its own inside."""
        self.second: tuple[str, int] | None = None
        """Where the gateway of the second interface listens, if there is one."""
        self.web: tuple[str, int] | None = None
        """Where the master has its web pages; only with `others`."""
        self._region_servers, self._second, self._others = region_servers, second, others
        self._ending = ExitStack()

    @property
    def thrift(self) -> str:
        """The gateways as an option of `hoot serve` takes them."""
        return ",".join(f"{host}:{port}" for host, port in self.gateways)

    def start(self) -> None:
        """Start it with nothing stored, and return when a row can be put and read. Raises HBaseError, JarsError."""
        java, jars = find_java(), hbase_jars()
        if java.version > JAVA_MAX:
            raise HBaseError(
                f"HBase needs a Java 11 to {JAVA_MAX}, and {java.executable} is {java.version}: set JAVA_HOME"
            )
        with ExitStack() as undo:
            undo.callback(self.stop)
            lock = self._prepare()
            port = self._zookeeper()
            own = dict(self._others or {})
            if self._others is not None:
                self.web = (settings.LOOPBACK, free_port(None))
                own["hbase.master.info.port"] = str(self.web[1])
            settings.write_files(self.folder, port, own, distributed=bool(self._region_servers))
            self._add(lock, java, jars)
            for process in self.processes.values():
                process.start()
            self.wait_ready()
            undo.pop_all()

    def stop(self) -> None:
        """End everything; fine when nothing runs. The data does not matter to anybody afterwards."""
        for process in self.processes.values():
            process.kill()
        self._ending.close()

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Return when every gateway puts and gets. Raises HBaseError when that takes longer or a program ended."""
        deadline = time.monotonic() + seconds
        checks = [(problem, address) for address in self.gateways]
        checks += [(_deaf, self.second)] if self.second else []
        for check, address in checks:
            while (wrong := check(*address)) is not None:
                self._look_for_ended()
                if time.monotonic() > deadline:
                    said = self.processes["master"].said()
                    raise HBaseError(f"gateway {address[1]} was not ready in {seconds:g} s: {wrong}\n{said}")
                threading.Event().wait(_LOOK_SECONDS)

    def scatter(self, table: str, row: bytes) -> None:
        """Split a table at a row, then move each of its regions to another server. Raises HBaseError."""
        self.operate("scatter", table, row.hex())

    def operate(self, *arguments: str) -> None:
        """What an operator does in the shell of HBase: see Operator.java. Raises HBaseError."""
        program = str(Path(__file__).with_name("Operator.java"))
        command = settings.command(find_java(), hbase_jars(), 128, program, then=arguments)
        ended = subprocess.run(command, cwd=self.folder, check=False, capture_output=True, timeout=START_SECONDS)
        if ended.returncode:
            raise HBaseError(f"{' '.join(arguments)} could not be done: {ended.stderr.decode()[-2000:]}")

    def _look_for_ended(self) -> None:
        for process in self.processes.values():
            if not process.alive:
                raise HBaseError(f"{process.name} ended ({process.log}):\n{process.said()}")

    def _prepare(self) -> int:
        """Empty the folder and hold it; the open lock file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._ending.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HBaseError(f"an HBase runs in {self.folder} already: make hbase-stop") from None
        for name in ("data", "zookeeper", "tmp"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        return lock

    def _zookeeper(self) -> int:
        """The port of ZooKeeper: of one of our own where servers may be killed, else the master runs it."""
        if not self._region_servers:
            return free_port(None)
        own = self.zookeeper = self._ending.enter_context(EmbeddedZooKeeper(self.folder / "zookeeper"))
        return int(own.address.rpartition(":")[2])

    def _add(self, lock: int, java: Java, jars: list[Path]) -> None:
        """The programs of this HBase, not started yet."""

        def add(name: str, main: str, *then: str, heap_mib: int = 768, **ports: int) -> None:
            command = settings.command(java, jars, heap_mib, main, then=then, **ports)
            self.processes[name] = Guarded(name, command, self.folder, lock)

        add(
            "master",
            settings.MASTER,
            "start",
            hbase_master_port=free_port(None),
            hbase_regionserver_port=free_port(None),
        )
        for number in range(self._region_servers):
            add(f"region-{number}", settings.REGION_SERVER, "start", hbase_regionserver_port=free_port(None))
        self.gateways = [(settings.LOOPBACK, free_port(None)) for _ in range(max(1, self._region_servers))]
        for number, (_, port) in enumerate(self.gateways):
            then = ("start", "-threadpool", "-f", "-p", str(port), "--infoport", "-1")
            add(f"thrift-{number}", settings.THRIFT, *then, heap_mib=256)
        if self._second:
            self.second = (settings.LOOPBACK, free_port(None))
            plain = ("start", "-threadpool", "-p", str(self.second[1]), "--infoport", "-1")
            add("thrift2", settings.THRIFT2, *plain, heap_mib=256)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def problem(host: str, port: int) -> str | None:
    """What keeps this gateway from putting and getting, None for nothing."""
    try:
        connection = happybase.Connection(host, port, timeout=_PROBE_MS, transport="framed", protocol="binary")
        try:
            if b"ready" not in connection.tables():
                connection.create_table("ready", {"f": {}})
            table = connection.table("ready")
            table.put(b"row", {b"f:": b"1"})
            return None if table.row(b"row") == {b"f:": b"1"} else "what was put is not there"
        finally:
            connection.close()
    except (OSError, TException) as error:
        return repr(error)[:300]


def _deaf(host: str, port: int) -> str | None:
    """What keeps this gateway from being connected to, None for nothing."""
    try:
        socket.create_connection((host, port), _PROBE_MS / 1000).close()
    except OSError as error:
        return str(error)
    return None
