"""What a host has to do with the others: it calls them, and it holds a connection to each, to notice its end.

The kernel of a machine whose host was killed closes the host's connections at once, long before the session ends in
ZooKeeper. A closed connection alone proves nothing; that the next one is refused says that nobody listens there.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from delivery.cluster.hosts.table import HostTable
from delivery.metastore.records import HostRecord
from delivery.rpc.pool import Pool

log = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 1.0
CALLS_AT_ONCE: Final = 8
"""To each host, in threads."""
TELL_SECONDS: Final = 1.0
"""For news, which may get lost."""
_PAUSE_SECONDS: Final = 1.0


class Peers:
    """The other hosts. `run` owns the connections that are only held; `close` closes those of calls."""

    def __init__(self, hosts: HostTable, is_gone: Callable[[HostRecord], bool]) -> None:
        """`is_gone` probes a host, blocking."""
        self._hosts, self._is_gone = hosts, is_gone
        self._pool = Pool(connections_max=CALLS_AT_ONCE, connect_deadline=CONNECT_SECONDS)
        self._limiter = trio.CapacityLimiter(2 * CALLS_AT_ONCE)
        self._held: dict[tuple[str, int], trio.CancelScope] = {}
        self._changed = trio.Event()
        self._complained: set[str] = set()
        hosts.on_read(self._look)

    async def take_partition(self, host: HostRecord, queue: str, partition: int, seconds: float) -> None:
        """Have another host take a partition that is its own by the record, or nobody's; returns when it has.

        Raises what it refuses with, HostUnreachable, DeadlineExceeded.
        """
        call = partial(self._pool.call, host.address, host.port, "takePartition", queue, partition, deadline=seconds)
        await trio.to_thread.run_sync(call, limiter=self._limiter)

    async def tell_freed(self, host: HostRecord, queue: str, partitions: Sequence[int], unable: str) -> None:
        """Say that nobody owns these partitions; the host `unable` could not. Raises HootError when it is not heard."""
        call = partial(
            self._pool.call, host.address, host.port, "partitionsFreed", queue, partitions, unable,
            deadline=TELL_SECONDS,
        )  # fmt: skip
        await trio.to_thread.run_sync(call, limiter=self._limiter)

    def close(self) -> None:
        """Close the connections of calls."""
        self._pool.close()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold a connection to each other host until cancelled."""
        task_status.started()
        async with trio.open_nursery() as nursery:
            while True:
                self._changed = trio.Event()
                others = {(host.host, host.session): host for host in self._hosts.others}
                for key in others.keys() - self._held.keys():
                    self._held[key] = trio.CancelScope()
                    nursery.start_soon(self._hold, others[key])
                await self._changed.wait()

    def _look(self) -> None:
        for (host, session), scope in self._held.items():
            if not self._hosts.is_registered(host, session):
                scope.cancel()
        self._changed.set()

    async def _hold(self, host: HostRecord) -> None:
        """As long as it is registered under that session."""
        key = (host.host, host.session)
        with self._held[key]:
            while self._hosts.is_registered(*key):
                await self._hold_once(host)
                gone = await trio.to_thread.run_sync(self._is_gone, host)
                self._hosts.mark(host, dead=gone)
                await trio.sleep(_PAUSE_SECONDS)
        del self._held[key]

    async def _hold_once(self, host: HostRecord) -> None:
        """Until the connection ends, or there is none to be had."""
        try:
            with trio.fail_after(CONNECT_SECONDS):
                stream = await trio.open_tcp_stream(host.address, host.port)
        except (socket.gaierror, ValueError) as error:
            if host.host not in self._complained:
                log.error("host %s is registered at %r, which is found nowhere: %s", host.host, host.address, error)
                self._complained.add(host.host)
            return
        except (OSError, trio.TooSlowError) as error:
            log.debug("no connection to host %s at %s: %s", host.host, host.host_port, error)
            return
        self._hosts.mark(host, dead=False)
        async with stream:
            try:
                await stream.receive_some(1)  # a host says nothing unasked: this is the end
            except trio.BrokenResourceError:
                return
