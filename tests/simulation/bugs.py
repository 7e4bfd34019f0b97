"""Mistakes to plant, each a real one of somebody's system: a checker that misses them would miss ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from delivery.dispatch.buffer import Piece
from delivery.dispatch.ending import Ending
from delivery.dispatch.link import Link
from delivery.dispatch.scanner import MessageScanner
from delivery.dispatch.sender import MessageSender
from delivery.dispatch.shares import Shares
from delivery.dispatch.worker import SubscriptionWorker
from delivery.errors import HootError, Throttled
from delivery.ids import SEQUENCES_PER_MS, IdClock
from delivery.metastore.managers.records import state_key
from delivery.metastore.managers.states import SubscriptionStates
from delivery.metastore.tables.versions import Version
from delivery.publish.pending import Stored
from delivery.publish.publisher import Publisher
from delivery.publish.writer import PartitionWriter
from delivery.storage.base import Append, PartitionState, StoredBatch
from subscriber import pushes
from tests.simulation import client_bugs, hand_bugs, hbase_bugs, position_bugs
from tests.simulation.connection import SimulatedConnection
from tests.simulation.disk import Shelf, SimulatedStore
from tests.simulation.world import BY_HAND_FROM, GROUPS_FROM, HBASE_FROM, KEY_SHARED_FROM, REPLAYS_FROM

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


def _checkpoint_forgotten() -> Bug:
    """A new owner begins where the subscription began, whatever its checkpoint is."""
    take = SubscriptionStates.take_states

    def forgetful(states: SubscriptionStates, takes: Any) -> Any:
        return [
            one if isinstance(one, HootError)
            else msgspec.structs.replace(one, value=msgspec.structs.replace(one.value, position=0))
            for one in take(states, takes)
        ]  # fmt: skip

    return mock.patch.object(SubscriptionStates, "take_states", forgetful)


def _late_write_counts() -> Bug:
    """What lands from an owner after the seal of the next one is seen."""

    def land(shelf: Shelf, row: Append) -> bool:
        shelf.rows.append(row)
        return True

    return mock.patch.object(Shelf, "land", land)


def _bodies_swapped() -> Bug:
    """A subscriber takes the bodies of a batch from its end."""
    batches = pushes.batches

    def swapped(push: Any, after: int) -> Iterator[tuple[int, Any]]:
        for last_id, found in batches(push, after):
            messages = list(found)
            bodies = [one.body for one in reversed(messages)]
            pairs = zip(messages, bodies, strict=True)
            yield last_id, [msgspec.structs.replace(one, body=body) for one, body in pairs]

    return mock.patch.object(pushes, "batches", swapped)


def _id_skipped() -> Bug:
    """The scanner passes over a batch now and then, as a filter that is wrong would."""
    pieces = MessageScanner._pieces

    def skipping(scanner: MessageScanner, chunk: Any) -> list[Piece]:
        return [Piece(chunk.last_id, 0, b"")] if chunk.last_id % 61 == 0 else pieces(scanner, chunk)

    return mock.patch.object(MessageScanner, "_pieces", skipping)


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


def _ids_of_ones_own() -> Bug:
    """A new owner's ids follow its own clock, and not the last id that is stored."""

    def begin(clock: IdClock, last: int) -> None:
        clock.last = 0

    return mock.patch.object(IdClock, "__init__", begin)


def _waiting_on_a_replaced_event() -> Bug:
    """A link replaces the event that workers wait for, when a listener accepted and then did not answer in time.

    This one was there: a partition was not delivered until its subscription was attached anew.
    """
    attempt = Link._try

    async def replacing(link: Link) -> bool:
        is_up = await attempt(link)
        if not is_up:
            link._wanted = None
        return is_up

    return mock.patch.object(Link, "_try", replacing)


def _broken_is_not_ready() -> Bug:
    """A connection that broke while its socket was full never gets ready. This one was there, too."""
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
    breaks: str
    """The invariants as one of which it is found, with blanks between."""
    asserted: str = ""
    """What the assertion of the code under test says that finds it before the checker does."""
    first: int = 0
    """The seed to begin with: most are found by every tenth seed or so, some by far fewer: those begin near one."""

    def is_shown_by(self, told: str) -> bool:
        """Whether the report of a failure is of this mistake."""
        if self.asserted and self.asserted in told:
            return True
        return any(f"Violation {invariant}:" in told for invariant in self.breaks.split())


