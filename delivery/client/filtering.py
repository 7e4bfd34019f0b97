"""What a subscription takes: changing it while it runs, and telling why a message was taken or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from delivery.batch import headers_in, open_batch
from delivery.client.calls import Calls
from delivery.errors import InvalidRequest
from delivery.filters import FilterGiven, TopicsGiven, filter_asked, kept, topics_asked
from delivery.filters.explaining import Part, explain, row_of
from delivery.filters.filter import rules_of
from delivery.ids import MessageId
from delivery.metastore.catalog import Catalog
from delivery.metastore.flow import FlowGiven, changed_flow
from delivery.metastore.groups import check_kind
from delivery.metastore.managers.records import ParkedKey, SubscriptionState
from delivery.metastore.policy import RetryGiven, changed_policy, retry_asked
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.request import check_bound
from delivery.model import Isolation, Message, check_isolation, check_partition
from delivery.rpc.protocol import load_idl

Refusal = Literal["partition", "start", "replay", "topics", "filter"]
Passing = Literal["newest", "bound"]


class Explained(msgspec.Struct, frozen=True):
    """Why a subscription takes a message, or does not, by its preferences as they are now."""

    message: Message
    refused_by: Refusal | None
    """`partition`: it does not read this one; `start`: it began behind the message; `replay`: it ends before that. None
    when it takes the message.
    """
    acknowledged: bool
    """Whether the subscription is past it: what is changed now counts for it no more."""
    parked: ParkedKey | None
    """With what it is parked (docs/retries.md), as that was saved last."""
    passed_by: Passing | None
    """What may have let the subscription pass it undelivered: that it began with the `newest` message of each key, or a
    `bound`, beyond which the message is by now.
    """
    rules: tuple[Part, ...]
    """Its topics and its filter, all of which must hold, and what their parts came to."""


def change(
    topics: TopicsGiven,
    filter_: FilterGiven,
    retry: RetryGiven,
    bound: int | None,
    flow: FlowGiven,
    kind: str | None,
    *,
    isolation: Isolation | None = None,
) -> Callable[[SubscriptionRecord], SubscriptionRecord]:
    """How to change the preferences of a subscription. Raises InvalidRequest, as what it gives may."""
    wanted_topics, wanted_filter, wanted_retry = topics_asked(topics), filter_asked(filter_), retry_asked(retry)
    check_bound(bound)
    if isolation is not None:
        check_isolation(isolation)
    wanted_kind = None if kind is None else check_kind(kind)
    return lambda record: msgspec.structs.replace(
        record,
        topics=kept(wanted_topics, record.topics),
        filter=kept(wanted_filter, record.filter),
        retry=changed_policy(record.retry, wanted_retry, record.queue, record.name),
        bound=record.bound if bound is None else bound,
        flow=changed_flow(flow, record.flow),
        kind=wanted_kind or record.kind,
        isolation=isolation or record.isolation,
        holders=record.holders if wanted_kind in (None, record.kind) else {},
    )


class Filtering:
    """Over one catalog and the region hosts. Thread-safe; closes nothing."""

    def __init__(self, catalog: Catalog, calls: Calls) -> None:
        self._catalog, self._calls = catalog, calls

    def explain(self, record: SubscriptionRecord, number: int, partition: int | None) -> list[Explained]:
        """See Client.explain."""
        partitions = self._catalog.queue(record.queue).settings.partitions
        asked: Iterable[int] = range(partitions)
        if partition is not None:
            asked = (check_partition(partition, partitions, record.queue),)
        states = self._catalog.states(record.queue, record.name)
        found = [message for one in asked if (message := self._read(record.queue, one, number)) is not None]
        if not found:
            place = f"queue {record.queue!r} holds" if partition is None else f"{record.queue}/{partition} holds"
            raise InvalidRequest(
                f"{place} no message {MessageId(number)}: it was never stored, or is older than what the queue keeps"
            )
        return [explained(record, one, states.get(one.partition), self._behind(record, one)) for one in found]

    def _behind(self, record: SubscriptionRecord, message: Message) -> int:
        """How many messages lie behind one, if that matters."""
        if not record.bound:
            return 0
        end = self._calls.call(record.queue, message.partition, "partitionInfo", record.queue, message.partition).lastId
        place = (record.queue, message.partition, message.number, max(end, message.number))
        return int(self._calls.call(record.queue, message.partition, "countMessages", *place))

    def _read(self, queue: str, partition: int, number: int) -> Message | None:
        request = load_idl("delivery").ReadRequest(
            queue=queue, partition=partition, after=number - 1, upTo=number, topics=[], bytesMax=1, waitMs=0
        )
        data = self._calls.call(queue, partition, "read", request).batches
        for at, header in headers_in(data):
            for message in open_batch(data[at : at + header.length], header).messages(queue, number - 1):
                return message if message.number == number else None
        return None


def explained(
    record: SubscriptionRecord, message: Message, state: SubscriptionState | None, behind: int = 0
) -> Explained:  # fmt: skip
    """Why a subscription takes a message or not; `state` is that of its partition, `behind` how much lies behind it."""
    row = row_of(message)
    rules = tuple(explain(rule, row) for rule in rules_of(record.topics, record.filter))
    refused = _refusal(record, message, rules)
    parked = next((one for one in state.parked if message.number in one.ids), None) if state is not None else None
    past = state is not None and parked is None and message.number <= state.reached(message.key, message.number)
    return Explained(message, refused, past, parked, _passing(record, message, behind) if past else None, rules)


def _refusal(record: SubscriptionRecord, message: Message, rules: Sequence[Part]) -> Refusal | None:
    if message.partition not in record.starts:
        return "partition"
    if message.number <= record.starts[message.partition]:
        return "start"
    if record.replay is not None and message.number > record.replay.end(message.partition):
        return "replay"
    if record.topics and not rules[0].value:
        return "topics"
    return "filter" if record.filter is not None and not rules[-1].value else None


def _passing(record: SubscriptionRecord, message: Message, behind: int) -> Passing | None:
    if message.key is not None and message.number <= record.newest.get(message.partition, 0):
        return "newest"
    return "bound" if record.bound and behind >= record.bound else None
