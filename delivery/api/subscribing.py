"""The calls with which a program in any language subscribes: the durable subscription, and its listener under a lease.

Starts may have to be asked for at other hosts, so that creating works in a thread, as a client of all hosts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, TypeVar, get_args

import trio

from delivery.api.leases import Leases, Member, Place
from delivery.client.admin import Admin
from delivery.client.calls import Calls
from delivery.client.filtering import change
from delivery.client.hosts import Owners
from delivery.errors import InvalidRequest
from delivery.filters import KEEP
from delivery.metastore.catalog import Catalog
from delivery.metastore.flow import Flow
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.request import Request, check_request
from delivery.model import check_name
from delivery.networks import Networks
from delivery.rpc.pinned import allowed_addresses
from delivery.rpc.pool import Pool

LEASE_MS: Final = 30_000
LEASE_MS_MIN: Final = 1_000
LEASE_MS_MAX: Final = 600_000
TOKEN_MIN: Final = 16
TEXT_MAX: Final = 255
"""Characters of an address or a token."""

_THREADS: Final = 8
_Kind = Literal["packed", "plain"]
T = TypeVar("T")


class SubscribingCalls:
    """Subscriptions and who is attached. `run` owns the leases and the connections to other hosts."""

    def __init__(self, catalog: Catalog, member: Member, networks: Networks) -> None:
        """`networks` are those of listeners."""
        self._networks = networks
        self._pool = Pool()
        owners = Owners(catalog)
        self._admin = Admin(catalog, owners, Calls(owners, self._pool))
        self.leases = Leases(catalog, member, networks)
        self._limiter = trio.CapacityLimiter(_THREADS)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """End leases that are not renewed, until cancelled."""
        try:
            await self.leases.run(task_status=task_status)
        finally:
            self._pool.close()

    async def create(self, queue: str, name: str, options: Any) -> None:
        """See createSubscription in the IDL."""
        place, request = _place(queue, name), _request(queue, options)
        await self._hop(partial(self._admin.create_subscription, place[1], request))

    async def update(self, queue: str, name: str, changes: Any) -> None:
        """See updateSubscription in the IDL."""
        place, wanted = _place(queue, name), _changes(changes)
        await self._hop(partial(self._admin.update_subscription, *place, wanted, dry_run=False))

    async def pause(self, queue: str, name: str, for_ms: int | None) -> None:
        """See pauseSubscription in the IDL."""
        seconds = for_ms / 1000 if for_ms else None
        await self._hop(partial(self._admin.pausing.pause, *_place(queue, name), None, seconds))

    async def resume(self, queue: str, name: str) -> None:
        """See resumeSubscription in the IDL."""
        await self._hop(partial(self._admin.pausing.resume, *_place(queue, name)))

    async def delete(self, queue: str, name: str) -> None:
        """See deleteSubscription in the IDL."""
        await self._hop(partial(self._admin.delete_subscription, *_place(queue, name)))

    async def attach(self, queue: str, name: str, listener: Any, lease_ms: int | None, force: bool | None) -> None:
        """See attachListener in the IDL."""
        lease = lease_ms or LEASE_MS
        if not LEASE_MS_MIN <= lease <= LEASE_MS_MAX:
            raise InvalidRequest(f"a lease takes {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, not {lease}")
        place, record = _place(queue, name), _listener(listener)
        await allowed_addresses(self._networks, record.address)
        await self.leases.attach(place, record, lease / 1000, force=bool(force))

    async def detach(self, queue: str, name: str, listener: Any) -> None:
        """See detachListener in the IDL."""
        await self.leases.detach(_place(queue, name), _listener(listener))

    async def _hop(self, work: Callable[[], T]) -> T:
        """In a thread, which a host that stops does not wait for: what it writes is one record."""
        return await trio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)


def _place(queue: str, name: str) -> Place:
    return check_name("queue", queue), check_name("subscription", name)


def _request(queue: str, options: Any) -> Request:
    """What the options ask for; all partitions and topics from the latest message on without any."""
    if options is None:
        return check_request(queue, None, None, "latest")
    if options.start and options.starts:
        raise InvalidRequest("give one start, or starts by partition, and not both")
    start = options.starts or options.start or "latest"
    return check_request(
        queue, options.partitions or None, options.topics or None, start, options.filter or None,
        retry=_given(options.retryPolicy, RetryPolicy), bound=options.bound, kind=options.kind or None,
        flow=_given(options.flow, Flow), isolation=options.isolation or None,
    )  # fmt: skip


def _changes(given: Any) -> Callable[[SubscriptionRecord], SubscriptionRecord]:
    if given is None:
        raise InvalidRequest("the call names nothing that is to change")
    return change(
        KEEP if given.topics is None else given.topics or None, KEEP if given.filter is None else given.filter or None,
        _given(given.retryPolicy, RetryPolicy), given.bound, _given(given.flow, Flow),
        given.kind or None, isolation=given.isolation or None,
    )  # fmt: skip


def _given(given: Any, kind: type[RetryPolicy | Flow]) -> dict[str, Any]:
    """The fields of a struct of the IDL that are given, by their names in Python."""
    camel = {name: re.sub("_(.)", lambda found: found[1].upper(), name) for name in kind.__struct_fields__}
    fields = {name: getattr(given, other, None) for name, other in camel.items()}
    return {name: value for name, value in fields.items() if value is not None}


def _listener(given: Any) -> ListenerRecord:
    if given is None:
        raise InvalidRequest("the call names no listener")
    kind: _Kind = given.protocol or "plain"
    if kind not in get_args(_Kind):
        raise InvalidRequest(f"a listener's protocol is one of {', '.join(get_args(_Kind))}, not {str(kind)[:40]!r}")
    if not given.address or len(given.address) > TEXT_MAX or not given.address.isprintable():
        raise InvalidRequest(f"{str(given.address)[:40]!r} is no address of a listener")
    if given.port is None or not 0 < given.port < 65_536:
        raise InvalidRequest(f"{given.port} is no port of a listener")
    if not TOKEN_MIN <= len(given.token or "") <= TEXT_MAX:
        raise InvalidRequest(f"a listener's token has {TOKEN_MIN} to {TEXT_MAX} characters")
    return ListenerRecord(address=given.address, port=given.port, token=given.token, protocol=kind)
