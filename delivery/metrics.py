"""What a region host counts, for Prometheus. Counted per batch, push or commit group, never per message.

One registry per host, not the library's global one: several hosts may live in one process. Names of queues and
subscriptions come from users, so the label values are bounded; the rest shares the label `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

LABELS_MAX: Final = 2000
"""Label sets of one metric; each costs memory here and in whatever scrapes."""
OTHER: Final = "other"

_COMMIT_SECONDS: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_GROUP_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Lag(msgspec.Struct, frozen=True):
    """How far one partition of a subscription is behind, as known without reading anything."""

    queue: str
    subscription: str
    seconds: float
    """Between the times of the last stored and the last acknowledged message; 0 when all is acknowledged."""
    unacknowledged: int
    """Messages pushed and not yet answered."""


class Labelled:
    """The children of a counter by label values, looked up once and bounded."""

    def __init__(self, counter: Counter, width: int) -> None:
        self._counter, self._other = counter, (OTHER,) * width
        self._children: dict[tuple[str, ...], Counter] = {}

    def __call__(self, *values: str) -> Counter:
        """The counter for these values, or the one for all beyond the limit."""
        child = self._children.get(values)
        if child is None:
            if len(self._children) >= LABELS_MAX and values != self._other:
                return self(*self._other)
            child = self._children[values] = self._counter.labels(*values)
        return child


class Metrics:
    """All metrics of one host. Gauges that mirror live state are read when somebody scrapes."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Labelled:
            return Labelled(Counter(f"hoot_{name}", text, labels, registry=registry), len(labels))

        self._published_messages = counter("published_messages", "Messages stored", "queue")
        self._published_batches = counter("published_batches", "Batches stored", "queue")
        self._published_bytes = counter("published_bytes", "Bytes of batches stored", "queue")
        self._refused = counter("refused_publishes", "Publishes answered with an error", "code")
        self._pushed_messages = counter("pushed_messages", "Messages pushed, repeats included", "queue", "subscription")
        self._pushed_bytes = counter("pushed_bytes", "Bytes pushed, repeats included", "queue", "subscription")
        self._acknowledged = counter("acknowledged_messages", "Messages acknowledged", "queue", "subscription")
        self._failed = counter("failed_pushes", "Pushes that a listener failed", "queue", "subscription")
        self._trimmed = counter("trimmed_bytes", "Bytes dropped by retention", "queue")
        self._commit_seconds = Histogram(
            "hoot_commit_seconds", "Storing one commit group, its flush to disk included",
            buckets=_COMMIT_SECONDS, registry=registry,
        )  # fmt: skip
        self._commit_batches = Histogram(
            "hoot_commit_batches", "Batches in one commit group", buckets=_GROUP_BATCHES, registry=registry
        )

    def stored(self, queue: str, messages: int, size: int) -> None:
        """A batch was stored."""
        self._published_messages(queue).inc(messages)
        self._published_batches(queue).inc()
        self._published_bytes(queue).inc(size)

    def refused(self, code: str) -> None:
        """A publish was answered with an error of this code."""
        self._refused(code).inc()

    def committed(self, batches: int, seconds: float) -> None:
        """A commit group was written."""
        self._commit_seconds.observe(seconds)
        self._commit_batches.observe(batches)

    def pushed(self, queue: str, subscription: str, messages: int, size: int) -> None:
        """A push went out."""
        self._pushed_messages(queue, subscription).inc(messages)
        self._pushed_bytes(queue, subscription).inc(size)

    def acknowledged(self, queue: str, subscription: str, messages: int) -> None:
        """A push was acknowledged."""
        self._acknowledged(queue, subscription).inc(messages)

    def failed(self, queue: str, subscription: str) -> None:
        """A listener failed."""
        self._failed(queue, subscription).inc()

    def trimmed(self, queue: str, size: int) -> None:
        """Retention dropped `size` bytes."""
        self._trimmed(queue).inc(size)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge `hoot_<name>` whose value is asked for at each scrape."""
        Gauge(f"hoot_{name}", text, registry=self.registry).set_function(value)

    def watch_lag(self, lags: Callable[[], Iterable[Lag]]) -> None:
        """Gauges of how far each subscription is behind, asked for at each scrape."""
        self.registry.register(_LagCollector(lags))

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
