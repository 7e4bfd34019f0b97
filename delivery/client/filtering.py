"""Changing what a subscription takes while it runs."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from delivery.filters import FilterGiven, TopicsGiven, filter_asked, kept, topics_asked
from delivery.metastore.flow import FlowGiven, changed_flow
from delivery.metastore.groups import check_kind
from delivery.metastore.policy import RetryGiven, changed_policy, retry_asked
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.request import check_bound
from delivery.model import Isolation, check_isolation


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
