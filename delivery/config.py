"""Every setting of a region host, with its default and the reason for it. Sizes are in bytes, times in seconds.

A component gets the whole record and reads its own fields. `check` reports all problems at once.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec

from delivery.batch import BATCH_BYTES_MAX
from delivery.errors import ConfigError
from delivery.model import LAYOUTS
from delivery.networks import Networks, is_loopback, parse_networks

MIB: Final = 1 << 20

_FRAME_OVERHEAD: Final = 64 * 1024
"""What a frame holds beside a batch: method, queue name, lengths."""


def software_version() -> str:
    """The version of this installation; `0` in a source tree that was never installed."""
    try:
        return version("hoot")
    except PackageNotFoundError:
        return "0"


class HostConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator may choose for a region host; call `check` before using it."""

    zookeeper: str = "127.0.0.1:2181"
    """`host:port,host:port/folder`."""
    data: Path = Path("hoot-data")
    """The folder of the embedded log; several hosts of one machine may share it."""

    # -- where messages are stored
    store: str = "log"
    """`log`: in the data folder; `hbase`: in tables of HBase, which all hosts of a cluster share."""
    hbase_thrift: str = "127.0.0.1:9090"
    """HBase's Thrift gateways, `host:port,host:port`; framed transport, binary protocol."""
    hbase_thrift2: str = ""
    """Gateways of HBase's second Thrift interface, which make a new queue's table in a region per partition; may be
    none."""
    hbase_web: str = ""
    """Web pages of programs of HBase, `host:port,host:port`, whose settings are looked at when the host starts; may be
    none. Without a port that of a master."""
    hbase_prefix: str = "hoot"
    """What the names of this cluster's tables begin with."""
    hbase_metadata: str = ""
    """Kinds of metadata that are kept in HBase instead of in ZooKeeper, of `ownership`, `persistence`, `queues` and
    `subscriptions`, with commas between: for millions of subscriptions. All hosts of a cluster say the same."""
    hbase_layout: str = "rows"
    """`rows`: a row per message, readable by anything; `batches`: a cell per batch, faster. Of the new partitions of
    queues that ask for none."""
    hbase_call_seconds: float = 30.0
    """For one exchange with a gateway: a region server that died stalls its regions for up to some 15 s."""

    # -- where it listens
    address: str = "127.0.0.1"
    """Listened on and registered. Loopback by default: there is no authentication yet, so opening it is a decision."""
    port: int = 0
    """Of the Thrift service; 0 takes a free one, and clients find it through ZooKeeper."""
    http_port: int | None = 0
    """Of `/metrics`, `/healthz`, `/readyz` and the topics of `/v1/namespaces`; None for no HTTP at all."""
    connections_max: int = 1000
    """Thrift connections at once; more are closed at once, so that a storm cannot use up the file handles."""
    http_connections_max: int = 5000
    """The same for HTTP, where each poll that waits has a connection."""
    waiting_polls_max: int = 4000
    """Polls over HTTP that wait at once, at some 20 KB each; more are answered 503."""
    poll_messages_max: int = 0
    """Messages that one poll over HTTP gives at most; 0: all that it asks for, as clients of seed 003 expect."""
    foreign_transactions: bool = True
    """Whether topics take write pointers that Hoot's own service did not give out, and knows the age of only."""
    frame_bytes_max: int = 16 * MIB
    """Apache Thrift's own default; holds the largest batch."""
    calls_in_flight_max: int = 64
    """Unanswered calls of one connection; the next is not read before one is answered."""
    idle_seconds: float = 600.0
    """A connection that asks nothing for so long is closed; publishers open a new one when they need it."""
    frame_seconds: float = 30.0
    """From the first byte of a frame to its last, and for sending a reply: slower peers would hold buffers for ever."""

    # -- ZooKeeper and the end
    session_timeout_seconds: float = 6.0
    """How long after a crash another host may take over. Shorter risks losing partitions to a pause of the machine."""
    grace_seconds: float = 10.0
    """How long a stopping host waits for subscribers to acknowledge what is out."""
    reconcile_seconds: float = 30.0
    """How often everything in ZooKeeper is read without a hint, so that a lost hint costs time and nothing else."""

    # -- sharing the work with other hosts
    partitions_max: int = 100_000
    """Partitions that this host owns at most; beyond them those are released that were not used for longest."""
    retention_after_access_seconds: float = 0.0
    """A partition that nobody published to or read from for so long is released; 0 for never: it costs little."""
    rebalance_seconds: float = 30.0
    """Between two looks whether this host has more than its share, and gives some away; 0 for never."""

    # -- storing
    segment_bytes: int = 64 * MIB
    """Retention drops whole segments: smaller is finer, larger means fewer files."""
    tail_cache_bytes: int = 64 * MIB
    """The newest batches of all partitions; subscribers that keep up are served from here without a read."""
    commit_bytes: int = 32 * MIB
    """The most that one commit group takes to the store; bounds the time that one flush can take."""
    publish_bytes_max: int = 96 * MIB
    """Batches received and not yet stored; more are refused as `throttled`: a slow disk must not fill the memory."""
    retention_interval_seconds: float = 10.0
    """Between two looks at what is too old or too much."""
    reopen_seconds: float = 1.0
    """After a store failed, before a partition is opened anew."""

    # -- delivering (per partition of a subscription)
    window_messages: int = 50_000
    """Pushed and not acknowledged: the most that can be delivered twice after a fault."""
    window_bytes: int = 8 * MIB
    """The same in bytes."""
    buffer_messages: int = 50_000
    """Scanned and not yet pushed; the scanner waits when it is full."""
    buffer_bytes: int = 4 * MIB
    """The same in bytes."""
    push_bytes: int = 512 * 1024
    """The largest push, unless a single batch is larger: bigger ones gain nothing and make acknowledgements coarse."""
    hello_seconds: float = 30.0
    """For a listener to prove that it is the right one. Pushes have no deadline: callbacks take their time."""
    handover_seconds: float = 60.0
    """How long a member of a group may go on with what it has begun of a partition that another member is to get."""
    listener_networks: str = ""
    """Where listeners may be, CIDR blocks with commas between: whoever can subscribe makes a host connect to what they
    name. Empty: not in link-local networks, and on loopback only if this host or its ZooKeeper is."""
    reconnect_delay_seconds: float = 0.05
    """The first pause before connecting again to a subscriber; doubles, with jitter."""
    reconnect_delay_max_seconds: float = 2.0
    """The longest such pause: how late a subscriber that came back may be noticed."""
    checkpoint_interval_seconds: float = 0.2
    """Positions are gathered for so long into one ZooKeeper transaction (30 to 50 times cheaper than one by one)."""
    checkpoint_batch: int = 200
    """Or until there are so many; keeps a transaction far below ZooKeeper's 1 MB."""

    # -- scanners of the plain calls
    scanner_idle_seconds: float = 60.0
    """A scanner that nobody asked for so long is closed (HBase's scanner lease)."""
    scanned_partitions_max: int = 4096
    """Partitions that all open scanners read together; each may hold a batch in memory."""

    def check(self) -> HostConfig:
        """This record if everything in it can be used; otherwise ConfigError that names all that cannot."""
        numbers = self._wrong_numbers()
        wrong = [*numbers, *self._wrong_places(), *([] if numbers else self._wrong_together())]
        if wrong:
            raise ConfigError("; ".join(wrong))
        return self

    @property
    def networks(self) -> Networks:
        """Where listeners may be. Raises ConfigError."""
        servers = [server.rpartition(":")[0] or server for server in self.zookeeper.partition("/")[0].split(",")]
        alone = is_loopback(self.address) or all(is_loopback(server.strip()) for server in servers)
        return Networks(parse_networks(self.listener_networks), alone)

    def _wrong_numbers(self) -> list[str]:
        return [
            f"{name} must be {low:,} to {high:,}, not {value!r}"
            for name, (low, high) in _RANGES.items()
            if not _within(value := getattr(self, name), low, high)
        ]

    def _wrong_places(self) -> list[str]:
        wrong = [
            f"{name} must be one of {', '.join(known)}, not {value!r}"
            for name, known in _CHOICES.items()
            if (value := getattr(self, name)) not in known
        ]
        if not self.zookeeper.strip():
            wrong.append("zookeeper must name at least one host:port")
        if not self.address or any(character.isspace() for character in self.address):
            wrong.append(f"address must be a host name or an IP address, not {self.address!r}")
        try:
            parse_networks(self.listener_networks)
        except ConfigError as error:
            wrong.append(error.message)
        if self.http_port is not None and not _within(self.http_port, 0, 65535):
            wrong.append(f"http_port must be 0 to 65535, not {self.http_port!r}")
        if self.http_port and self.http_port == self.port:
            wrong.append(f"port and http_port are both {self.port}")
        return wrong

    def _wrong_together(self) -> list[str]:
        rules: list[tuple[Callable[[], bool], str]] = [
            (lambda: self.frame_bytes_max >= BATCH_BYTES_MAX + _FRAME_OVERHEAD,
             f"frame_bytes_max must hold a batch: at least {BATCH_BYTES_MAX + _FRAME_OVERHEAD:,}"),
            (lambda: self.publish_bytes_max >= BATCH_BYTES_MAX,
             f"publish_bytes_max must hold a batch: at least {BATCH_BYTES_MAX:,}"),
            (lambda: self.reconnect_delay_max_seconds >= self.reconnect_delay_seconds,
             "reconnect_delay_max_seconds must not be below reconnect_delay_seconds"),
        ]  # fmt: skip
        return [text for holds, text in rules if not holds()]


