"""The options of `hoot bench`: each has a type and its words once, and cases say which of them they use.

Light on imports, as the command line is made of it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NamedTuple

import typer


class Durability(StrEnum):
    """See model.Durability."""

    fsync = "fsync"
    os = "os"
    memory = "memory"


class OnDisk(StrEnum):
    """Those of them that write to a disk."""

    fsync = "fsync"
    os = "os"


class By(StrEnum):
    """See putting."""

    put = "put"
    put_many = "put_many"
    awaited = "awaited"
    tasks = "tasks"


class Store(StrEnum):
    """Where an engine keeps the messages."""

    log = "log"
    hbase = "hbase"


class Layout(StrEnum):
    """See model.Layout."""

    rows = "rows"
    batches = "batches"


class Option(NamedTuple):
    """One option: the type of its value, and typer's description of it."""

    kind: Any
    info: Any


Options = dict[str, Option]
"""By the names of the fields of a Plan or a Setup."""


def _count(default: int, most: int, text: str) -> Option:
    return Option(int, typer.Option(default, min=1, max=most, help=text))


def rate(default: float) -> Option:
    """How fast a case publishes that is about times."""
    return Option(float, typer.Option(default, min=1, help="Messages published per second."))


def partitions(default: int) -> Option:
    """How many the queue has."""
    text = "Of the queue, dealt out to the hosts."
    return _count(default, 32767, text)


def subscriptions(default: int, most: int) -> Option:
    """How many there are."""
    return _count(default, most, "How many subscriptions.")


def connections(default: int) -> Option:
    """How many there are to a host's HTTP port."""
    return _count(default, 10_000, "How many connections over HTTP.")


RUNS: Final[Options] = {
    "runs": _count(1, 100, "Repeat, and print the medians at the end."),
    "json": Option(bool, typer.Option(False, "--json", help="One JSON line per result.")),
}
"""What every case has."""


def size(default: int) -> Option:
    """Of a message."""
    return Option(int, typer.Option(default, min=8, max=1 << 20, help="Bytes in each body."))


SIZE: Final[Options] = {"size": size(100)}
MESSAGES: Final[Options] = {
    "messages": Option(
        int | None, typer.Option(None, min=1, max=1 << 30, help="How many.", show_default="as many as fit the case")
    )
}

DURABILITY: Final[Options] = {
    "durability": Option(Durability, typer.Option(Durability.fsync.value, help="Of the queue."))
}
ON_DISK: Final[Options] = {
    "durability": Option(OnDisk, typer.Option(OnDisk.fsync.value, help="Of the appends."))
}  # fmt: skip

ENGINE: Final[Options] = {
    "processes": Option(
        int | None,
        typer.Option(
            None, min=1, max=64, metavar="N", show_default="1", help="Hosts, each a process, of its own engine."
        ),
    ),
}
"""Of every case that has an engine."""

ZOOKEEPER: Final[Options] = {
    "zookeeper": Option(str | None, typer.Option(None, help="A running engine; its own embedded one without."))
}

STORE: Final[Options] = {
    "store": Option(
        Store,
        typer.Option(Store.log.value, help="Of its own engine; hbase: beside happybase by itself in the same table."),
    ),
    "hbase_thrift": Option(
        str, typer.Option("127.0.0.1:9090", metavar="HOSTS", help="HBase's Thrift gateways: HOST:PORT,…")
    ),
    "layout": Option(Layout, typer.Option(Layout.rows.value, help="Of the messages in HBase.")),
}

FLOOR: Final[Options] = {
    "with_floor": Option(bool, typer.Option(False, help="Measure `floor` beside each run and print the ratio."))
}
BY: Final[Options] = {
    "by": Option(
        By,
        typer.Option(
            By.put.value,
            help="put_many takes lists of 1,000; awaited and tasks wait for each message, in threads or trio's tasks.",
        ),
    ),
    "callers": _count(1, 1000, "How many put at the same time."),
}
BATCH: Final[Options] = {
    "batch": Option(
        int | None,
        typer.Option(None, min=1, max=16384, help="Messages in a batch at most.", show_default="the publisher's own"),
    )
}
SPREAD: Final[Options] = {
    "batch": _count(1000, 16384, "Messages in a batch at most."),
    "keyed": Option(bool, typer.Option(False, help="Messages have keys, ten for each partition, one after the other.")),
}
BATCHES: Final[Options] = {"batches": Option(bool, typer.Option(False, help="Receive with a batch listener."))}

FILTER: Final[Options] = {
    "selectivity": Option(float, typer.Option(0.01, min=0, max=1, help="Share of the topic `wanted`.")),
    "expression": Option(
        str | None,
        typer.Option(
            None, "--filter", metavar="EXPRESSION", show_default="topic = 'wanted'",
            help="On topic and body.n, which is 0 to 999 in turn.",
        ),
    ),
    "apart": Option(bool, typer.Option(False, help="Each topic in batches of its own.")),
}  # fmt: skip

TOPICS: Final[Options] = {"topics": _count(100, 10_000, "How many, each with the same share of the messages.")}
MEMBERS: Final[Options] = {"members": _count(4, 64, "How many, before one more comes and goes.")}
STORM: Final[Options] = {
    "failing": Option(
        float, typer.Option(0.001, min=0, max=1, help="Share of the messages that fail when they come first.")
    ),
    "pause": Option(float, typer.Option(0.1, min=0.001, max=60, help="Seconds before one of them comes again.")),
}
SLOW: Final[Options] = {
    "slow": Option(float, typer.Option(0.1, min=0, max=60, help="Seconds that the slow one takes for a message."))
}
PER_REQUEST: Final[Options] = {"per_request": _count(1, 100_000, "Messages in a request.")}
QUIET: Final[Options] = {
    "quiet": Option(float, typer.Option(30.0, min=1, max=3600, help="Seconds over which processor time is counted."))
}
