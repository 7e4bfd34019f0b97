"""Connections to region hosts that several threads share, one call at a time each."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

from delivery.errors import Closed, Throttled
from delivery.rpc.blocking import CALL_SECONDS, CONNECT_SECONDS, BlockingConnection

Address = tuple[str, int]
Idle = tuple[BlockingConnection, float]
"""A connection and since when nobody uses it."""


class Pool:
    """At most `connections_max` connections per address; idle ones are used again. Thread-safe.

    A connection that broke, or that its host closed while it was idle, is dropped, never handed out. Close the pool
    when done.
    """

    def __init__(
        self,
        *,
        connections_max: int = 8,
        idle_seconds: float = 60.0,
        connect_deadline: float = CONNECT_SECONDS,
        call_deadline: float = CALL_SECONDS,
    ) -> None:
        self._connections_max, self._idle_seconds = connections_max, idle_seconds
        self._connect_deadline, self._call_deadline = connect_deadline, call_deadline
        self._changed = threading.Condition()
        self._idle: dict[Address, list[Idle]] = {}
        self._lent: dict[Address, int] = {}
        self._closed = False

    def call(self, address: str, port: int, method: str, *args: Any, deadline: float | None = None) -> Any:
        """One call on a connection of the pool; as BlockingConnection.call, and the errors of `connection`."""
        with self.connection(address, port) as connection:
            return connection.call(method, *args, deadline=deadline)

    @contextlib.contextmanager
    def connection(self, address: str, port: int) -> Iterator[BlockingConnection]:
        """A connection for the `with` block alone.

        Raises HostUnreachable or DeadlineExceeded when none can be made, Throttled when all stay lent for as long as a
        call may take, Closed.
        """
        key = (address, port)
        self._borrow(key)
        connection = None
        try:
            connection = self._usable(key) or BlockingConnection(
                address, port, connect_deadline=self._connect_deadline, call_deadline=self._call_deadline
            )
            yield connection
        finally:
            self._give_back(key, connection)

    def close(self) -> None:
        """Close the idle connections now and lent ones when they come back. Closing twice is fine."""
        with self._changed:
            self._closed = True
            idle = [connection for kept in self._idle.values() for connection, _ in kept]
            self._idle.clear()
            self._changed.notify_all()
        for connection in idle:
            connection.close()

    def _borrow(self, key: Address) -> None:
        """Wait for the right to one connection of the address."""
        with self._changed:
            free = self._changed.wait_for(
                lambda: self._closed or self._lent.get(key, 0) < self._connections_max, self._call_deadline
            )
            if self._closed:
                raise Closed("the connections of this client are closed")
            if not free:
                raise Throttled(f"all {self._connections_max} connections to {key[0]}:{key[1]} are in use")
            self._lent[key] = self._lent.get(key, 0) + 1

    def _usable(self, key: Address) -> BlockingConnection | None:
        """The idle one that was used last, if one is still good; those that are not are closed.

        Whoever has the right to a connection takes one and leaves the others: no other has to make a new one meanwhile.
        """
        while True:
            chosen, old = self._choose(key)
            for connection in old:
                connection.close()
            if chosen is None or chosen.usable:
                return chosen
            chosen.close()

    def _choose(self, key: Address) -> tuple[BlockingConnection | None, list[BlockingConnection]]:
        """The idle one that was used last, and those that nobody has used for too long."""
        oldest = monotonic() - self._idle_seconds
        with self._changed:
            kept = self._idle.pop(key, [])
            young = [one for one in kept if one[1] > oldest]
            old = [connection for connection, since in kept if since <= oldest]
            chosen = young.pop()[0] if young else None
            if young:
                self._idle[key] = young
        return chosen, old

    def _give_back(self, key: Address, connection: BlockingConnection | None) -> None:
        with self._changed:
            left = self._lent[key] - 1
            if left:
                self._lent[key] = left
            else:
                del self._lent[key]
            keep = connection is not None and connection.usable and not self._closed
            if connection is not None and keep:
                self._idle.setdefault(key, []).append((connection, monotonic()))
            self._changed.notify_all()  # the one who is woken might wait for another address
        if connection is not None and not keep:
            connection.close()
