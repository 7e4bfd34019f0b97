"""What a region host counts, for Prometheus. Counted per batch, push or commit group, never per message.

One registry per host, not the library's global one: several hosts may live in one process. Names of queues and
subscriptions come from users, so the label values are bounded; the rest shares the label `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

LABELS_MAX: Final = 2000
"""Label sets of one metric; each costs memory here and in whatever scrapes."""
OTHER: Final = "other"

_COMMIT_SECONDS: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_BACKLOGS: Final = (
    ("backlog_messages", "Not acknowledged by the slowest subscription, worst partition, where the queue limits it"),
    ("backlog_bytes", "What they take, of the partition with most"),
    ("full_partitions", "Partitions whose publishers wait for a subscription"),
)
_GROUP_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Lag(msgspec.Struct, frozen=True):
    """How far one partition of a subscription is behind, as known without reading anything."""

    queue: str
    subscription: str
    seconds: float
    """Between the times of the last stored and the last acknowledged message; 0 when all is acknowledged."""
    unacknowledged: int
    """Messages pushed and not yet answered."""


class QueueBacklog(msgspec.Struct, frozen=True):
    """What the slowest subscription of a partition has before it, where the queue limits that."""

    queue: str
    messages: int
    bytes: int
    full: bool
    """Publishers wait."""


class Tally(Collector):
    """Counters that share their labels, as plain numbers, bounded in their label values.

    The library's own counters take a lock each, some microseconds for every message when messages come one by one.
    """

    def __init__(self, registry: CollectorRegistry, labels: tuple[str, ...], **counters: str) -> None:
        """`counters` are the texts of the metrics by their names, without the prefix."""
        self._labels, self._counters = labels, counters
        self._counts: dict[tuple[str, ...], list[int]] = {}
        registry.register(self)

    def of(self, *values: str) -> list[int]:
        """The numbers for these label values, in the order of the counters; those for all beyond the limit."""
        counts = self._counts.get(values)
        if counts is None:
            other = (OTHER,) * len(self._labels)
            if len(self._counts) >= LABELS_MAX and values != other:
                return self.of(*other)
            counts = self._counts[values] = [0] * len(self._counters)
        return counts

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        for at, (name, text) in enumerate(self._counters.items()):
            family = CounterMetricFamily(f"hoot_{name}", text, labels=self._labels)
            for values, counts in self._counts.items():
                family.add_metric(values, counts[at])
            yield family


class Distribution(Collector):
    """A histogram without labels, as plain numbers."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name, self._text, self._bounds = f"hoot_{name}", text, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = [(name, float(count)) for name, count in zip(names, accumulate(self._counts), strict=True)]
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum)


class Metrics:
    """All metrics of one host, for its trio thread. Gauges that mirror live state are read when somebody scrapes."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._published = Tally(
            registry, ("queue",), published_messages="Messages stored", published_batches="Batches stored",
            published_bytes="Bytes of batches stored", trimmed_bytes="Bytes dropped by retention",
        )  # fmt: skip
        self._refused = Tally(registry, ("code",), refused_publishes="Publishes answered with an error")
        self._delivered = Tally(
            registry, ("queue", "subscription"), pushed_messages="Messages pushed, repeats included",
            pushed_bytes="Bytes pushed, repeats included", acknowledged_messages="Messages acknowledged",
            failed_pushes="Pushes that a listener failed",
        )  # fmt: skip
        self._commit_seconds = Distribution(
            registry, "commit_seconds", "Storing one commit group, its flush to disk included", _COMMIT_SECONDS
        )
        self._commit_batches = Distribution(
            registry, "commit_batches", "Batches in one commit group", _GROUP_BATCHES
        )  # fmt: skip

    def stored(self, queue: str, messages: int, size: int) -> None:
        """A batch was stored."""
        counts = self._published.of(queue)
        counts[0] += messages
        counts[1] += 1
        counts[2] += size

    def trimmed(self, queue: str, size: int) -> None:
        """Retention dropped `size` bytes."""
        self._published.of(queue)[3] += size

    def refused(self, code: str) -> None:
        """A publish was answered with an error of this code."""
        self._refused.of(code)[0] += 1

    def committed(self, batches: int, seconds: float) -> None:
        """A commit group was written."""
        self._commit_seconds.observe(seconds)
        self._commit_batches.observe(batches)

    def pushed(self, queue: str, subscription: str, messages: int, size: int) -> None:
        """A push went out."""
        counts = self._delivered.of(queue, subscription)
        counts[0] += messages
        counts[1] += size

    def acknowledged(self, queue: str, subscription: str, messages: int) -> None:
        """A push was acknowledged."""
        self._delivered.of(queue, subscription)[2] += messages

    def failed(self, queue: str, subscription: str) -> None:
        """A listener failed."""
        self._delivered.of(queue, subscription)[3] += 1

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge `hoot_<name>` whose value is asked for at each scrape."""
        Gauge(f"hoot_{name}", text, registry=self.registry).set_function(value)

    def watch_lag(self, lags: Callable[[], Iterable[Lag]]) -> None:
        """Gauges of how far each subscription is behind, asked for at each scrape."""
        self.registry.register(_LagCollector(lags))

    def watch_backlogs(self, backlogs: Callable[[], Iterable[QueueBacklog]]) -> None:
        """Gauges of what publishers may have to wait for, asked for at each scrape."""
        self.registry.register(_BacklogCollector(backlogs))

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)


class _LagCollector(Collector):
    def __init__(self, lags: Callable[[], Iterable[Lag]]) -> None:
        self._lags = lags

    def collect(self) -> Iterator[GaugeMetricFamily]:
        labels = ("queue", "subscription")
        seconds = GaugeMetricFamily(
            "hoot_lag_seconds", "Age of what is not yet acknowledged, worst partition", labels=labels
        )
        out = GaugeMetricFamily("hoot_unacknowledged_messages", "Pushed and not yet answered", labels=labels)
        for names, (worst, messages) in self._by_subscription().items():
            seconds.add_metric(names, worst)
            out.add_metric(names, messages)
        yield seconds
        yield out

    def _by_subscription(self) -> dict[tuple[str, str], tuple[float, int]]:
        found: dict[tuple[str, str], tuple[float, int]] = {}
        for lag in self._lags():
            names = (lag.queue, lag.subscription)
            if names not in found and len(found) >= LABELS_MAX:
                names = (OTHER, OTHER)
            worst, messages = found.get(names, (0.0, 0))
            found[names] = (max(worst, lag.seconds), messages + lag.unacknowledged)
        return found


class _BacklogCollector(Collector):
    def __init__(self, backlogs: Callable[[], Iterable[QueueBacklog]]) -> None:
        self._backlogs = backlogs

    def collect(self) -> Iterator[GaugeMetricFamily]:
        found: dict[str, tuple[int, int, int]] = {}
        for one in self._backlogs():
            queue = one.queue if one.queue in found or len(found) < LABELS_MAX else OTHER
            messages, size, full = found.get(queue, (0, 0, 0))
            found[queue] = max(messages, one.messages), max(size, one.bytes), full + one.full
        for at, (name, text) in enumerate(_BACKLOGS):
            family = GaugeMetricFamily(f"hoot_queue_{name}", text, labels=("queue",))
            for queue, numbers in found.items():
                family.add_metric((queue,), numbers[at])
            yield family
