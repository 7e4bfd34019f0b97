"""How far a subscription has got, and why it gets on as it does."""

from __future__ import annotations

import time
from functools import partial

import msgspec

from delivery.batch import peek
from delivery.client.calls import Calls
from delivery.client.health import Health
from delivery.client.hosts import Owners
from delivery.dispatch.snapshot import Snapshot
from delivery.dispatch.verdict import Limits, Verdict, verdict
from delivery.errors import HootError
from delivery.ids import MessageId
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import SubscriptionRecord
from delivery.rpc.pool import Pool
from delivery.rpc.protocol import load_idl

LOOK_SECONDS = 5.0
"""How long one partition is asked before its numbers are given as unknown."""


class SubscribedPartition(msgspec.Struct, frozen=True):
    """How far a subscription has got in one partition. None stands for what cannot be had now."""

    partition: int
    start: MessageId
    """It began after this id."""
    position: MessageId
    """Everything up to here is acknowledged: as its owner has it, or as it was saved last; `start` before that."""
    end: MessageId | None
    """The last id of the partition."""
    lag: int | None
    """Messages of the partition above `position`, whatever their topic."""
    lag_seconds: float | None
    """The age of the oldest of these; 0 when there is none."""
    host: str | None
    parked: int
    """Messages up to `position` that are parked (docs/retries.md)."""
    snapshot: Snapshot
    """All that is known of it."""
    verdict: Verdict
    """Why it does what it does."""


class SubscriptionInfo(msgspec.Struct, frozen=True):
    """A subscription, who is attached, and how far it has got."""

    queue: str
    subscription: str
    created_ms: int
    all_partitions: bool
    topics: tuple[str, ...]
    filter: str | None
    """Its rule as JSON."""
    listener: str | None
    """host:port of the subscriber that is attached."""
    retry: RetryPolicy
    partitions: tuple[SubscribedPartition, ...]

    @property
    def lag(self) -> int | None:
        """Of all partitions; None when one of them is not known. Without what is parked."""
        lags = [one.lag for one in self.partitions]
        return None if None in lags else sum(lag or 0 for lag in lags)

    @property
    def parked(self) -> int:
        """Messages of all partitions that are parked."""
        return sum(one.parked for one in self.partitions)

    @property
    def lag_seconds(self) -> float | None:
        """Of the partition that is furthest behind; None when one of them is not known."""
        ages = [one.lag_seconds for one in self.partitions]
        return None if None in ages else max((age or 0.0 for age in ages), default=0.0)

    @property
    def worst(self) -> SubscribedPartition | None:
        """The partition with the worst verdict, of several the one that is furthest behind; None without partitions."""
        return max(self.partitions, key=lambda one: (one.verdict.rank, one.lag_seconds or 0.0), default=None)


class Looking:
    """Over one catalog and the region hosts. Thread-safe; closes nothing."""

    def __init__(self, catalog: Catalog, owners: Owners, calls: Calls, pool: Pool) -> None:
        self._catalog, self._owners, self._calls = catalog, owners, calls
        self._health = Health(catalog, pool)
        self._read_request = load_idl("delivery").ReadRequest

    def info(self, record: SubscriptionRecord, limits: Limits) -> SubscriptionInfo:
        """See Client.subscription_info."""
        queue, name = record.queue, record.name
        states = self._catalog.states(queue, name)
        listener = self._catalog.listener(queue, name)
        snapshots = self._health.snapshots(record, attached=listener is not None)
        partitions = []
        for number, start in sorted(record.starts.items()):
            seen = self._counted(queue, _with_saved(snapshots[number], start, states.get(number)))
            partitions.append(_subscribed(start, seen, verdict(seen, limits)))
        return SubscriptionInfo(
            queue, name, record.created_ms, record.all_partitions, record.topics, record.filter,
            None if listener is None else listener.host_port, record.retry, tuple(partitions),
        )  # fmt: skip

    def _counted(self, queue: str, seen: Snapshot) -> Snapshot:
        """With its lag, if that was not told and somebody may know it."""
        if seen.lag is not None or seen.stage in ("no_owner", "host_unreachable"):
            return seen
        partition, position = seen.partition, seen.position
        look = partial(self._calls.call, queue, partition, timeout=LOOK_SECONDS)
        try:
            info = look("partitionInfo", queue, partition)
            lag = int(look("countMessages", queue, partition, position, 0))
            oldest = self._oldest_ms(queue, partition, position) if lag else 0
            host = ":".join(map(str, self._owners.address(queue, partition)))
        except HootError as error:
            if not error.retryable:
                raise
            return seen
        size = round(lag * info.bytes / info.messages) if info.messages else 0
        return msgspec.structs.replace(
            seen, last=max(info.lastId, position), lag=lag, lag_bytes=size, oldest_ms=oldest, host=host,
            now_ms=time.time_ns() // 1_000_000,
        )  # fmt: skip

    def _oldest_ms(self, queue: str, partition: int, position: int) -> int:
        """The time of the first message above `position`: the first batch there tells, or at worst the position."""
        request = self._read_request(
            queue=queue, partition=partition, after=position, upTo=0, topics=[], bytesMax=1, waitMs=0
        )
        header = peek(self._calls.call(queue, partition, "read", request, timeout=LOOK_SECONDS).batches)
        return 0 if header is None else MessageId(max(header.base_id, position + 1)).timestamp_ms


def _with_saved(seen: Snapshot, start: int, state: SubscriptionState | None) -> Snapshot:
    """With what is in the metadata, where no owner told of anything newer."""
    if seen.stage == "delivering":
        return seen
    if state is None:
        return msgspec.structs.replace(seen, position=start)
    parked = sum(len(one.ids) for one in state.parked)
    return msgspec.structs.replace(seen, position=state.position, parked=parked, parked_keys=len(state.parked))


def _subscribed(start: int, seen: Snapshot, judged: Verdict) -> SubscribedPartition:
    known = seen.lag is not None
    return SubscribedPartition(
        seen.partition, MessageId(start), MessageId(seen.position), MessageId(seen.last) if known else None, seen.lag,
        seen.lag_seconds if known else None, seen.host if known and seen.host else None, seen.parked, seen, judged,
    )  # fmt: skip
