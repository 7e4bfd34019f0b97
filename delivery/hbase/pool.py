"""Connections to the gateways that several threads share, one call at a time each."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, TypeVar

import happybase
from thriftpy2.thrift import TException

from delivery.errors import StorageUnavailable
from delivery.hbase.errors import BROKEN, Unreached, broken, refusal
from delivery.hbase.gateways import Address, Gateways

IDLE_SECONDS: Final = 30.0
"""A gateway closes a connection that was idle for a minute, and the next call on it would be lost: half of that."""

_T = TypeVar("_T")
_Idle = tuple[Any, Address, float]


class Pool:
    """At most `connections_max` connections over all gateways. Close it when done."""

    def __init__(self, addresses: Sequence[Address], *, connections_max: int, call_seconds: float) -> None:
        """`call_seconds` is the deadline of one exchange with a gateway, and of waiting for a connection."""
        self._gateways = Gateways(addresses)
        self._call_seconds = call_seconds
        self._room = threading.BoundedSemaphore(connections_max)
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []
        self._lent: dict[Address, int] = {}
        self._closed = False

    def call(self, work: Callable[[Any], _T]) -> _T:
        """The outcome of `work`, given a happybase connection for itself alone.

        Raises Unreached when no connection can be made, Lost when it broke, else what `refusal` says.
        """
        if not self._room.acquire(timeout=self._call_seconds):
            raise Unreached(f"all connections to HBase's Thrift gateways were busy for {self._call_seconds:g} s")
        try:
            connection, address = self._take()
            return self._use(connection, address, work)
        finally:
            self._room.release()

    def close(self) -> None:
        """Close every connection that nobody uses; the others close after their call."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection, _, _ in idle:
            _close(connection)

    def _use(self, connection: Any, address: Address, work: Callable[[Any], _T]) -> _T:
        keep = False
        try:
            outcome = work(connection)
            keep = True
            return outcome
        except BROKEN as error:
            raise broken(error, _name(address)) from error
        except TException as error:
            keep = True
            raise refusal(error) from error
        finally:
            self._give(connection, address, keep=keep)

    def _take(self) -> tuple[Any, Address]:
        now = monotonic()
        with self._lock:
            if self._closed:
                raise StorageUnavailable("the connections to HBase are closed")
            stale: list[Any] = []
            found = None
            while self._idle and found is None:
                connection, address, since = self._idle.pop()
                if now - since < IDLE_SECONDS and self._gateways.good(address, now):
                    found = connection, address
                else:
                    stale.append(connection)
            at = found[1] if found else self._gateways.next(self._lent, now)
            self._lent[at] = self._lent.get(at, 0) + 1
        for connection in stale:
            _close(connection)
        return found or (self._connect(at), at)

    def _connect(self, address: Address) -> Any:
        host, port = address
        try:
            return happybase.Connection(
                host, port, timeout=round(self._call_seconds * 1000), transport="framed", protocol="binary"
            )
        except BROKEN as error:
            with self._lock:
                self._lent[address] -= 1
                self._gateways.failed(address, monotonic())
            raise Unreached(f"HBase Thrift gateway {_name(address)} cannot be reached") from error

    def _give(self, connection: Any, address: Address, *, keep: bool) -> None:
        now = monotonic()
        with self._lock:
            self._lent[address] -= 1
            if keep:
                self._gateways.worked(address)
            else:
                self._gateways.failed(address, now)
            if keep and not self._closed:
                self._idle.append((connection, address, now))
                return
        _close(connection)


def _name(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _close(connection: Any) -> None:
    with contextlib.suppress(*BROKEN):
        connection.close()