_CHOICES: Final = {"store": ("log", "hbase"), "hbase_layout": LAYOUTS}

_RANGES: Final[dict[str, tuple[float, float]]] = {
    "hbase_call_seconds": (1, 600),
    "port": (0, 65535),
    "connections_max": (1, 1_000_000),
    "http_connections_max": (1, 1_000_000),
    "waiting_polls_max": (0, 1_000_000),
    "poll_messages_max": (0, 1 << 31),
    "frame_bytes_max": (1, 1 << 30),
    "calls_in_flight_max": (1, 10_000),
    "idle_seconds": (1, 1e6),
    "frame_seconds": (0.1, 3600),
    "session_timeout_seconds": (1, 600),
    "grace_seconds": (0, 3600),
    "reconcile_seconds": (0.1, 86_400),
    "partitions_max": (1, 10_000_000),
    "retention_after_access_seconds": (0, 1e9),
    "rebalance_seconds": (0, 86_400),
    "segment_bytes": (64 * 1024, 1 << 40),
    "tail_cache_bytes": (0, 1 << 40),
    "commit_bytes": (1, 1 << 30),
    "publish_bytes_max": (1, 1 << 40),
    "retention_interval_seconds": (0.1, 86_400),
    "reopen_seconds": (0.01, 3600),
    "window_messages": (1, 10_000_000),
    "window_bytes": (1, 1 << 30),
    "buffer_messages": (1, 10_000_000),
    "buffer_bytes": (1, 1 << 30),
    "push_bytes": (1, BATCH_BYTES_MAX),
    "hello_seconds": (0.1, 3600),
    "handover_seconds": (0, 86_400),
    "reconnect_delay_seconds": (0.001, 60),
    "reconnect_delay_max_seconds": (0.001, 3600),
    "checkpoint_interval_seconds": (0.001, 60),
    "checkpoint_batch": (1, 2000),
    "scanner_idle_seconds": (0.1, 86_400),
    "scanned_partitions_max": (1, 1_000_000),
}


def _within(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
