"""The Retrier: brings parked messages to the listener again when they are due, and puts aside what is given up.

`parking` decides; here is the reading of the messages, and the waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Protocol

import msgspec
import trio

from delivery import wall
from delivery.batch.pick import pick
from delivery.dispatch.bell import Bell
from delivery.dispatch.holding import batch_of
from delivery.dispatch.morgue import Morgue
from delivery.dispatch.parking import GiveUpHead, Parking, SendAgain, Slot
from delivery.dispatch.retry import Failed, GiveUp
from delivery.dispatch.scanner import Source
from delivery.metastore.managers.records import ParkedKey


class Ledger(Protocol):
    """Where it is written down (checkpoints.Progress)."""

    def note_parked(self, parked: tuple[ParkedKey, ...]) -> None:
        """What is parked changed."""


class Sender(Protocol):
    """The way to the listener, while a run lasts."""

    async def ready(self) -> None:
        """Return when it takes a push."""

    async def quiet(self) -> None:
        """Return when nothing is out, and send nothing but the retry push that follows until that is answered."""

    def send_again(self, step: SendAgain, data: bytes) -> None:
        """Send a retry push."""


def wall_ms() -> int:
    """The time in ZooKeeper, where due times outlive their host."""
    return wall.ms()


class Retrier:
    """Of one partition of one subscription; it knows all that is parked there."""

    def __init__(
        self, parking: Parking, source: Source, morgue: Morgue, ledger: Ledger, push_bytes: int
    ) -> None:  # fmt: skip
        self.parking = parking
        self._source, self._morgue, self._ledger, self._push_bytes = source, morgue, ledger, push_bytes
        self._changed = Bell()
        self._origin_ms: float | None = None

    @property
    def now_ms(self) -> int:
        """The time, which goes on evenly whatever becomes of the machine's clock."""
        if self._origin_ms is None:
            self._origin_ms = wall_ms() - trio.current_time() * 1000
        return int(self._origin_ms + trio.current_time() * 1000)

    def park(self, failed: Failed) -> bool:
        """A message was not handled; False when there is no room for it. `changed` is to be called after the last."""
        return self.parking.park(failed, self.now_ms)

    def answered(self, slot: Slot, failures: Sequence[Failed]) -> None:
        """A retry push was answered."""
        self.parking.answered(slot, failures, self.now_ms)
        self.changed()

    def broken(self) -> None:
        """The connection broke."""
        if self.parking.broken():
            self._ledger.note_parked(self.parking.waiting())

    def changed(self) -> None:
        """Write down what is parked now, and look what is to be done."""
        self._ledger.note_parked(self.parking.waiting())
        self._changed.ring()

    async def room(self, *, all_gone: bool) -> None:
        """Return when not too much is parked for the partition to go on; with `all_gone`, when nothing is."""
        while self.parking.is_full or (all_gone and self.parking):
            await self._changed.wait()

    async def run(self, sender: Sender) -> None:
        """Work for one run, until cancelled. Raises what reading the partition does."""
        self.parking.begin(self.now_ms)
        while True:
            await trio.lowlevel.checkpoint()
            now_ms = self.now_ms
            step = self.parking.next(now_ms)
            if isinstance(step, GiveUpHead):
                await self._give_up(step)
            elif isinstance(step, SendAgain):
                await self._send(step, sender)
            else:
                with trio.move_on_after(float("inf") if step.due_ms is None else (step.due_ms - now_ms) / 1000):
                    await self._changed.wait()

    async def _give_up(self, step: GiveUpHead) -> None:
        await self._morgue.take(GiveUp(step.id, step.reason, step.attempts))
        self.parking.gave_up(step.slot, self.now_ms)
        self.changed()

    async def _send(self, step: SendAgain, sender: Sender) -> None:
        found, data = await self._read(step.ids)
        if step.ids and not found:  # retention dropped the first of them
            self.parking.gave_up(step.slot, self.now_ms)
            self.changed()
            return
        if step.alone:
            await sender.quiet()
        await sender.ready()
        sender.send_again(msgspec.structs.replace(step, ids=found), data)

    async def _read(self, ids: Sequence[int]) -> tuple[tuple[int, ...], bytes]:
        """As many of the first of these messages as a push takes and the partition holds without a gap."""
        parts: list[bytes] = []
        found: list[int] = []
        size = 0
        while len(found) < len(ids) and size < self._push_bytes:
            rest = ids[len(found) :]
            there, data = await self._read_one(rest)
            if not there:
                break
            found += there
            parts.append(data)
            size += len(data)
        return tuple(found), b"".join(parts)

    async def _read_one(self, ids: Sequence[int]) -> tuple[list[int], bytes]:
        """Those of the first of these messages that are in one batch."""
        batch = await batch_of(self._source, ids[0])
        if batch is None:
            return [], b""
        held = frozenset(batch.ids())
        there = list(takewhile(held.__contains__, ids))
        return there, pick(batch, there) if there else b""
