"""The options of a read, with the names and rules of Spark's Kafka source where the meaning is the same. Plain.

docs/spark.md has the table of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from delivery.errors import InvalidRequest
from delivery.filters import check_pattern, filter_of
from delivery.ids import ID_MAX
from delivery.metastore.request import check_own_name
from delivery.model import Isolation, check_isolation, check_name, near_names
from delivery.spark.columns import COLUMNS

EARLIEST: Final = -2
LATEST: Final = -1

_SOURCES: Final = ("queue", "subscribe", "subscribepattern", "assign")
_STARTS: Final = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets")
_ENDS: Final = ("endingtimestamp", "endingoffsetsbytimestamp", "endingoffsets")
_NAMES: Final = (
    "queue", "subscribe", "subscribePattern", "assign", "zookeeper", "topics", "filter", "startingTimestamp",
    "startingOffsetsByTimestamp", "startingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets",
    "failOnDataLoss", "minPartitions", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "includeHeaders", "columns",
    "pushFilters", "isolation", "subscription", "force", "hbase", "hbasePrefix",
)  # fmt: skip
_KNOWN: Final = {name.lower(): name for name in _NAMES}
_SPARKS_OWN: Final = ("path",)
"""Which `load()` may add."""
_OF_BATCHES: Final = (*_ENDS, "pushfilters")
_OF_STREAMS: Final = ("maxoffsetspertrigger", "maxbytespertrigger", "subscription", "force")

PerPartition = dict[str, dict[int, int]]


class Edge(msgspec.Struct, frozen=True):
    """Where a read begins or ends."""

    kind: Literal["earliest", "latest", "time", "times", "ids"]
    time_ms: int = 0
    each: PerPartition = {}
    """Ids, EARLIEST or LATEST, or times in milliseconds."""


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a read, checked."""

    zookeeper: str
    names: tuple[str, ...] = ()
    pattern: str = ""
    assigned: dict[str, tuple[int, ...]] = {}
    topics: tuple[str, ...] = ()
    filter: str = ""
    start: Edge = Edge("earliest")
    end: Edge = Edge("latest")
    fail_on_loss: bool = True
    tasks_min: int = 0
    messages_max: int = 0
    bytes_max: int = 0
    columns: tuple[str, ...] = COLUMNS
    push: bool = False
    isolation: Isolation | None = None
    """None: as its subscription has it, else uncommitted."""
    subscription: str = ""
    """Whose positions a stream's are; "" for its checkpoint alone."""
    force: bool = False
    """Take it over from a reader that is alive."""
    hbase: str = ""
    """Gateways of the HBase whose tables executors read themselves; "" for none."""
    hbase_prefix: str = "hoot"


def read_options(given: Mapping[str, str], *, stream: bool = False) -> ReadOptions:
    """Raises InvalidRequest naming what is wrong, with the near name of an unknown option."""
    options = known_options("source", given, _NAMES, _SPARKS_OWN)
    for name in _OF_BATCHES if stream else _OF_STREAMS:
        if name in options:
            why = ": a stream has no end" if name in _ENDS else ""
            raise InvalidRequest(f"{_KNOWN[name]} is for {'batches' if stream else 'streams'}{why}")
    topics = tuple(check_pattern(topic) for topic in _listed(options, "topics"))
    rule = options.get("filter", "")
    if rule:
        filter_of(topics, rule)
    names, pattern, assigned = _source(options)
    return ReadOptions(
        zookeeper=zookeeper_of(options),
        names=names, pattern=pattern, assigned=assigned, topics=topics, filter=rule,
        start=_edge(options, _STARTS, "latest" if stream else "earliest", forbidden=None if stream else "latest"),
        end=_edge(options, _ENDS, "latest", forbidden="earliest"),
        fail_on_loss=_flag(options, "failondataloss", default=True),
        tasks_min=_number(options, "minpartitions"), messages_max=_number(options, "maxoffsetspertrigger"),
        bytes_max=_number(options, "maxbytespertrigger"), columns=_columns(options),
        push=_flag(options, "pushfilters", default=False),
        isolation=check_isolation(options["isolation"].lower()) if "isolation" in options else None,
        subscription=_subscription(options, names), force=_flag(options, "force", default=False),
        hbase=_hbase(options), hbase_prefix=options.get("hbaseprefix", "hoot"),
    )  # fmt: skip


def known_options(
    what: str, given: Mapping[str, str], names: Sequence[str], sparks_own: Sequence[str]
) -> dict[str, str]:
    """The options by their names in lower case. Raises InvalidRequest for one that is not known to the `what`."""
    known = {name.lower(): name for name in names}
    options = {}
    for name, value in given.items():
        low = name.lower()
        if low in known:
            options[low] = value
        elif low not in sparks_own:
            near = near_names(low, list(known))[:1]
            hint = f"did you mean {known[near[0]]!r}?" if near else f"it has {', '.join(names)}"
            raise InvalidRequest(f"the hoot {what} has no option {name!r}; {hint}")
    return options


def zookeeper_of(options: Mapping[str, str]) -> str:
    """Where ZooKeeper is."""
    return options.get("zookeeper") or os.environ.get("HOOT_ZOOKEEPER") or "127.0.0.1:2181"


