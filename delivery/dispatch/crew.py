"""The Crew: a partition of a subscription that several members share, key by key (kind "key_shared").

Each member has a lane: a worker of its own, which scans the partition and takes what is in the member's slots. So one
that is slow, stuck or failing holds up nobody else. `shares` decides who has what; here is the starting and ending of
lanes, and the waiting until a member that is to give up slots handles nothing of them any more:

1. Its lane leaves: the member ends the push that it is at, and gives back what it has not begun.
2. It is asked whether it has ended everything that it was ever sent, by former owners of the partition, too, or over a
   connection that broke. It answers in order, so that the answer to an empty push says so.
3. The slots go over, with what is parked in them, and that is saved before the new member gets anything: a new owner of
   the partition has to know whom to ask. The old one goes on with the slots that it keeps.

A member that is gone, as ZooKeeper has it, is not asked. One that is there is waited for, however long it takes: what
it handles is given to nobody else meanwhile, which is what the order of keys asks for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

import google_crc32c
import msgspec
import trio

from delivery.dispatch.link import Link
from delivery.dispatch.members import Seat
from delivery.dispatch.runs import Runs
from delivery.dispatch.scanner import Judge
from delivery.dispatch.shares import Lane, Shares
from delivery.dispatch.slotting import InSlots, SlotColumns
from delivery.dispatch.target import STATUS_OK, STATUS_STALE, Answer, More, Stream, Target
from delivery.dispatch.worker import Begin, Ledger, SubscriptionWorker
from delivery.errors import Fenced, HootError
from delivery.filters import Filter
from delivery.metastore.managers.records import Attempts, ParkedKey, Share
from delivery.metastore.slots import as_ranges

_PAUSE_SECONDS = 1.0
"""Before a listener that refused is asked again."""

Make = Callable[[Stream, Begin, Judge, Ledger], SubscriptionWorker]
"""Makes a worker of the partition."""


class SharedLedger(Protocol):
    """Where progress is written down (progress.Progress)."""

    def note_shares(self, position: int, shares: tuple[Share, ...]) -> None:
        """How far the members are."""

    def note_parked(self, parked: tuple[ParkedKey, ...]) -> None:
        """What is parked in all slots; a position that moves with it is noted in the same turn of the loop."""

    async def keep(self) -> tuple[Share, ...]:
        """Save all that was noted; gives the shares that are saved now."""


class Served(msgspec.Struct, eq=False):
    """A member that is served."""

    seat: Seat
    scope: trio.CancelScope
    waiting: trio.CancelScope
    """Around what need not be waited for when the crew is to end."""
    worker: SubscriptionWorker | None = None
    settling_since: float | None = None
    """Since when it is asked whether it has ended what it was sent."""


class _LaneLedger:
    """Where the worker of a lane notes its progress."""

    def __init__(self, shares: Shares, lane: Lane, ledger: SharedLedger) -> None:
        self._shares, self._lane, self._ledger = shares, lane, ledger

    def note(self, position: int) -> None:
        self._shares.note(self._lane, position)
        self._tell()

    def note_failing(self, failing: Attempts | None) -> None:
        self._shares.note_failing(self._lane, failing)
        self._tell()

    def note_parked(self, parked: tuple[ParkedKey, ...]) -> None:
        self._shares.note_parked(self._lane, parked)
        self._ledger.note_parked(self._shares.parked)

    def _tell(self) -> None:
        self._ledger.note_shares(self._shares.position, self._shares.saved())


class Crew:
    """Serves one partition to all members that are there, until it is drained or cancelled."""

    def __init__(
        self, stream: Stream, begin: Begin, shares: Shares, *, wanted: Filter | None, make: Make,
        ledger: SharedLedger, runs: Runs,
    ) -> None:  # fmt: skip
        """`begin` says what all lanes have in common."""
        self.stream = stream
        self._begin, self._shares, self._wanted, self._make, self._ledger = begin, shares, wanted, make, ledger
        self._runs = runs
        self._columns = SlotColumns()
        self._seats: Mapping[str, Seat] = {}
        self.served: dict[str, Served] = {}
        """By the names of the members."""
        self._nursery: trio.Nursery | None = None
        self._changed = trio.lowlevel.ParkingLot()
        self._draining = False
        self._keeping = trio.CancelScope()
        """Around the saving of who has what."""
        self._lost: HootError | None = None

    @property
    def position(self) -> int:
        """Everything up to here was acknowledged, by all members."""
        return self._shares.position

    @property
    def unacknowledged(self) -> int:
        """Messages that were pushed and not yet answered."""
        return sum(one.worker.unacknowledged for one in self.served.values() if one.worker is not None)

    async def run(self) -> None:
        """Serve until drained or cancelled. Raises the partition's error when this host lost it."""
        async with trio.open_nursery() as self._nursery:
            self._look()
            await self._keep()
        if self._lost is not None:
            raise self._lost

    async def _keep(self) -> None:
        """Save who has what, whenever that is new, until drained."""
        with self._keeping:
            while True:
                while self._shares.are_kept:
                    await self._changed.park()
                self._ledger.note_shares(self._shares.position, self._shares.saved())
                self._shares.keep(await self._ledger.keep())
                self._look()

    def change(self, seats: Mapping[str, Seat]) -> None:
        """These members are there now, at least one."""
        self._seats = seats
        self._look()

    def drain(self) -> None:
        """Scan no further; `run` returns when what is out has been answered."""
        self._draining = True
        self._keeping.cancel()
        self._changed.unpark_all()
        for one in self.served.values():
            one.waiting.cancel()
            if one.worker is not None:
                one.worker.drain()

    def abandon(self) -> None:
        """`run` returns at once, whatever is out."""
        self.drain()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def _look(self) -> None:
        """Bring about what is wanted now: who came, who is gone, who is to get more or to give up something."""
        if self._draining or self._lost is not None or self._nursery is None:
            return
        self._shares.want(self._seats.keys())
        self._shares.hand_over_all_but(self._seats.keys() | self.served.keys())
        for name, seat in self._seats.items():
            if name not in self.served:
                self.served[name] = one = Served(seat, trio.CancelScope(), trio.CancelScope())
                self._nursery.start_soon(self._serve, name, one)
        for name, one in self.served.items():
            if self._seats.get(name) != one.seat:
                one.scope.cancel()
            elif one.worker is not None and self._shares.has_news(name):
                one.worker.leave()
        self._changed.unpark_all()

    async def _serve(self, name: str, one: Served) -> None:
        """Serve a member until it is gone."""
        try:
            with one.scope:
                while not self._draining:
                    await self._serve_once(name, one)
        except HootError as error:
            assert self._nursery is not None
            self._lost = error
            self._nursery.cancel_scope.cancel()
        finally:
            del self.served[name]
        self._look()

    async def _serve_once(self, name: str, one: Served) -> None:
        if self._shares.has_surplus(name):
            with trio.CancelScope() as one.waiting:
                one.settling_since = time.monotonic()
                await self._settle(one.seat.link)
                self._shares.hand_over(name)
                self._look()
            one.settling_since = None
        elif (lane := self._shares.begin(name)) is None:
            await self._changed.park()
        else:
            refused = await self._run_lane(lane, one)
            with trio.CancelScope() as one.waiting:
                if refused and not self._draining:
                    await trio.sleep(_PAUSE_SECONDS)

    async def _run_lane(self, lane: Lane, one: Served) -> bool:
        """Serve a lane until it is to be another one; whether it ended because of its listener."""
        ledger = _LaneLedger(self._shares, lane, self._ledger)
        reached = [(part.slots, part.position) for part in lane.parts]
        begin = msgspec.structs.replace(
            self._begin, position=lane.position, first_run=self._runs.first(), failing=lane.failing, parked=lane.parked,
            lanes=len(self._seats),
        )  # fmt: skip
        wanted = InSlots(reached, self._columns, self._wanted)
        one.worker = worker = self._make(self._stream_of(lane), begin, wanted, ledger)
        try:
            await worker.run(one.seat.link)
        finally:
            one.worker = None
            self._runs.ended(worker.last_run)
            self._shares.end(lane)
        return not worker.draining

    def _stream_of(self, lane: Lane) -> Stream:
        """With a move for each set of slots: what a listener knows to have handled, it knows of one set alone."""
        named = google_crc32c.value(repr(as_ranges(lane.slots)).encode())
        return msgspec.structs.replace(self.stream, moves=self.stream.moves << 32 | named)

    async def _settle(self, link: Link) -> None:
        """Return when a listener has ended everything that it was sent. Raises Fenced when it knows a newer owner.

        It would answer no question of this one ever again; and with nothing to read that is the only sign of it.
        """
        while True:
            if await self._is_settled(await link.target()):
                return
            await trio.sleep(_PAUSE_SECONDS)

    async def _is_settled(self, target: Target) -> bool:
        answers: list[Answer | HootError] = []
        answered = trio.Event()

        def on_answer(answer: Answer | HootError) -> None:
            answers.append(answer)
            answered.set()

        try:
            target.push(self.stream, self._runs.first(), self.position, b"", on_answer, More(parked=()))
        except HootError:
            return False
        await answered.wait()
        if isinstance(answers[0], HootError):
            return False
        if answers[0].status == STATUS_STALE:
            raise Fenced(f"partition {self.stream.partition} of queue {self.stream.queue!r} has another owner now")
        return answers[0].status == STATUS_OK
