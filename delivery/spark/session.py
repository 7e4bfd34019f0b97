"""A Spark session on this machine that can read Hoot: the right Java, the right Python, nothing on the network.

Spark takes much of its set-up from environment variables of the process that starts it, which is why making a session
changes this process's environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

import delivery
from delivery.embedded.folder import write_atomically
from delivery.embedded.java import spark_java_home
from delivery.errors import DataFolderError
from delivery.spark.pythons import quick_python

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The columns' times are UTC; the machine's zone must not shift what is printed.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark's own choice is a type of Parquet's that other programs have given up.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Line numbers of the caller in error messages; they cost a call into Java for every column expression.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

_LOCAL = {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    # Rows come from the Python workers over sockets without a network: a quarter less of a read's processor time. On
    # clusters the folders of executors may have paths that are too long for such sockets.
    "spark.python.unix.domain.socket.enabled": "true",
}  # fmt: skip

# Spark reads its log's settings before its own: only a file given to the JVM quiets its first lines, too.
_LOG_SETTINGS = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def local_session(name: str, work: Path, *, cores: int = 2, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session with a driver in this process's child JVM and `cores` Python workers; the caller stops it.

    `work` is a folder for what Spark writes; it is made when it is not there. `settings` go before the defaults here.
    The data source `hoot` is registered by Spark itself (see pyspark_hoot.py). Raises EmbeddedError when there is no
    Java that Spark can use, and DataFolderError when `work` cannot be written.
    """
    return session_at(f"local[{cores}]", name, work, cores=cores, settings=settings)


def session_at(
    master: str, name: str, work: Path, *, cores: int, settings: Mapping[str, str] | None = None, level: str = "error"
) -> SparkSession:
    """As `local_session`, for any master; `level` is that of Spark's log.

    A cluster's workers must reach this machine, and find Hoot in this process's Python, or the one that PYSPARK_PYTHON
    names, under the same path.
    """
    local = master.startswith("local")
    log_settings = _written(work, level)
    _set_environment(work, local=local)
    chosen = {
        **_SETTINGS,
        **(_LOCAL if local else {}),
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={log_settings}"',
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.shuffle.partitions": str(cores),
        **(settings or {}),
    }
    return SparkSession.builder.master(master).appName(name).config(map=dict(chosen)).getOrCreate()


def _written(work: Path, level: str) -> Path:
    log_settings = work.absolute() / "log4j2.properties"
    try:
        log_settings.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(log_settings, _LOG_SETTINGS.format(level=level))
    except OSError as error:
        raise DataFolderError(f"cannot write {log_settings}: {error.strerror or error}") from error
    return log_settings


def _set_environment(work: Path, *, local: bool) -> None:
    os.environ["JAVA_HOME"] = str(spark_java_home(work))
    python = quick_python(work) if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
    # Executors run the one for functions and the other for data sources.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Workers are Python processes of their own: from a checkout they find Hoot only by the path.
    ours = str(Path(delivery.__path__[0]).resolve().parent)
    paths = [ours, *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != ours)]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
