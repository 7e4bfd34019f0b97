"""How this host delivers a subscription: observations with what takes a read, or a question to the subscriber."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import trio

from delivery.cluster.ownership import Ownership
from delivery.cluster.partition import OwnedPartition
from delivery.dispatch.delivery import Delivery
from delivery.dispatch.lines import Connect
from delivery.dispatch.observation import Callback, Observation
from delivery.dispatch.viewing import Moment, observations
from delivery.errors import HootError, SubscriberUnreachable
from delivery.ids import MessageId
from delivery.metastore.records import ListenerRecord
from delivery.metastore.state import State
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import check_name
from delivery.rpc.connection import Connection
from delivery.rpc.protocol import load_idl

log = logging.getLogger(__name__)

OBSERVATIONS_MAX: Final = 256
"""In one answer."""
ASK_AFTER_SECONDS: Final = 1.0
"""A push that is answered sooner is not worth a question."""
ASK_SECONDS: Final = 2.0
"""For the subscriber's answer, of which it looks at its callbacks for half a second."""
COUNTED_AT_ONCE: Final = 4
"""Partitions whose lag is counted at a time, of all that are asked for: deliveries read, too."""

Answer = Sequence[Callback] | HootError
"""What a subscriber runs, as far as it can tell, or why it does not answer."""


class Deliveries:
    """What a host delivers, as operators and scrapers see it."""

    def __init__(
        self, running: Callable[[], Sequence[Delivery]], ownership: Ownership, zookeeper: ZooKeeperClient
    ) -> None:  # fmt: skip
        self._running, self._ownership = running, ownership
        self._zookeeper_lost: float | None = None
        zookeeper.on_state(self._note_state)
        self._counting = trio.CapacityLimiter(COUNTED_AT_ONCE)
        self._idl = load_idl("delivery")

    def all(self) -> Iterable[tuple[Delivery, list[Observation]]]:
        """Everything, without reading or asking."""
        at = Moment.now()
        return ((one, [self._noted(seen, at) for seen in observations(one, at)]) for one in self._running())

    async def observe(self, queue: str, subscription: str, after: int | None, limit: int | None) -> list[Any]:
        """See the IDL."""
        place = (check_name("queue", queue), check_name("subscription", subscription))
        delivery = next((one for one in self._running() if one.place == place), None)
        if delivery is None:
            return []
        first = -1 if after is None else after
        known = sorted(one for one in delivery.known if one > first)[: min(max(limit or 0, 1), OBSERVATIONS_MAX)]
        at = Moment.now()
        found = [self._noted(seen, at) for seen in observations(delivery, at, known)]
        told = await _ask(delivery, found)
        answered = [_answered(one, told.get(one.partition, ())) for one in found]
        return [self._packed(one) for one in await self.counted(place, answered)]

    def _note_state(self, state: State) -> None:
        """On kazoo's thread: since when there is no connection."""
        self._zookeeper_lost = None if state == "steady" else self._zookeeper_lost or time.monotonic()

    def _owned(self, queue: str, partition: int) -> OwnedPartition | None:
        try:
            return self._ownership.owned(queue, partition)
        except HootError:
            return None

    def _noted(self, seen: Observation, at: Moment) -> Observation:
        lost = self._zookeeper_lost
        return seen if lost is None else msgspec.structs.replace(seen, zookeeper_lost_ms=at.ms(lost))

    async def counted(self, place: tuple[str, str], seen: Sequence[Observation]) -> list[Observation]:
        """With their lags, as far as this host owns the partitions still."""
        found, (queue, name) = list(seen), place

        async def count(at: int, owned: OwnedPartition) -> None:
            async with self._counting:
                try:
                    found[at] = await _with_lag(found[at], owned, name)
                except HootError as error:
                    log.debug("the lag of %s/%d cannot be told: %s", queue, found[at].partition, error)

        async with trio.open_nursery() as nursery:
            for at, one in enumerate(seen):
                if (owned := self._owned(queue, one.partition)) is not None and one.stage != "starting":
                    nursery.start_soon(count, at, owned)
        return found

    def _packed(self, seen: Observation) -> Any:
        fields: dict[str, Any] = msgspec.to_builtins(seen)
        if fields["callback"] is not None:
            fields["callback"] = self._idl.RunningCallback(**fields["callback"])
        return self._idl.Observation(**fields)


