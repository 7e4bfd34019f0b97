"""The life of a subscription: made, attached to, left and come back to (docs/subscriptions.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delivery.errors import HootError, InvalidRequest, SubscriptionExists, UnknownSubscription
from delivery.metastore.catalog import Catalog
from subscriber import Subscriber
from tests.integration.subscribing import NAME, QUEUE, attached, subscribed

pytestmark = pytest.mark.integration


def refused(subscriber: Subscriber, **more: object) -> type[HootError]:
    subscribed(subscriber, **more)
    with pytest.raises(HootError) as caught:
        subscriber.start()
    return type(caught.value)


def test_who_creates_is_refused_where_it_is_there_and_who_attaches_where_it_is_not(
    queue: Catalog, make: Callable[..., Subscriber]
) -> None:
    assert refused(make(), mode="attach") is UnknownSubscription
    assert queue.subscriptions(QUEUE) == []
    first = make()
    subscribed(first, mode="create", topics=["JFK"])
    with first:
        assert refused(make(force=True), mode="create") is SubscriptionExists
        assert attached(queue).port == first.port, "nothing was taken over"
    record = queue.subscription(QUEUE, NAME)
    again = make()
    subscribed(again, mode="attach")
    with again:
        assert queue.subscription(QUEUE, NAME) == record
    again.unsubscribe(QUEUE)
    assert refused(make(), mode="attach") is UnknownSubscription


def test_a_reserved_name_is_refused_and_nothing_is_written(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    assert refused(make("__hub")) is InvalidRequest
    assert queue.subscriptions(QUEUE) == []


def test_options_that_are_left_out_stay_and_none_takes_them_away(
    queue: Catalog, make: Callable[..., Subscriber]
) -> None:
    def kept(**options: object) -> tuple[tuple[str, ...], str | None, float, int]:
        subscriber = make()
        subscribed(subscriber, **options)
        with subscriber:
            record = queue.subscription(QUEUE, NAME)
        assert record is not None
        return record.topics, record.filter, record.retry.first_seconds, record.retry.deliveries_max

    topics, rule, *retry = kept(topics=["JFK"], filter="body.n > 1", retry={"first_seconds": 5, "deliveries_max": 3})
    assert (topics, retry) == (("JFK",), [5, 3])
    assert kept() == (("JFK",), rule, 5, 3)
    assert kept(retry={"deliveries_max": None}) == (("JFK",), rule, 5, 0)
    assert kept(topics=None, retry={"first_seconds": 7}) == ((), rule, 7, 0)
    assert kept(filter=None) == ((), None, 7, 0)


def test_whoever_leaves_and_comes_back_again_and_again_is_never_refused(
    queue: Catalog, make: Callable[..., Subscriber]
) -> None:
    subscriber = make()
    subscription = subscribed(subscriber)
    for _ in range(5):
        subscriber.start()
        assert attached(queue).port == subscriber.port
        subscriber.stop()
        subscriber.stop()
        assert (subscription.state, queue.listener(QUEUE, NAME)) == ("stopped", None)
    subscription.start_delivery()
    assert queue.subscription(QUEUE, NAME) is not None
