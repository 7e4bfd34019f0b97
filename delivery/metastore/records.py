"""Every znode of Hoot: its path and what is in it. All values are JSON, so that `zkCli get` shows them.

    /hoot/layout                                   Layout
    /hoot/hosts/<host>                             HostRecord, ephemeral
    /hoot/queues/<queue>                           QueueRecord
    /hoot/queues/<queue>/partitions/<00042>        PartitionRecord; absent until first owned. Its epoch only grows.
    /hoot/queues/<queue>/subscriptions/<name>      SubscriptionRecord: the durable state, with or without a subscriber
    /hoot/queues/<queue>/subscriptions/<name>/<00042>   Checkpoint of one partition; absent until the first one is due
    /hoot/queues/<queue>/listeners/<name>          ListenerRecord, ephemeral: the subscriber that is attached now

Partitions are five decimal digits. A host watches `queues`, and per queue `listeners` and the records of the attached
subscriptions: detached subscriptions cost nothing. A watch is a hint; the state is always read in full. Attaching and
detaching write the subscription's record anew, unchanged: its version guards the ephemeral node, whose own version
begins at 0 each time.

A program that registers by itself writes `created_ms` once and leaves it: checkpoints name their subscription by it.

Seed 004, section 3.5.1: the subscription information is the queue, the partitions with their start ids, the topics,
the subscriber's address and port, and the checkpoint. Address and port live in the ephemeral node, so that they vanish
with the subscriber while the rest stays.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from delivery.errors import CorruptRecord
from delivery.model import QueueSettings, lay_out

ROOT = "/hoot"
LAYOUT = f"{ROOT}/layout"
HOSTS = f"{ROOT}/hosts"
QUEUES = f"{ROOT}/queues"
LAYOUT_VERSION = 1

R = TypeVar("R", bound=msgspec.Struct)


class Layout(msgspec.Struct, frozen=True):
    """Which software's data this tree holds; another version stops the start."""

    version: int = LAYOUT_VERSION


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


class QueueRecord(msgspec.Struct, frozen=True):
    """A queue. `generation` tells it from an earlier queue of the same name."""

    name: str
    generation: str
    created_ms: int
    settings: QueueSettings


class PartitionRecord(msgspec.Struct, frozen=True):
    """The owner of a partition, moved by compare-and-set. Owned only while the host lives with that session."""

    epoch: int
    host: str
    session: int


class SubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The durable side of a subscription."""

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
    """Empty for all."""


class ListenerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The attached subscriber of a subscription."""

    address: str
    port: int
    token: str
    """Random; the listener proves with it that it is the one meant here."""
    protocol: Literal["packed", "plain"] = "packed"


class Checkpoint(msgspec.Struct, frozen=True):
    """Everything up to `id` was acknowledged."""

    id: int
    epoch: int
    """Of the owner that wrote it."""
    created_ms: int
    """Of its subscription. One of an earlier subscription of the same name, saved too late, does not count."""

    def is_of(self, subscription: SubscriptionRecord) -> bool:
        """Whether it counts for that subscription."""
        return self.created_ms == subscription.created_ms


lay_out(Layout, HostRecord, QueueRecord, PartitionRecord, SubscriptionRecord, ListenerRecord, Checkpoint)


def host_path(host: str) -> str:
    """Where the host is registered."""
    return f"{HOSTS}/{host}"


def queue_path(queue: str) -> str:
    """Where the queue's record is."""
    return f"{QUEUES}/{queue}"


def partitions_path(queue: str) -> str:
    """The folder of the queue's partition records."""
    return f"{QUEUES}/{queue}/partitions"


def partition_path(queue: str, partition: int) -> str:
    """Where the owner and epoch of a partition are."""
    return f"{QUEUES}/{queue}/partitions/{partition:05d}"


def subscriptions_path(queue: str) -> str:
    """The folder of the queue's subscriptions."""
    return f"{QUEUES}/{queue}/subscriptions"


def subscription_path(queue: str, name: str) -> str:
    """Where the subscription's durable record is."""
    return f"{QUEUES}/{queue}/subscriptions/{name}"


def checkpoint_path(queue: str, name: str, partition: int) -> str:
    """Where the checkpoint of one partition of a subscription is."""
    return f"{QUEUES}/{queue}/subscriptions/{name}/{partition:05d}"


def listeners_path(queue: str) -> str:
    """The folder of the subscribers attached to the queue."""
    return f"{QUEUES}/{queue}/listeners"


def listener_path(queue: str, name: str) -> str:
    """Where the attached subscriber of a subscription is."""
    return f"{QUEUES}/{queue}/listeners/{name}"


def encode(record: msgspec.Struct) -> bytes:
    """The JSON of a record."""
    return msgspec.json.encode(record)


def decode(data: bytes, kind: type[R], path: str) -> R:
    """The record in a znode. Raises CorruptRecord, naming the path, when the value is foreign or damaged."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptRecord(f"the value of {path} is no {kind.__name__}: {error}") from error
