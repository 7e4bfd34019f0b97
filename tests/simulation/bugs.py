"""Mistakes to plant, each a real one of somebody's system: a checker that misses them would miss ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import trio

from delivery.dispatch.buffer import Piece
from delivery.dispatch.link import Link
from delivery.dispatch.scanner import MessageScanner
from delivery.dispatch.sender import MessageSender
from delivery.errors import Throttled
from delivery.ids import SEQUENCES_PER_MS, IdClock
from delivery.metastore.managers.records import state_key
from delivery.metastore.managers.states import SubscriptionStates
from delivery.metastore.tables.versions import Version
from delivery.publish.pending import Stored
from delivery.publish.publisher import Publisher
from delivery.publish.writer import PartitionWriter
from delivery.storage.base import PartitionState, StoredBatch
from tests.simulation import client_bugs
from tests.simulation.connection import SimulatedConnection
from tests.simulation.disk import Shelf, SimulatedStore

Bug = Any
"""A context in which the mistake is made."""


def _no_fence() -> Bug:
    """The store confirms a write without looking at the epoch."""
    return mock.patch.object(SimulatedStore, "_still_owned", return_value=True)


def _watch_trusted() -> Bug:
    """The store confirms a write as long as the host has not heard that its session is over."""

    def believed(store: SimulatedStore, *_: object) -> bool:
        machine: Any = store._machine
        return bool(machine.session.state != "lost")

    return mock.patch.object(SimulatedStore, "_still_owned", believed)


def _seal_too_low() -> Bug:
    """A new owner seals below the last row that is there."""
    seal = Shelf.seal

    def too_low(shelf: Shelf, epoch: int) -> PartitionState:
        if shelf.rows and shelf.rows[-1].epoch < epoch:
            shelf.rows.pop()
        return seal(shelf, epoch)

    return mock.patch.object(Shelf, "seal", too_low)


def _producers_forgotten() -> Bug:
    """A new owner does not know what the one before had stored of a producer."""
    seal = Shelf.seal

    def forgetful(shelf: Shelf, epoch: int) -> PartitionState:
        nothing: tuple[StoredBatch, ...] = ()
        return msgspec.structs.replace(seal(shelf, epoch), producers=nothing)

    return mock.patch.object(Shelf, "seal", forgetful)


def _checkpoint_at_push() -> Bug:
    """The position moves when a push goes out instead of when it is acknowledged."""
    send = MessageSender._send

    def early(sender: MessageSender, piece: Piece, target: Any) -> None:
        send(sender, piece, target)
        sender._on_position(piece.last_id)

    return mock.patch.object(MessageSender, "_send", early)


def _id_skipped() -> Bug:
    """The scanner passes over a batch now and then, as a filter that is wrong would."""
    piece = MessageScanner._piece

    def skipping(scanner: MessageScanner, chunk: Any) -> Piece:
        return Piece(chunk.last_id, 0, b"") if chunk.last_id % 61 == 0 else piece(scanner, chunk)

    return mock.patch.object(MessageScanner, "_piece", skipping)


def _watermark_ahead() -> Bug:
    """Batches are shown to readers when they are stamped, before they are stored."""
    take, stored = PartitionWriter.take, PartitionWriter.stored

    def hasty(writer: PartitionWriter, pending: Any) -> Any:
        entry = take(writer, pending)
        if entry is not None:
            stored(writer, entry)
        return entry

    def late(_: PartitionWriter, entry: Any) -> Stored:
        header = entry.append.header
        return Stored(header.base_id, header.count, entry.append.durability)

    return mock.patch.multiple(PartitionWriter, take=hasty, stored=late)


def _checkpoint_unfenced() -> Bug:
    """States are saved whatever their version: an owner that was taken over from goes on."""
    save = SubscriptionStates.save_states

    def unfenced(states: SubscriptionStates, saves: Any) -> Any:
        return save(states, [msgspec.structs.replace(one, version=Version.ANY) for one in saves])

    return mock.patch.object(SubscriptionStates, "save_states", unfenced)


def _state_not_taken_over() -> Bug:
    """A new owner reads where to go on, and lets the one before go on saving."""
    take = SubscriptionStates.take_states

    def reading(states: SubscriptionStates, takes: Any) -> Any:
        keys = [state_key(one.preferences.queue, one.preferences.name, one.partition) for one in takes]
        outcomes: list[Any] = list(states._read(keys))
        for at, (one, there) in enumerate(zip(takes, outcomes, strict=True)):
            if there is None:
                [outcomes[at]] = take(states, [one])
            else:
                mine = msgspec.structs.replace(there.value, epoch=one.epoch)
                outcomes[at] = msgspec.structs.replace(there, value=mine)
        return outcomes

    return mock.patch.object(SubscriptionStates, "take_states", reading)


def _ids_by_clock() -> Bug:
    """Ids follow the wall clock, wherever it steps."""

    def take(clock: IdClock, count: int, now_ms: int) -> int:
        base = now_ms * SEQUENCES_PER_MS
        clock.last = base + count - 1
        return base

    return mock.patch.object(IdClock, "take", take)


def _waiting_on_a_replaced_event() -> Bug:
    """A link replaces the event that workers wait for, when a listener accepted and then did not answer in time.

    This one was there: a partition was not delivered until its subscription was attached anew.
    """
    serve_one = Link._serve_one

    async def replacing(link: Link, *args: Any) -> bool:
        try:
            return await serve_one(link, *args)
        finally:
            link._connected = trio.Event()

    return mock.patch.object(Link, "_serve_one", replacing)


def _broken_is_not_ready() -> Bug:
    """A connection that broke while its socket was full never gets ready, and does not say that it is broken.

    This one was there, too: the sender waited, and the partition was not delivered any more.
    """
    return mock.patch.object(SimulatedConnection, "ready", property(lambda self: not self._full))


def _unknown_called_refused() -> Bug:
    """A publish that could not be confirmed is answered as not stored."""

    def failed(publisher: Publisher, entry: Any, error: Any) -> None:
        publisher._ownership.poison(entry.writer.owned, error)
        publisher._end(entry.pending, Throttled("it was not stored"))

    return mock.patch.object(Publisher, "failed", failed)


class Planted(NamedTuple):
    """A mistake, and what the checker calls it."""

    plant: Callable[[], Any]
    """Gives a context in which it is made."""
    shows_as: str = "Violation I"
    first: int = 0
    """The seed to begin with: most are found by every tenth seed or so, some by far fewer."""


PLANTED: dict[str, Planted] = {
    "no fence": Planted(_no_fence),
    "a watch trusted": Planted(_watch_trusted),
    "seal too low": Planted(_seal_too_low),
    "producers forgotten": Planted(_producers_forgotten),
    "checkpoint at push": Planted(_checkpoint_at_push),
    "id skipped": Planted(_id_skipped),
    "watermark ahead": Planted(_watermark_ahead),
    "checkpoint unfenced": Planted(_checkpoint_unfenced),
    "state not taken over": Planted(_state_not_taken_over),
    "ids by clock": Planted(_ids_by_clock, "base id"),
    "unknown called refused": Planted(_unknown_called_refused, first=300),
    "waiting on a replaced event": Planted(_waiting_on_a_replaced_event),
    "broken is not ready": Planted(_broken_is_not_ready),
    "client: numbered anew": Planted(client_bugs.numbered_anew),
    "client: swapped after a redirect": Planted(client_bugs.swapped_after_redirect),
    "client: gone on during a retry": Planted(client_bugs.gone_on_during_retry),
    "client: doubt forgotten": Planted(client_bugs.doubt_forgotten),
    "client: deadline called refused": Planted(client_bugs.deadline_called_refused),
    "client: answers mixed up": Planted(client_bugs.answers_mixed_up),
    "client: answered by itself": Planted(client_bugs.answered_by_itself),
}
