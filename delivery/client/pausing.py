"""Pausing a subscription, and having it go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import msgspec

from delivery import wall
from delivery.dispatch.observation import Observation
from delivery.errors import HootError
from delivery.metastore.catalog import Catalog
from delivery.metastore.flow import Pause, check_pause
from delivery.metastore.records import SubscriptionRecord

log = logging.getLogger(__name__)

HEARD_SECONDS: Final = 3.0
"""How long is waited for hosts to hold to a pause: those that look for changes once a second have had two looks."""
_FIRST_SECONDS, _LONGEST_SECONDS = 0.005, 0.2
"""Between two questions whether they do; each wait is twice the one before."""

_SERVED: Final = ("delivering", "starting")
"""Stages in which a host delivers, or is about to."""

Observe = Callable[[SubscriptionRecord], Iterable[Observation]]
"""How the hosts deliver a subscription now, in all of its partitions. Raises HootError."""


class Pausing:
    """Over one catalog, and hosts that tell what they know. Thread-safe."""

    def __init__(self, catalog: Catalog, observe: Observe) -> None:
        self._catalog, self._observe = catalog, observe

    def pause(self, queue: str, name: str, until: datetime | None, seconds: float | None) -> SubscriptionRecord:
        """See Client.pause."""
        wanted = check_pause(until, seconds, wall.ms())
        record = self._catalog.change_subscription(queue, name, lambda one: msgspec.structs.replace(one, pause=wanted))
        self._await_hosts(record, wanted)
        return record

    def resume(self, queue: str, name: str) -> SubscriptionRecord:
        """See Client.resume."""
        return self._catalog.change_subscription(queue, name, lambda one: msgspec.structs.replace(one, pause=None))

    def _await_hosts(self, record: SubscriptionRecord, pause: Pause) -> None:
        """Until all that deliver it hold to the pause, but not for long: it is kept, and they will hear of it."""
        longest = HEARD_SECONDS if pause.until_ms is None else (pause.until_ms - pause.since_ms) / 1000
        end, rest = time.monotonic() + min(HEARD_SECONDS, longest), _FIRST_SECONDS
        try:
            while any(_delivers(one, pause) for one in self._observe(record)) and time.monotonic() + rest < end:
                time.sleep(rest)
                rest = min(2 * rest, _LONGEST_SECONDS)
        except HootError as error:
            log.debug("whether hosts hold to the pause of %s on %s is not known: %s", record.name, record.queue, error)


def _delivers(seen: Observation, pause: Pause) -> bool:
    return seen.stage in _SERVED and seen.paused_ms != pause.since_ms
