"""What the demo has Spark do, and the process that does it: an errand at a time, over a socket that only both know.

An errand is a line of JSON, and so is each answer: any number that tell how far it is, then one that ends it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from delivery.demo.crew import DemoFailed, log_end
from delivery.embedded.lifeline import lifeline

_SECONDS = 400.0
"""Without an answer: a Spark that begins on a machine that is busy with other things takes minutes."""
_STOP_SECONDS = 20.0
_SHORT_LIVED = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Of a Java that ends long before it has won back what compiling for speed costs."""
T = TypeVar("T")


class Count(msgspec.Struct, frozen=True, tag=True):
    """The flights of a queue per carrier: a dict of Sums. A record that Spark could not read has an empty carrier."""

    queue: str


class Archive(msgspec.Struct, frozen=True, tag=True):
    """`hoot spark archive`: (messages, files, bytes of the files)."""

    queue: str
    folder: str


class Replay(msgspec.Struct, frozen=True, tag=True):
    """`hoot spark replay`: how many messages were stored."""

    queue: str
    target: str
    sql: str


class Audit(msgspec.Struct, frozen=True, tag=True):
    """`hoot spark audit`: by subscription what it counted."""

    queue: str
    folder: str
    records: str


Errand = Count | Archive | Replay | Audit


class Reached(msgspec.Struct, frozen=True, tag=True):
    """How far an errand is."""

    done: int
    total: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """An errand's end."""

    answer: Any


class Failed(msgspec.Struct, frozen=True, tag=True):
    """An errand's end, too."""

    text: str


Reply = Reached | Done | Failed


class SparkSide:
    """The process, as the demo sees it."""

    def __init__(self, asked: socket.socket, replies: IO[bytes], log: Path) -> None:
        self._asked, self._replies, self._log = asked, replies, log

    def ask(self, errand: Errand, kind: type[T], reached: Callable[[int, int], None] = lambda *_: None) -> T:
        """What comes of an errand. Raises DemoFailed with its error, or with the end of the log."""
        try:
            self._asked.sendall(msgspec.json.encode(errand) + b"\n")
            while isinstance(reply := self._reply(), Reached):
                reached(reply.done, reply.total)
        except TimeoutError:
            raise DemoFailed(f"Spark said nothing for {_SECONDS:.0f} s") from None
        except OSError:
            raise DemoFailed(f"Spark failed; its log ends: {log_end(self._log)}") from None
        if isinstance(reply, Failed):
            raise DemoFailed(f"Spark failed: {reply.text}")
        return msgspec.convert(reply.answer, kind)

    def _reply(self) -> Reply:
        line = self._replies.readline()
        if not line:
            raise DemoFailed(f"Spark failed; its log ends: {log_end(self._log)}")
        reply: Reply = msgspec.json.decode(line, type=Reply)
        return reply


@contextmanager
def spark_side(zookeeper: str, folder: Path) -> Iterator[SparkSide]:
    """The process for as long as the context lasts, which starts Spark at once. It writes below the folder."""
    log, (ours, theirs) = folder / "spark.log", socket.socketpair()
    ours.settimeout(_SECONDS)
    arguments = [zookeeper, str(folder / "spark"), str(theirs.fileno())]
    environment = {**os.environ, **_SHORT_LIVED, "TMPDIR": str(folder)}  # PySpark's, which it leaves where it is killed
    with ours, ours.makefile("rb") as replies, log.open("ab") as errors, lifeline() as stdin:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "delivery.demo.spark_side", *arguments], stdin=stdin, stdout=errors,
                stderr=errors, pass_fds=[theirs.fileno()], start_new_session=True, env=environment,
            )  # fmt: skip
        with process:
            try:
                yield SparkSide(ours, replies, log)
                ours.shutdown(socket.SHUT_WR)
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # the JVM, too, which would write where nothing is any more
