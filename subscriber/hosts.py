"""What registering asks a region host: the last id of a partition."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from delivery import logs
from delivery.errors import HootError, NoHost
from delivery.metastore.catalog import Catalog
from delivery.metastore.live import LiveHosts, parse_address
from delivery.rpc.pool import Pool

log = logs.logger(__name__)

ASK_SECONDS: Final = 20.0
"""For one partition. Longer than a crashed host's session, within which another cannot take its partitions over."""

_PAUSE_SECONDS: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 1.0


class Hosts:
    """The region hosts, as a subscriber needs them. Blocking; keeps no connection."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._live = LiveHosts(())

    @contextlib.contextmanager
    def asking(self, queue: str) -> Iterator[Callable[[int], int]]:
        """A function that gives the last id of a partition of `queue`, asking its owner.

        It raises NoHost when no host is registered, UnknownQueue, and the last retryable error of a host when none has
        the partition within ASK_SECONDS.
        """
        with contextlib.closing(Pool()) as pool:
            yield lambda partition: self._last_id(pool, queue, partition)

    def _last_id(self, pool: Pool, queue: str, partition: int) -> int:
        end, pause, told = time.monotonic() + ASK_SECONDS, 0.0, None
        while True:
            address = told or self._candidate(queue, partition)
            try:
                return int(pool.call(*address, "partitionInfo", queue, partition).lastId)
            except HootError as error:
                if not error.retryable or time.monotonic() > end:
                    raise
                log.debug("the last id of %s/%d is asked for again: %s", queue, partition, error)
                told = parse_address(error.address)
            self._live = LiveHosts(())
            if told is None or pause:  # the first hint of where the owner is, is followed at once
                time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _PAUSE_SECONDS_MAX) or _PAUSE_SECONDS

    def _candidate(self, queue: str, partition: int) -> tuple[str, int]:
        """The owner, if it lives, else any host: it will become the owner."""
        if not self._live.able:
            self._live = LiveHosts(self._catalog.readable_hosts()[0])
        if not self._live.able:
            raise NoHost("no region host is running: start one with `hoot serve`")
        owner, _ = self._catalog.partition(queue, partition)
        chosen = self._live.owner(owner) or random.choice(self._live.able)
        return chosen.address, chosen.port
