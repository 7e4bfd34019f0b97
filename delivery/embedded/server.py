"""How an embedded ZooKeeper is set up: jars, zoo.cfg and command line."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from delivery.embedded.java import INSTALL_HINT, Java
from delivery.errors import EmbeddedError

LOOPBACK = "127.0.0.1"
SESSION_MS_MIN = 2_000
SESSION_MS_MAX = 60_000

TICK_MS = 500
"""ZooKeeper looks for expired sessions once a tick, so a session ends up to one tick late. With 500 ms a host that died
is noticed at most a quarter later than the shortest session allowed; ZooKeeper's usual 2000 would double that."""

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
"""Runs a single server too, and unlike `ZooKeeperServerMain` it removes old snapshots and logs."""

# What a single server without TLS and admin server loads, of the 280 that PySpark carries. log4j-core is left out on
# purpose: the simple logger of log4j-api writes to standard error, and starts 0.25 s sooner.
_JARS = ("zookeeper-[0-9]*", "zookeeper-jute-*", "slf4j-api-*", "log4j-api-2*", "log4j-slf4j2-impl-*",
         "snappy-java-*", "metrics-core-*")  # fmt: skip

_LOGGER = "-Dorg.apache.logging.log4j.simplelog."

# Options in the environment would be added to the command line; they are meant for the user's own Java programs.
_FOREIGN_OPTIONS = frozenset({"CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"})


def zookeeper_jars() -> list[Path]:
    """The jars, found without importing PySpark. Raises `EmbeddedError` when it is not installed or lacks one."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError(f"the embedded ZooKeeper's jars come with PySpark, which is not installed; {INSTALL_HINT}")
    folder = Path(next(iter(spec.submodule_search_locations))) / "jars"
    jars = []
    for pattern in _JARS:
        found = sorted(folder.glob(f"{pattern}.jar"))
        if not found:
            raise EmbeddedError(f"{folder} has no {pattern}.jar, which the embedded ZooKeeper needs; {INSTALL_HINT}")
        jars.append(found[-1])
    return jars


def config_text(port: int) -> str:
    """zoo.cfg. Paths in it are relative to the data folder, ZooKeeper's working directory, so none needs quoting."""
    return f"""\
# Written anew at every start.
clientPort={port}
clientPortAddress={LOOPBACK}
dataDir=./data
tickTime={TICK_MS}
minSessionTimeout={SESSION_MS_MIN}
maxSessionTimeout={SESSION_MS_MAX}
# All clients come from this machine, so a limit by address would be one for all.
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,conf
# Checkpoints are kept here: a change is acknowledged when it is on disk.
forceSync=yes
# KiB that a log file grows by (ZooKeeper's usual is 64 MiB), and KiB of log after which a snapshot is taken.
preAllocSize=1024
snapSizeLimitInKb=65536
# Remove all but three snapshots and the logs they need, at every start and hourly.
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""


def command(java: Java, jars: list[Path], heap_mib: int, marker: str) -> list[str]:
    """The command line, to be run in the data folder."""
    return [
        str(java.executable),
        f"-Xmx{heap_mib}m",
        "-Xms16m",
        "-XX:+UseSerialGC",  # one collector thread, the smallest footprint
        "-XX:TieredStopAtLevel=1",  # the second compiler would take a core from Hoot while it warms up
        "-XX:-UsePerfData",  # no file in /tmp that every collection writes to
        "-XX:+ExitOnOutOfMemoryError",  # ended is noticed, half alive is not
        "-XX:ErrorFile=./java_error.log",
        "-Djava.net.preferIPv4Stack=true",
        "-Dlog4j2.StatusLogger.level=OFF",
        f"{_LOGGER}level=WARN",
        f"{_LOGGER}org.apache.zookeeper.server.ZooKeeperServer.level=INFO",  # tells of sessions that expire
        f"{_LOGGER}org.apache.zookeeper.server.ServerCnxn.level=OFF",  # complains of a question asked during the start
        f"{_LOGGER}showdatetime=true",
        f"{_LOGGER}dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
        f"{_LOGGER}showShortLogname=true",
        marker,
        "-cp",
        os.pathsep.join(map(str, jars)),
        MAIN_CLASS,
        "./zoo.cfg",
    ]


def environment() -> dict[str, str]:
    """The environment for it: this process's, but for Java options and the locale.

    The locale decides how Java reads and prints paths; any but UTF-8 would garble those beyond ASCII.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _FOREIGN_OPTIONS}
    return {**kept, "LC_ALL": "C.UTF-8"}
