"""The cases of `hoot bench`, each declared once: its name, what it measures, where it is, and the options it has.

The command, its help and what is passed to a case are made of this. A case `a-b` is the function `a_b` of its module;
it gets a Setup, or a Plan where it needs no engine, and gives a Result. The modules are imported when a case runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from delivery.bench.options import (
    BATCH,
    BATCHES,
    BY,
    DURABILITY,
    ENGINE,
    FILTER,
    FLOOR,
    MEMBERS,
    MESSAGES,
    ON_DISK,
    PER_REQUEST,
    QUIET,
    RUNS,
    SIZE,
    SLOW,
    SPREAD,
    STORE,
    STORM,
    TOPICS,
    ZOOKEEPER,
    Options,
    connections,
    partitions,
    rate,
    size,
    subscriptions,
)

Given = Mapping[str, Any]
"""The values of a case's options."""


class Case(NamedTuple):
    """What the command knows of a case before it runs."""

    name: str
    about: str
    module: str
    """In this package."""
    options: Options
    messages: Callable[[Given], int]
    """How many, when nobody says it."""

    @property
    def needs_engine(self) -> bool:
        """Whether it gets a Setup."""
        return "processes" in self.options


def _by_size(given: Given) -> int:
    if given.get("store") == "hbase":
        return max(5_000, min(100_000, 20_000_000 // int(given["size"])))
    return max(20_000, min(2_000_000, 400_000_000 // int(given["size"])))


def _by_gigabyte(given: Given) -> int:
    return (1 << 30) // int(given["size"])


def _by_callers(given: Given) -> int:
    """What is awaited takes its time; by many callers as long as by one."""
    if given["by"] in ("put", "put_many"):
        return _by_size(given)
    return 20_000 * min(10, int(given["callers"]))


def _by_partitions(given: Given) -> int:
    """A few batches for each partition."""
    return max(_by_size(given), min(10_000_000, 4 * int(given["batch"]) * int(given["partitions"])))


def _by_deliveries(given: Given) -> int:
    """As many deliveries to many subscriptions as to a few."""
    return max(20_000, _by_size(given) * 8 // max(8, int(given["subscriptions"])))


def _by_requests(given: Given) -> int:
    return 20_000 * min(50, int(given["per_request"]))


def _ten_seconds(given: Given) -> int:
    return int(given["rate"] * 10)


_LOAD = SIZE | MESSAGES
_OWN = DURABILITY | ENGINE | RUNS
_COMMON = _LOAD | ZOOKEEPER | _OWN
_HTTP = _LOAD | ZOOKEEPER | ENGINE | RUNS
_ONE = {"partitions": partitions(1)}

CASES: Final = (
    Case(
        "publish", "The publisher alone: a put per message, or --by another way, until every one is acknowledged.",
        "putting", _COMMON | FLOOR | BY | BATCH | _ONE | STORE, _by_callers,
    ),
    Case(
        "live", "Publisher and subscriber at once, from the first put to the last callback.",
        "cases", _COMMON | FLOOR | BATCHES | BATCH | _ONE | STORE, _by_size,
    ),
    Case(
        "drain", "A backlog that is there already, from attaching to the last callback.",
        "cases", _COMMON | FLOOR | BATCHES | BATCH | _ONE | STORE, _by_size,
    ),
    Case(
        "spread",
        "One subscription to many partitions, from the first put to the last callback, beside one to a single one.",
        "spread", _COMMON | BATCHES | SPREAD | {"partitions": partitions(1000)}, _by_partitions,
    ),
    Case(
        "latency", "From the moment a message was due at a steady rate to its callback; late sends count against it.",
        "cases", _COMMON | _ONE | {"rate": rate(1000)}, _ten_seconds,
    ),
    Case(
        "fanout", "Every message to each of several subscriptions, a process each; the rate counts deliveries.",
        "cases", _COMMON | FLOOR | BATCHES | _ONE | {"subscriptions": subscriptions(8, 100)}, _by_deliveries,
    ),
    Case(
        "filter", "A filter that takes a part of a backlog; the rate is that of what the host scans.",
        "cases", _COMMON | FLOOR | BATCHES | _ONE | FILTER, _by_size,
    ),
    Case(
        "scan", "A scanner of one topic of many that are mixed; the rate is that of what there is of all of them.",
        "cases", _COMMON | _ONE | TOPICS | STORE, _by_size,
    ),
    Case(
        "groups",
        "A shared subscription: the rate of all members together; then, at a steady rate, how long a partition is"
        " silent when one more member comes, and when it goes.",
        "groups", _COMMON | MEMBERS | {"partitions": partitions(8), "rate": rate(2000)}, _by_size,
    ),
    Case(
        "retry-storm",
        "A share of the messages fails when it comes first, with the order of keys; the rate is that of all others.",
        "storm", _COMMON | _ONE | STORM, _by_size,
    ),
    Case(
        "slow-neighbour",
        "The latency of a subscription before and after a slow one is attached to the same queue, and the host's"
        " memory.",
        "neighbour", _COMMON | _ONE | SLOW | {"rate": rate(1000)}, _ten_seconds,
    ),
    Case(
        "idle", "What attached subscriptions to which nothing comes cost a host: memory, and processor time.",
        "idle", SIZE | _OWN | QUIET | {"subscriptions": subscriptions(10_000, 100_000)}, lambda _: 1,
    ),
    Case(
        "http-publish", "Requests to a topic over HTTP, on each connection as soon as the one before is answered.",
        "http", _HTTP | PER_REQUEST | {"connections": connections(32)}, _by_requests,
    ),
    Case(
        "http-poll",
        "A backlog of a topic in one poll, which is the rate; then, at a steady rate, from the moment a message was due"
        " to the poll that waited for it.",
        "http", _HTTP | {"rate": rate(500)}, _by_size,
    ),
    Case(
        "http-wait", "What polls that wait cost a host: memory.",
        "http", SIZE | ENGINE | RUNS | {"connections": connections(2000)}, lambda _: 1,
    ),
    Case(
        "floor", "The limit: the same batches decoded and the callback called in one process, no network, no disk.",
        "cases", _LOAD | RUNS, _by_size,
    ),
    Case(
        "restart",
        "From the start of a host that was killed to the first message it stores, with much log on the disk and none.",
        "restart", {"size": size(1000)} | MESSAGES | RUNS, _by_gigabyte,
    ),
    Case(
        "fencing", "What confirming the epoch adds to an append to the log, in microseconds; batches of one message.",
        "fencing", _LOAD | RUNS | ON_DISK, lambda _: 2_000,
    ),
)  # fmt: skip
