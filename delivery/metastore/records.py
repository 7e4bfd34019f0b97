"""The znodes that live with a session, and the values that everybody passes around. All are JSON.

    /hoot/hosts/<host>                HostRecord, ephemeral
    /hoot/listeners/<queue>           persistent, empty; made by the first who attaches, gone with the queue
    /hoot/listeners/<queue>/<name>    ListenerRecord, ephemeral: the subscriber that is attached now; under a host's
                                      session, where it has none of its own (`lease`)
    /hoot/listeners/<queue>/<name>@<member>    the same of a group, for each of its members
    /hoot/works/<work>@<queue>        who is at work that only one may be at (`works`), ephemeral
    /hoot/metastore/layout            which MetaStore holds everything else (`managers.layout`)

Whatever outlives a session is in the tables of that MetaStore, through the managers: queues, owners, sealed ranges,
subscriptions and their states. In ZooKeeper these are below /hoot/metastore/tables.

A host watches `listeners`, and there the queues that somebody is or was attached to: detached subscriptions cost
nothing. A watch is a hint; the state is always read in full. The version of a queue's folder in `listeners` counts who
attached, took over and detached: it guards the ephemeral nodes, whose own version begins at 0 each time.

Seed 004, section 3.5.1: the subscription information is the queue, the partitions with their start ids, the topics,
the subscriber's address and port, and the checkpoint. Address and port live in the ephemeral node, so that they vanish
with the subscriber while the rest stays.
"""

from __future__ import annotations

from typing import Final, Literal, TypeVar

import msgspec

from delivery.errors import CorruptRecord
from delivery.metastore.flow import Flow, Pause
from delivery.metastore.groups import Kind
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.replays import Replay
from delivery.model import Isolation, QueueSettings, lay_out
from delivery.networks import Networks, host_port

ROOT: Final = "/hoot"
HOSTS: Final = f"{ROOT}/hosts"
LISTENERS: Final = f"{ROOT}/listeners"
MEMBER: Final = "@"
"""Between the names of a subscription and a member: in neither of them."""

R = TypeVar("R", bound=msgspec.Struct)


class HostRecord(msgspec.Struct, frozen=True):
    """A live region host."""

    host: str
    """Its id: new at each start."""
    address: str
    port: int
    http_port: int | None
    session: int
    """The ZooKeeper session that holds this node."""
    version: str
    started_ms: int
    partitions: int = 0
    """How many it owns, as of a few seconds ago; this and what follows is refreshed when it changed noticeably."""
    messages_per_second: float = 0.0
    """Stored, averaged over some ten seconds."""
    bytes_per_second: float = 0.0
    draining: bool = False
    """It takes no new partitions and gives away those it has."""
    networks: Networks = Networks()
    """Where it connects to listeners."""

    @property
    def host_port(self) -> str:
        """Where it answers, in one word."""
        return host_port(self.address, self.port)


class TopicRecord(msgspec.Struct, frozen=True):
    """What a queue that was made as a topic of a namespace (seed 003) has beyond a queue's settings."""

    generation: int
    """1 for the first topic of the name, and higher for each that was made after its deletion."""
    ttl_seconds: int
    """Polls see nothing older. The queue's own age limit is above it, and is what is kept in the store."""
    properties: dict[str, str]
    """What the caller gave beyond `ttl`; it means nothing to Hoot."""


class QueueRecord(msgspec.Struct, frozen=True):
    """A queue. `generation` tells it from an earlier queue of the same name."""

    name: str
    generation: str
    created_ms: int
    settings: QueueSettings
    topic: TopicRecord | None = None
    """None for a queue that is no topic of a namespace."""
    transactional: bool = False
    """Whether it may hold messages of transactions although it is no topic."""
    copy_of: str = ""
    """The generation of the queue that it was made as a copy of, empty for all others."""
    home: str = ""
    """Where its messages are, for good (storage.homes); empty before a host first took one of its partitions."""

    @property
    def store(self) -> str | None:
        """The kind of store that its messages are in, `log` or `hbase`; None while that is open."""
        return self.home.partition(":")[0] or None

    def serves_as(self, other: QueueRecord) -> bool:
        """Whether it is worked with as with the other one: all but the home is alike, which only stores ask for."""
        return msgspec.structs.replace(self, home=other.home) == other

    @property
    def takes_transactions(self) -> bool:
        """Whether it may hold messages of transactions."""
        return self.transactional or self.topic is not None


class SubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The durable side of a subscription: its preferences."""

    name: str
    queue: str
    generation: str
    """Of the queue it was made for."""
    created_ms: int
    """Kept when the record is changed: it tells the subscription from an earlier one of the same name."""
    starts: dict[int, int]
    """Per partition the id after which to begin (exclusive). Its keys are the partitions subscribed to."""
    all_partitions: bool
    topics: tuple[str, ...]
    """Names and patterns; empty for all."""
    filter: str | None = None
    """A rule in its canonical JSON (filters.rules), which messages of these topics must fulfil, too; None for none."""
    moves: int = 0
    """How often positions were moved by hand. That it has risen makes hosts read the states again at once."""
    retry: RetryPolicy = RetryPolicy()
    """What becomes of a message that was not handled."""
    bound: int = 0
    """Only so many of the newest messages of a partition matter; 0 for all."""
    newest: dict[int, int] = {}
    """Per partition the id up to which only the newest message of each key is delivered, where it began so."""
    replay: Replay | None = None
    """Where it ends, and its pace, if it is the replay of another subscription."""
    released_ms: int = 0
    """When an operator last released what was parked: hosts look at the states again when it changes."""
    flow: Flow = Flow()
    """How fast it is delivered at most."""
    pause: Pause | None = None
    """None when it was never paused, or was resumed; one that is over means nothing."""
    kind: Kind = "exclusive"
    """Who may be attached at the same time, and what each of them gets."""
    isolation: Isolation = "uncommitted"
    """With `committed` nothing of a transaction is delivered before its commit, and nothing behind it."""
    replayed_ms: int = 0
    """When the subscription of its replays was made, to which its subscribers attach, too (replays.replay_queue)."""
    holders: dict[str, tuple[int, ...]] = {}
    """Of a group: its members, as some host saw them last, and their partitions (groups.assign)."""

    def is_same(self, other: SubscriptionRecord) -> bool:
        """Whether both are of one subscription, and not of two that had the name one after the other."""
        return (self.generation, self.created_ms) == (other.generation, other.created_ms)


_NO_OPTIONS: Final = (
    "generation", "created_ms", "starts", "moves", "newest", "replay", "released_ms", "pause", "replayed_ms",
    "holders",
)  # fmt: skip
"""What in preferences comes about by itself; everything else was asked for."""


def differing_options(one: SubscriptionRecord, other: SubscriptionRecord) -> list[str]:
    """The options that two preferences do not have alike: the members of a group must have all of them alike."""
    names = [name for name in SubscriptionRecord.__struct_fields__ if name not in _NO_OPTIONS]
    differing = [name for name in names if getattr(one, name) != getattr(other, name)]
    if not differing and not one.all_partitions and one.starts.keys() != other.starts.keys():
        differing.append("partitions")
    return ["partitions" if name == "all_partitions" else name for name in differing]


class ListenerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The attached subscriber of a subscription."""

    address: str
    port: int
    token: str
    """Random; the listener proves with it that it is the one meant here."""
    protocol: Literal["packed", "plain", "pull"] = "packed"
    """How it is served; `pull` is by nobody: it reads for itself, and moves the positions itself."""
    lease: str = ""
    """The id of the region host that holds it for a listener without a session of its own."""
    member: str = ""
    """Its name in a group; empty for the only one of an exclusive subscription."""

    @property
    def pulls(self) -> bool:
        """Whether region hosts leave it alone."""
        return self.protocol == "pull"

    @property
    def host_port(self) -> str:
        """Where it listens, in one word."""
        return host_port(self.address, self.port)


lay_out(HostRecord, TopicRecord, QueueRecord, SubscriptionRecord, ListenerRecord)


def host_path(host: str) -> str:
    """Where the host is registered."""
    return f"{HOSTS}/{host}"


def listeners_path(queue: str) -> str:
    """The folder of the subscribers attached to the queue."""
    return f"{LISTENERS}/{queue}"


def listener_path(queue: str, name: str, member: str = "") -> str:
    """Where the attached subscriber of a subscription is, or a member of a group."""
    return f"{LISTENERS}/{queue}/{name}{MEMBER if member else ''}{member}"


def seat(node: str) -> tuple[str, str]:
    """The subscription and the member, empty for an exclusive one, that a listener's znode is called after."""
    name, _, member = node.partition(MEMBER)
    return name, member


def encode(record: msgspec.Struct) -> bytes:
    """The JSON of a record."""
    return msgspec.json.encode(record)


def decode(data: bytes, kind: type[R], path: str) -> R:
    """The record in a znode. Raises CorruptRecord, naming the path, when the value is foreign or damaged."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptRecord(f"the value of {path} is no {kind.__name__}: {error}") from error