def _source(options: Mapping[str, str]) -> tuple[tuple[str, ...], str, dict[str, tuple[int, ...]]]:
    found = [name for name in _SOURCES if name in options]
    if len(found) != 1:
        those = ", ".join(_KNOWN[name] for name in _SOURCES)
        raise InvalidRequest(f'the hoot source needs the name of a queue, .option("queue", …): exactly one of {those}')
    value = options[found[0]]
    if found[0] == "subscribepattern":
        try:
            re.compile(value)
        except re.error as error:
            raise InvalidRequest(f"subscribePattern {value!r} is no regular expression: {error}") from None
        return (), value, {}
    if found[0] == "assign":
        assigned = _decoded("assign", value, dict[str, list[int]], '{"orders": [0, 2]}')
        checked = {check_name("queue", name): tuple(sorted(set(parts))) for name, parts in assigned.items()}
        if not checked or not all(parts and parts[0] >= 0 for parts in checked.values()):
            raise InvalidRequest('assign names no partition; it is like {"orders": [0, 2]}')
        return tuple(checked), "", checked
    names = [value] if found[0] == "queue" else _listed(options, found[0])
    if not names:
        raise InvalidRequest("subscribe names no queue")
    return tuple(dict.fromkeys(check_name("queue", name) for name in names)), "", {}


def _subscription(options: Mapping[str, str], names: Sequence[str]) -> str:
    if "subscription" not in options:
        if "force" in options:
            raise InvalidRequest("force takes a subscription over: it goes with the option subscription")
        return ""
    if len(names) != 1:
        raise InvalidRequest("a subscription is one queue's: name exactly that queue")
    return check_own_name(options["subscription"])


def _hbase(options: Mapping[str, str]) -> str:
    if "hbase" not in options:
        if "hbaseprefix" in options:
            raise InvalidRequest("hbasePrefix goes with the option hbase")
        return ""
    if options.get("isolation", "").lower() == "committed":
        raise InvalidRequest("isolation committed is the region hosts' to say: leave hbase out")
    if not options["hbase"].strip():
        raise InvalidRequest("hbase names no Thrift gateway; it is like gate1:9090,gate2:9090")
    return options["hbase"]


def _edge(
    options: Mapping[str, str], names: tuple[str, str, str], default: Literal["earliest", "latest"], *,
    forbidden: str | None,
) -> Edge:  # fmt: skip
    by_time, by_times, by_offsets = names
    if by_time in options:
        return Edge("time", time_ms=_number(options, by_time))
    if by_times in options:
        return Edge("times", each=_per_partition(_KNOWN[by_times], options[by_times], low=0))
    text = options.get(by_offsets, default)
    if text in {"earliest", "latest"}:
        if text == forbidden:
            raise InvalidRequest(f"{_KNOWN[by_offsets]} cannot be {text!r}: the read would be empty")
        return Edge("earliest") if text == "earliest" else Edge("latest")
    each = _per_partition(_KNOWN[by_offsets], text, low=EARLIEST)
    never = {"earliest": EARLIEST, "latest": LATEST}.get(forbidden or "")
    if any(number == never for ids in each.values() for number in ids.values()):
        raise InvalidRequest(f"{_KNOWN[by_offsets]} cannot be {never} ({forbidden}): the read would be empty")
    return Edge("ids", each=each)


def _per_partition(name: str, text: str, *, low: int) -> PerPartition:
    found: PerPartition = _decoded(name, text, PerPartition, '{"orders": {"0": 57}}')
    for queue, numbers in found.items():
        check_name("queue", queue)
        for partition, number in numbers.items():
            if partition < 0 or not low <= number <= ID_MAX:
                raise InvalidRequest(f"{name}: {number} is nothing that partition {partition} of {queue} can have")
    return found


def _decoded(name: str, text: str, kind: Any, like: str) -> Any:
    try:
        return msgspec.json.decode(text.encode(), type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidRequest(f"{name} must be JSON like {like}: {error}") from None


def _listed(options: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in options.get(name, "").split(",") if part.strip()]


def _number(options: Mapping[str, str], name: str) -> int:
    text = options.get(name)
    if text is None:
        return 0
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= ID_MAX:
        raise InvalidRequest(f"{_KNOWN[name]} must be a whole number above 0, not {text[:40]!r}")
    return int(text)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise InvalidRequest(f"{_KNOWN[name]} must be true or false, not {text[:40]!r}")
    return text == "true"


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    headers = _flag(options, "includeheaders", default=True)
    every = tuple(name for name in COLUMNS if headers or name != "headers")
    if "columns" not in options:
        return every
    chosen = _listed(options, "columns")
    for name in chosen:
        if name not in every:
            near = "".join(f"; did you mean {one!r}?" for one in near_names(name, every)[:1])
            raise InvalidRequest(f"there is no column {name!r} in columns{near}")
    if not chosen:
        raise InvalidRequest("columns names no column")
    return tuple(name for name in every if name in chosen)


def as_offsets(positions: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    """A stream's offset, of JSON alone: per queue and partition the lowest id that is not read yet."""
    found: dict[str, dict[str, int]] = {}
    for (queue, partition), after in sorted(positions.items()):
        found.setdefault(queue, {})[str(partition)] = after + 1
    return found


def from_offsets(offsets: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """The opposite, without what is told beside positions. Raises InvalidRequest for what another source wrote."""
    positions = {name: each for name, each in offsets.items() if not name.startswith("@")}
    try:
        plain = msgspec.convert(positions, dict[str, dict[int, int]], strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the stream's checkpoint was not written by this source: {error}") from None
    return {(queue, number): first - 1 for queue, each in plain.items() for number, first in each.items()}