async def _with_lag(seen: Observation, owned: OwnedPartition, subscription: str) -> Observation:
    if seen.position >= seen.last:
        return msgspec.structs.replace(seen, lag=0, lag_bytes=0)
    amount = await owned.measure(seen.position, seen.last)
    chunk = await owned.read_stored(seen.position, 1)
    header = None if chunk is None else chunk.headers[0]
    oldest = 0 if header is None else MessageId(max(header.base_id, seen.position + 1)).timestamp_ms
    return msgspec.structs.replace(
        seen, lag=amount.messages, lag_bytes=amount.bytes, oldest_ms=oldest if amount.messages else 0,
        holding=owned.holds(subscription),
    )  # fmt: skip


async def _ask(delivery: Delivery, seen: Sequence[Observation]) -> Mapping[int, Answer]:
    """By partition what its listener runs, for those that have waited for it for long. All are asked at once.

    Where keys wait it may be for a callback that runs on beyond its limit.
    """
    waiting: dict[ListenerRecord, list[int]] = {}
    for one in seen:
        holder = delivery.listener(one.partition, one.member)
        waits = one.parked or (one.out_since_ms and one.now_ms - one.out_since_ms >= ASK_AFTER_SECONDS * 1000)
        if waits and holder is not None and holder.protocol == "packed" and not one.unreachable_ms:
            waiting.setdefault(holder, []).append(one.partition)
    told: dict[int, Answer] = {}

    async def ask(listener: ListenerRecord, partitions: Sequence[int]) -> None:
        told.update(dict.fromkeys(partitions, await _ask_one(delivery, listener)))

    async with trio.open_nursery() as nursery:
        for listener, partitions in waiting.items():
            nursery.start_soon(ask, listener, partitions)
    return told


async def _ask_one(delivery: Delivery, listener: ListenerRecord) -> Answer:
    try:
        with trio.fail_after(ASK_SECONDS):
            return await _running(delivery.connect, listener, *delivery.place)
    except trio.TooSlowError:
        return SubscriberUnreachable(f"the subscriber at {listener.host_port} accepts connections and says nothing")
    except SubscriberUnreachable as error:
        return error
    except HootError as error:
        log.debug("the subscriber at %s cannot tell what it runs: %s", listener.host_port, error)
        return ()


async def _running(connect: Connect, listener: ListenerRecord, queue: str, subscription: str) -> list[Callback]:
    """On a connection of its own: on that of the pushes it would wait for their answers."""
    connection = await connect(listener.address, listener.port)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(_receive, connection))
            found = await connection.call("Listener", "running", queue, subscription, listener.token)
            nursery.cancel_scope.cancel()
        names = Callback.__struct_fields__
        return [Callback(**{name: getattr(one, name) for name in names if name in vars(one)}) for one in found]
    finally:
        with trio.CancelScope(shield=True):
            await connection.aclose()


async def _receive(connection: Connection) -> None:
    try:
        await connection.run()
    except HootError as error:
        log.debug("the connection for a question broke: %s", error)  # which the call hears of, too


def _answered(seen: Observation, told: Answer) -> Observation:
    """With what the subscriber told."""
    if isinstance(told, HootError):
        return msgspec.structs.replace(seen, unreachable_ms=seen.out_since_ms, unreachable=told.message)
    if seen.out_since_ms and not seen.paused_ms and any(one.held for one in told):
        return msgspec.structs.replace(seen, paused_ms=seen.out_since_ms, paused_by="its subscriber")
    own = [one for one in told if one.partition == seen.partition]  # without one, another partition's holds it up
    longest = max(own or told, key=lambda one: (not one.moving, one.seconds), default=None)
    return msgspec.structs.replace(seen, callback=longest)
