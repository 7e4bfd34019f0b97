"""Listeners without a ZooKeeper session of their own: this host attaches them, and detaches whoever does not renew.

A listener's znode lives with this host's session, and names the host. So when the host dies, the listener is detached
with it, unless it has renewed its lease at another host by then, which makes the znode anew under that one's session.
What a host attached it takes off itself when a lease ends, and never what another one holds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol

import msgspec
import trio

from delivery.errors import HootError, InvalidRequest
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.networks import Networks
from delivery.rpc.hello import is_alive

log = logging.getLogger(__name__)

_THREADS: Final = 16
_PAUSE_SECONDS: Final = 1.0
"""After a listener could not be detached."""

Place = tuple[str, str]
"""A queue and the name of a subscription to it."""


class Listeners(Protocol):
    """Who is attached (metastore.catalog.Catalog); blocking."""

    def listener(self, queue: str, name: str) -> ListenerRecord | None:
        """Who is attached."""

    def subscription(self, queue: str, name: str) -> SubscriptionRecord | None:
        """Its preferences, None when it is not there."""

    def attach(self, queue: str, name: str, record: ListenerRecord, *, replace: ListenerRecord | None = None) -> None:
        """Attach for as long as the session lives. Raises SubscriptionBusy, UnknownSubscription, UnknownQueue."""

    def detach(self, queue: str, name: str, record: ListenerRecord) -> None:
        """Detach, if it is attached."""


class Member(Protocol):
    """This host (cluster.hosts.membership.Membership)."""

    @property
    def host(self) -> str:
        """Its id."""

    @property
    def session(self) -> int:
        """Its session. Raises MetadataUnavailable while there is none to rely on."""


class _Lease(msgspec.Struct, frozen=True):
    record: ListenerRecord
    session: int
    until: float


class Leases:
    """The listeners that this host holds. For the trio thread; `run` ends their leases."""

    def __init__(self, listeners: Listeners, member: Member, networks: Networks) -> None:
        """`networks` are those in which listeners are asked whether they live."""
        self._listeners, self._member, self._networks = listeners, member, networks
        self._leases: dict[Place, _Lease] = {}
        self._locks: dict[Place, trio.Lock] = {}
        self._changed = trio.Event()
        self._limiter = trio.CapacityLimiter(_THREADS)

    def __len__(self) -> int:
        return len(self._leases)

    async def attach(self, place: Place, listener: ListenerRecord, seconds: float, *, force: bool) -> None:
        """Attach a listener for so long, or renew its lease. `force` takes over from whoever is attached.

        Raises SubscriptionBusy while another one that lives is attached, UnknownSubscription, UnknownQueue,
        MetadataUnavailable; InvalidRequest for a plain listener where keys have an order of their own.
        """
        record = msgspec.structs.replace(listener, lease=self._member.host)
        async with self._alone(place):
            session, held = self._member.session, self._leases.get(place)
            stands = held is not None and (held.record, held.session) == (record, session)
            await self._hop(partial(self._attach, place, record, stands=stands, force=force))
            self._leases[place] = _Lease(record, session, trio.current_time() + seconds)
        self._changed.set()

    async def detach(self, place: Place, listener: ListenerRecord) -> None:
        """Detach a listener, whichever host holds it; fine when it is not attached. Raises MetadataUnavailable."""
        async with self._alone(place):
            await self._hop(partial(self._detach, place, listener))
            held = self._leases.get(place)
            if held is not None and _same(held.record, listener):
                del self._leases[place]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """End leases when they are due, until cancelled. What is attached then goes with the session."""
        task_status.started()
        while True:
            self._changed = trio.Event()
            with trio.move_on_at(min((lease.until for lease in self._leases.values()), default=math.inf)):
                await self._changed.wait()
            now = trio.current_time()
            for place in [place for place, lease in self._leases.items() if lease.until <= now]:
                await self._end(place)

    async def _end(self, place: Place) -> None:
        """Detach a listener whose lease is over, unless it was renewed meanwhile."""
        async with self._alone(place):
            lease = self._leases.get(place)
            if lease is None or lease.until > trio.current_time():
                return
            try:
                await self._hop(partial(self._listeners.detach, *place, lease.record))
            except HootError as error:
                log.warning("subscription %s on %s: its listener cannot be detached: %s", *place[::-1], error)
                again = trio.current_time() + _PAUSE_SECONDS
                self._leases[place] = msgspec.structs.replace(lease, until=again)
                return
            del self._leases[place]
            log.info("subscription %s on %s: the listener at %s is detached, its lease was not renewed", *place[::-1],
                     lease.record.host_port)  # fmt: skip

    def _attach(self, place: Place, record: ListenerRecord, *, stands: bool, force: bool) -> None:
        found = self._listeners.listener(*place)
        if found == record and stands:
            return
        if record.protocol == "plain" and (found is None or not _same(found, record)):
            self._check_order(*place)
        free = found is not None and (force or _same(found, record) or not is_alive(found, *place, [self._networks]))
        self._listeners.attach(*place, record, replace=found if free else None)

    def _check_order(self, queue: str, name: str) -> None:
        subscription = self._listeners.subscription(queue, name)
        if subscription is not None and subscription.retry.order == "key":
            raise InvalidRequest(
                f"subscription {name!r} has the order of keys, and a plain listener can say only of a whole list that"
                " it failed: implement Listener, or give the subscription the order of partitions"
            )

    def _detach(self, place: Place, listener: ListenerRecord) -> None:
        found = self._listeners.listener(*place)
        if found is not None and _same(found, listener):
            self._listeners.detach(*place, found)

    async def _hop(self, work: Callable[[], None]) -> None:
        await trio.to_thread.run_sync(work, limiter=self._limiter)

    @asynccontextmanager
    async def _alone(self, place: Place) -> AsyncIterator[None]:
        """One at a time for each subscription."""
        lock = self._locks.setdefault(place, trio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._locks.pop(place, None)


def _same(one: ListenerRecord, other: ListenerRecord) -> bool:
    """Whether it is the same listener, whoever holds it."""
    return (one.address, one.port, one.token) == (other.address, other.port, other.token)
