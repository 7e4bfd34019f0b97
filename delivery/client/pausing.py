"""Pausing a subscription, and having it go on."""

from __future__ import annotations

import time
from datetime import datetime

import msgspec

from delivery.metastore.catalog import Catalog
from delivery.metastore.flow import check_pause
from delivery.metastore.records import SubscriptionRecord


class Pausing:
    """Over one catalog. Thread-safe."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def pause(self, queue: str, name: str, until: datetime | None, seconds: float | None) -> SubscriptionRecord:
        """See Client.pause."""
        wanted = check_pause(until, seconds, time.time_ns() // 1_000_000)
        return self._catalog.change_subscription(queue, name, lambda one: msgspec.structs.replace(one, pause=wanted))

    def resume(self, queue: str, name: str) -> SubscriptionRecord:
        """See Client.resume."""
        return self._catalog.change_subscription(queue, name, lambda one: msgspec.structs.replace(one, pause=None))
