"""How far a subscription has got, and why it gets on as it does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from delivery import wall
from delivery.batch import peek
from delivery.client.calls import count_messages, partition_info
from delivery.client.groups import Member, members_of
from delivery.client.health import Health
from delivery.client.hosts import Owners
from delivery.client.looks import Looks
from delivery.dispatch.observation import Observation
from delivery.dispatch.verdict import Limits, Verdict, verdict
from delivery.errors import (
    ArchiveUnreadable,
    CorruptRecord,
    HootError,
    LayoutMismatch,
    MessagesGone,
    WrongStore,
)
from delivery.ids import MessageId
from delivery.metastore.catalog import Catalog
from delivery.metastore.flow import Flow, Pause, lasting
from delivery.metastore.groups import Kind
from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.replays import Replay
from delivery.model import Isolation
from delivery.networks import host_port
from delivery.rpc.protocol import load_idl


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
    observation: Observation
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
    kind: Kind
    listener: str | None
    """host:port of the subscriber that is attached to an exclusive one."""
    members: tuple[Member, ...]
    """Of a group, by name."""
    retry: RetryPolicy
    pause: Pause | None
    """None when it is not paused, or no longer."""
    flow: Flow
    partitions: tuple[SubscribedPartition, ...]
    replay: Replay | None = None
    """What of, if it is a replay; `end` and lags are those of its stretch then."""
    finished: bool = False
    """Whether it is a replay of which nothing is left."""
    bound: int = 0
    """Only so many of the newest messages of a partition matter; 0 for all."""
    isolation: Isolation = "uncommitted"

    @property
    def attached(self) -> tuple[str, ...]:
        """host:port of all who are attached."""
        return tuple(place for place in (self.listener, *(one.listener for one in self.members)) if place)

    @property
    def holders(self) -> dict[int, str]:
        """Which member gets a partition; none of those that several share."""
        return {number: one.member for one in self.members for number in one.partitions if not one.shares}

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
    """One look at some subscriptions, over one catalog and the region hosts. Thread-safe; closes nothing."""

    def __init__(self, catalog: Catalog, owners: Owners, looks: Looks) -> None:
        self._catalog, self._owners, self._looks = catalog, owners, looks
        self._health = Health(catalog, looks)

    def info(self, record: SubscriptionRecord, limits: Limits) -> SubscriptionInfo:
        """See Client.subscription_info."""
        queue, name = record.queue, record.name
        states = self._catalog.states(queue, name)
        attached = self._catalog.members(queue, name)
        listener = next((one.host_port for one in attached if record.kind == "exclusive" and not one.member), None)
        told = self._health.observations(record, attached)
        partitions = []
        for number, start in sorted(record.starts.items()):
            until = record.replay.end(number) if record.replay else 0
            seen = self._counted(record, _with_saved(told[number], start, states.get(number)), until)
            partitions.append(_subscribed(start, seen, verdict(seen, limits)))
        return SubscriptionInfo(
            queue, name, record.created_ms, record.all_partitions, record.topics, record.filter,
            record.kind, listener, members_of(record, attached, states), record.retry,
            lasting(record.pause, wall.ms()), record.flow, tuple(partitions), record.replay,
            _is_over(record.replay, partitions), record.bound, record.isolation,
        )  # fmt: skip

    def _counted(self, record: SubscriptionRecord, seen: Observation, until: int) -> Observation:
        """With its lag, if that was not told and somebody may know it; `until` is the end of a replay, or 0."""
        if seen.lag is not None or seen.stage == "host_unreachable":
            return seen
        queue, partition, position = record.queue, seen.partition, seen.position
        call = self._looks.call
        try:
            info = partition_info(call, queue, partition)
            lag = 0
            if not until or position < until:
                lag = count_messages(call, queue, partition, position, until)
            oldest = self._oldest_ms(queue, partition, position) if lag else 0
            host = host_port(*self._owners.address(queue, partition))
        except HootError as error:
            check_passing(error)
            return seen if error.retryable else msgspec.structs.replace(seen, trouble=error.message)
        size = round(lag * info.bytes / info.messages) if info.messages else 0
        return msgspec.structs.replace(
            seen, last=until or max(info.lastId, position), lag=lag, lag_bytes=size, oldest_ms=oldest, host=host,
            now_ms=wall.ms(), holding=_holds(info.backlog, record.name),
        )  # fmt: skip

    def _oldest_ms(self, queue: str, partition: int, position: int) -> int:
        """The time of the first message above `position`: the first batch there tells, or at worst the position."""
        request = load_idl("delivery").ReadRequest(
            queue=queue, partition=partition, after=position, upTo=0, topics=[], bytesMax=1, waitMs=0
        )
        header = peek(self._looks.call(queue, partition, "read", request).batches)
        return 0 if header is None else MessageId(max(header.base_id, position + 1)).timestamp_ms


_OF_ONE_PARTITION: Final = (ArchiveUnreadable, CorruptRecord, LayoutMismatch, MessagesGone, WrongStore)


def check_passing(error: HootError) -> None:
    """Raise what is no matter of one partition at this moment: all others can be told of in spite of that.

    What keeps an owner from opening a partition is one, though a person has to mend it.
    """
    if not error.retryable and not isinstance(error, _OF_ONE_PARTITION):
        raise error


def _holds(backlog: Any, name: str) -> bool:  # noqa: ANN401 - Backlog of the IDL, or None
    """Whether publishers wait for that subscription, as the owner tells."""
    return backlog is not None and backlog.full and backlog.subscription == name


def _with_saved(seen: Observation, start: int, state: SubscriptionState | None) -> Observation:
    """With what is in the metadata, where no owner told of anything newer."""
    if seen.stage == "delivering" or seen.lag is not None:
        return seen
    if state is None:
        return msgspec.structs.replace(seen, position=start)
    parked = sum(len(one.ids) for one in state.parked)
    return msgspec.structs.replace(seen, position=state.position, parked=parked, parked_keys=len(state.parked))


def _subscribed(start: int, seen: Observation, judged: Verdict) -> SubscribedPartition:
    known = seen.lag is not None
    return SubscribedPartition(
        seen.partition, MessageId(start), MessageId(seen.position), MessageId(seen.last) if known else None, seen.lag,
        seen.lag_seconds if known else None, seen.host if known and seen.host else None, seen.parked, seen, judged,
    )  # fmt: skip


def _is_over(replay: Replay | None, partitions: Iterable[SubscribedPartition]) -> bool:
    return replay is not None and all(
        one.position >= replay.end(one.partition) and not one.parked for one in partitions
    )