def _moved_at_once() -> Bug:
    """A partition goes to another member while the one before is at it."""
    recall = SubscriptionWorker.recall
    return mock.patch.object(SubscriptionWorker, "recall", lambda worker, _: recall(worker, 0))


def _given_back_and_forgotten() -> Bug:
    """What a member gives back of a partition is taken for handled."""
    end = MessageSender._finish_run

    def forgetting(sender: MessageSender, ending: Ending) -> None:
        if ending is Ending.RECALLED and not sender._window.empty:
            sender._on_position(sender._window.last_id)
        end(sender, ending)

    return mock.patch.object(MessageSender, "_finish_run", forgetting)


def _slots_gone_on_too_far() -> Bug:
    """Who gets keys of a partition goes on with them where the member is that has come furthest."""
    hand_over = Shares.hand_over

    def too_far(shares: Shares, member: str) -> None:
        before, furthest = list(shares._parts), max(part.position for part in shares._parts)
        hand_over(shares, member)
        for part in shares._parts:
            if not any(part is one for one in before):
                part.position = furthest

    return mock.patch.object(Shares, "hand_over", too_far)


PLANTED: dict[str, Planted] = {
    "no fence": Planted(_no_fence, "I1 I2"),
    "a watch trusted": Planted(_watch_trusted, "I1 I2"),
    "seal too low": Planted(_seal_too_low, "I1 I5"),
    "producers forgotten": Planted(_producers_forgotten, "I14"),
    "checkpoint at push": Planted(_checkpoint_at_push, "I5"),
    "id skipped": Planted(_id_skipped, "I5 I8"),
    "checkpoint forgotten": Planted(_checkpoint_forgotten, "I4 I9"),
    "late write counts": Planted(_late_write_counts, "I5 I6 I7 I8 I14", first=13),
    "bodies swapped": Planted(_bodies_swapped, "I2"),
    "watermark ahead": Planted(_watermark_ahead, "I1 I2"),
    "checkpoint unfenced": Planted(_checkpoint_unfenced, "I4"),
    "state not taken over": Planted(_state_not_taken_over, "I6"),
    "ids by clock": Planted(_ids_by_clock, "I1 I7", asserted="base id"),
    "ids of one's own": Planted(_ids_of_ones_own, "I7", asserted="base id", first=70),
    "unknown called refused": Planted(_unknown_called_refused, "I14", first=890),
    "waiting on a replaced event": Planted(_waiting_on_a_replaced_event, "I11", first=240),
    "broken is not ready": Planted(_broken_is_not_ready, "I11", first=80),
    "moved at once": Planted(_moved_at_once, "I9", first=GROUPS_FROM),
    "given back and forgotten": Planted(_given_back_and_forgotten, "I5", first=GROUPS_FROM + 80),
    "slots gone on too far": Planted(_slots_gone_on_too_far, "I5", first=KEY_SHARED_FROM),
    **{
        f"position: {name}": Planted(plant, breaks, first=REPLAYS_FROM)
        for name, (plant, breaks) in position_bugs.FOUND_AS.items()
    },
    **{
        f"hbase: {name}": Planted(plant, breaks, "Gone", HBASE_FROM + first)
        for name, (plant, breaks, first) in hbase_bugs.FOUND_AS.items()
    },
    **{f"by hand: {name}": Planted(*found, first=BY_HAND_FROM) for name, found in hand_bugs.FOUND_AS.items()},
    "client: numbered anew": Planted(client_bugs.numbered_anew, "I14"),
    "client: swapped after a redirect": Planted(client_bugs.swapped_after_redirect, "I3", first=70),
    "client: gone on during a retry": Planted(client_bugs.gone_on_during_retry, "I3", first=610),
    "client: doubt forgotten": Planted(client_bugs.doubt_forgotten, "I14", first=890),
    "client: deadline called refused": Planted(client_bugs.deadline_called_refused, "I14"),
    "client: answers mixed up": Planted(client_bugs.answers_mixed_up, "I1"),
    "client: answered by itself": Planted(client_bugs.answered_by_itself, "I1"),
}
