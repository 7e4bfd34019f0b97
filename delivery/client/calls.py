"""Calls of region hosts that change nothing: sent to the partition's owner, repeated until the deadline."""

from __future__ import annotations

import time
from typing import Any

from delivery.client.hosts import Owners, Route, retried
from delivery.metastore.live import Address
from delivery.metastore.records import HostRecord
from delivery.rpc.pool import Pool

CALL_SECONDS = 30.0
"""How long a call is tried, unless its caller says otherwise."""
ATTEMPT_SECONDS = 10.0
"""How long one host may take to answer before another look at who owns the partition."""


class Calls:
    """Calls by partition instead of by address. Thread-safe; closes nothing."""

    def __init__(self, owners: Owners, pool: Pool) -> None:
        self._owners, self._pool = owners, pool

    def call(
        self, queue: str, partition: int, method: str, *args: object, timeout: float = CALL_SECONDS, wait: float = 0.0
    ) -> Any:  # noqa: ANN401 - a struct of the IDL
        """The result of `method(*args)` from the partition's owner, tried for `timeout` seconds.

        `wait` is how long the host is asked to wait on purpose. Raises what the host refuses with; when time is up the
        last error, such as HostUnreachable, NoHost or MetadataUnavailable.
        """

        def attempt(address: Address, left: float) -> object:
            return self._pool.call(*address, method, *args, deadline=min(left, ATTEMPT_SECONDS) + wait)

        deadline = time.monotonic() + timeout + wait
        return retried(Route(self._owners, queue, partition), attempt, deadline, time.monotonic, time.sleep)

    def known(self, queue: str, partition: int) -> Address | None:
        """Who is taken for the partition's owner, as far as anybody has asked."""
        return self._owners.known(queue, partition)

    def ask(self, host: HostRecord, method: str, *args: object, timeout: float) -> Any:  # noqa: ANN401 - as above
        """What one host answers, once; raises what comes of it."""
        return self._pool.call(host.address, host.port, method, *args, deadline=timeout)
