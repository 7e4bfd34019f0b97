"""How the HBase of the tests is set up: its site file, its logging, and the command lines of its programs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from delivery.embedded import Java

MASTER = "org.apache.hadoop.hbase.master.HMaster"
REGION_SERVER = "org.apache.hadoop.hbase.regionserver.HRegionServer"
THRIFT = "org.apache.hadoop.hbase.thrift.ThriftServer"
THRIFT2 = "org.apache.hadoop.hbase.thrift2.ThriftServer"
LOOPBACK = "127.0.0.1"
FRAME_MIB = 32
"""The largest request that a gateway takes; HBase's own 2 MiB would not hold a message of Hoot's largest size."""

_COMMON = {
    "hbase.master.ipc.address": LOOPBACK,
    "hbase.regionserver.ipc.address": LOOPBACK,
    "hbase.master.hostname": LOOPBACK,
    "hbase.regionserver.hostname": LOOPBACK,
    "hbase.zookeeper.quorum": LOOPBACK,
    "hbase.master.info.port": "-1",
    "hbase.master.info.bindAddress": LOOPBACK,
    "hbase.regionserver.info.port": "-1",
    # The local file system: what is written survives the end of a process, which is all that these tests cut off.
    "hbase.unsafe.stream.capability.enforce": "false",
    "hbase.wal.provider": "filesystem",
    # The gateways.
    "hbase.regionserver.thrift.ipaddress": LOOPBACK,
    "hbase.regionserver.thrift.framed.max_frame_size_in_mb": str(FRAME_MIB),
    # One small machine, and many starts: shorter waits than HBase's own.
    "hbase.regionserver.msginterval": "500",
    "hbase.master.wait.on.regionservers.mintostart": "1",
    "hbase.master.wait.on.regionservers.maxtostart": "1",
    "hbase.master.wait.on.regionservers.timeout": "1500",
    "hbase.master.wait.on.regionservers.interval": "200",
    "hbase.regionserver.handler.count": "10",
    "hbase.client.pause": "50",
    "hbase.client.retries.number": "12",
    "hbase.procedure.remote.dispatcher.delay.msec": "10",
    # Hundreds of small tables: each store would take 2 MiB at its first row.
    "hbase.hregion.memstore.mslab.enabled": "false",
}

_LOGGING = """\
log4j.rootLogger=WARN, out
log4j.logger.org.apache.hadoop.hbase=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %-5p %c{2}: %.400m%n
"""

# The second compiler and the parallel collector would take a small machine's cores for minutes. What is opened are the
# paths that HBase takes past the language; without them it is slower and complains.
_JAVA = [
    "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true", "-Dlog4j.configuration=file:./log4j.properties",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in (
        "java.lang", "java.lang.reflect", "java.nio", "java.util", "java.util.concurrent", "jdk.internal.ref",
        "sun.nio.ch",
    )),
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
]  # fmt: skip


def write_files(folder: Path, zookeeper_port: int, own: Mapping[str, str], *, distributed: bool) -> None:
    """Write the site file, with some settings of one's own, and the logging's into the folder of all programs."""
    settings = _COMMON | {
        "hbase.rootdir": (folder / "data").as_uri(),
        "hbase.tmp.dir": str(folder / "tmp"),
        "hbase.zookeeper.property.clientPort": str(zookeeper_port),
        "hbase.zookeeper.property.dataDir": str(folder / "zookeeper"),
        "hbase.cluster.distributed": str(distributed).lower(),
    }
    if distributed:  # a dead region server is noticed when its session ends
        settings |= {"zookeeper.session.timeout": "6000", "hbase.master.wait.on.regionservers.maxtostart": "2"}
    (folder / "hbase-site.xml").write_text(_site({**settings, **own}))
    (folder / "log4j.properties").write_text(_LOGGING)


def command(
    java: Java, jars: Sequence[Path], heap_mib: int, main: str, *, then: Sequence[str], **ports: int
) -> list[str]:
    """The command line of one of HBase's programs, to be run in the folder of `write_files`.

    `ports` are settings of this program alone, with underscores for points.
    """
    classpath = os.pathsep.join((".", *map(str, jars)))
    own = [f"-D{name.replace('_', '.')}={port}" for name, port in ports.items()]
    return [str(java.executable), f"-Xmx{heap_mib}m", *_JAVA, "-cp", classpath, main, *own, *then]


def _site(settings: Mapping[str, str]) -> str:
    lines = [f"  <property><name>{n}</name><value>{escape(v)}</value></property>" for n, v in settings.items()]
    return "\n".join(('<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>", ""))
