"""Subscriptions as Prometheus sees them: per subscription of this host the worst verdict, the backlog, the last times.

Everything is taken together before a scrape is answered: counting what is behind takes reads, and a host of thousands
of subscriptions goes on delivering in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import trio
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from delivery.api.observing import Deliveries
from delivery.dispatch.observation import Observation
from delivery.dispatch.verdict import verdict
from delivery.metrics import LABELS_MAX

COUNTED_MAX: Final = 200
"""Partitions whose backlog is counted for one scrape, those first that are furthest behind."""
_LABELS: Final = ("queue", "subscription")


class Standing(msgspec.Struct, frozen=True):
    """A subscription at the time of a scrape: those of its partitions that this host serves, or tries to."""

    queue: str
    subscription: str
    partitions: Sequence[Observation]


Value = Callable[[Sequence[Observation]], float | None]
"""Of a subscription, by its partitions; None: it cannot be had now."""

_GAUGES: Final[tuple[tuple[str, str, Value], ...]] = (
    ("backlog_messages", "Published and not acknowledged", lambda seen: _total(one.lag for one in seen)),
    ("backlog_bytes", "What they take", lambda seen: _total(one.lag_bytes for one in seen)),
    (
        "oldest_unacknowledged_seconds", "Age of the oldest message that is not acknowledged",
        lambda seen: None if any(one.lag is None for one in seen) else max(one.lag_seconds for one in seen),
    ),
    ("parked_messages", "Messages whose key waits", lambda seen: sum(one.parked for one in seen)),
    ("last_delivered_timestamp_seconds", "Of the last push", lambda seen: max(one.delivered_ms for one in seen) / 1000),
    (
        "last_acknowledged_timestamp_seconds", "Of the last acknowledgement",
        lambda seen: max(one.acknowledged_ms for one in seen) / 1000,
    ),
    (
        "last_checkpointed_timestamp_seconds", "Of the last position that was saved",
        lambda seen: max(one.checkpointed_ms for one in seen) / 1000,
    ),
)  # fmt: skip


class Exposing(Collector):
    """What `refresh` found, until it is called again."""

    def __init__(self, deliveries: Deliveries, registry: CollectorRegistry) -> None:
        self._deliveries = deliveries
        self._standings: Sequence[Standing] = ()
        registry.register(self)

    async def refresh(self) -> None:
        """Look at everything again."""
        found: list[Standing] = []
        for delivery, partitions in self._deliveries.all():
            if partitions and len(found) < LABELS_MAX:
                found.append(Standing(*delivery.place, partitions))
            await trio.lowlevel.checkpoint()
        behind = sorted(seen.position for one in found for seen in one.partitions if seen.position < seen.last)
        until = behind[min(len(behind), COUNTED_MAX) - 1] if behind else 0
        self._standings = [await self._with_backlog(one, until) for one in found]

    async def _with_backlog(self, one: Standing, until: int) -> Standing:
        """Counted in those partitions whose position is not above `until`, and in those that are at their end."""
        near = [seen for seen in one.partitions if until < seen.position < seen.last]
        rest = [seen for seen in one.partitions if not until < seen.position < seen.last]
        counted = await self._deliveries.counted((one.queue, one.subscription), rest)
        return Standing(one.queue, one.subscription, [*near, *counted])

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        return collected(self._standings)


def collected(standings: Sequence[Standing]) -> Iterator[Metric]:
    """The metrics of these subscriptions."""
    judged = GaugeMetricFamily(
        "hoot_subscription_verdict", "1 for the worst verdict of its partitions", labels=(*_LABELS, "verdict")
    )
    again = CounterMetricFamily("hoot_redelivered_messages", "Messages pushed again", labels=_LABELS)
    for one in standings:
        worst = max((verdict(seen) for seen in one.partitions), key=lambda found: found.rank)
        judged.add_metric((one.queue, one.subscription, worst.name), 1)
        again.add_metric((one.queue, one.subscription), sum(seen.redelivered for seen in one.partitions))
    yield judged
    yield again
    for name, text, value in _GAUGES:
        family = GaugeMetricFamily(f"hoot_subscription_{name}", text, labels=_LABELS)
        for one in standings:
            if (number := value(one.partitions)) is not None:
                family.add_metric((one.queue, one.subscription), number)
        yield family


def _total(numbers: Iterable[int | None]) -> float | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
