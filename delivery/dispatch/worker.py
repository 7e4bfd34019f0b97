"""The SubscriptionWorker: one partition of one subscription, from its checkpoint on, until it is told to stop."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, cast

import msgspec
import trio

from delivery.config import HostConfig
from delivery.dispatch.adapting import Adapting
from delivery.dispatch.bounding import BoundedSource, Counted
from delivery.dispatch.buffer import Buffer
from delivery.dispatch.committed import CommittedSource, Transactions
from delivery.dispatch.deadletters import DeadLetters
from delivery.dispatch.ending import Ending
from delivery.dispatch.gate import Gate
from delivery.dispatch.morgue import Morgue
from delivery.dispatch.newest import NewestSource
from delivery.dispatch.outlet import Outlet
from delivery.dispatch.pacing import replayed
from delivery.dispatch.parking import Parking
from delivery.dispatch.pulse import Counters, Pulse
from delivery.dispatch.retrier import Retrier
from delivery.dispatch.retry import FirstInLine, GiveUp
from delivery.dispatch.scanner import Judge, MessageScanner, Source
from delivery.dispatch.sender import MessageSender
from delivery.dispatch.singly import singles
from delivery.dispatch.target import Stream, Target
from delivery.dispatch.window import Window
from delivery.errors import HootError
from delivery.metastore.managers.records import Attempts, ParkedKey
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.replays import Replay


class Link(Protocol):
    """The way to the attached listener, shared by the workers of a subscription."""

    async def target(self) -> Target:
        """The connection, once there is one."""


_NOT_BEGUN: Final = trio.CancelScope()
"""Stands for what is not under way, and is never entered: cancelling it does nothing."""


class Ledger(Protocol):
    """Where progress is written down (checkpoints.Progress)."""

    def note(self, position: int) -> None:
        """Everything up to there was acknowledged."""

    def note_failing(self, failing: Attempts | None) -> None:
        """What was tried with the first message behind the position."""

    def note_parked(self, parked: tuple[ParkedKey, ...]) -> None:
        """What is parked of the messages up to the position."""


class Begin(msgspec.Struct, frozen=True):
    """From where a worker goes on, and how."""

    position: int
    first_run: int
    """See Window."""
    policy: RetryPolicy = RetryPolicy()
    failing: Attempts | None = None
    """What an earlier worker knew of the first message behind `position`."""
    parked: tuple[ParkedKey, ...] = ()
    """Of the messages up to `position`."""
    replay: Replay | None = None
    """Where it ends, and its pace, if the subscription is one."""
    newest: int = 0
    """Up to this id only the newest message of each key is wanted."""
    bound: int = 0
    """Only so many of the newest messages matter; 0 for all."""
    gate: Gate | None = None
    """What every push has to pass; None: nothing holds it up."""
    lanes: int = 1
    """So many workers have the partition together, and the room for what is parked of it."""
    transactions: Transactions | None = None
    """Where nothing of a transaction is wanted before its commit: who knows of those."""


class Parts(msgspec.Struct, frozen=True):
    """What a worker consists of, for those who tell how it is (viewing); nobody changes anything by it."""

    window: Window
    scanner: MessageScanner
    sender: MessageSender
    parking: Parking
    first: FirstInLine
    pulse: Pulse
    morgue: Morgue
    committed: CommittedSource | None


class SubscriptionWorker:
    """MessageScanner → buffer → MessageSender, run after run.

    `run` owns the tasks; it returns when the listener refuses the subscription or after `drain`, and raises the
    partition's error when this host lost it. Cancelling it is safe at any point: the position only says what was
    acknowledged.
    """

    def __init__(
        self, stream: Stream, source: Source, *, begin: Begin, wanted: Judge | None, config: HostConfig,
        counters: Counters, ledger: Ledger, letters: DeadLetters,
    ) -> None:  # fmt: skip
        self.stream = stream
        self._ledger = ledger
        known = begin.transactions
        visible = source if known is None else CommittedSource(source, source, known)  # also where it comes again
        self._morgue = Morgue(stream, visible, letters if begin.policy.dead_letters else None, config)
        self._first = FirstInLine(begin.policy, begin.failing, random.uniform)
        self._config = config
        if begin.bound:  # what is on its way is not taken back
            few = {name: min(getattr(config, name), begin.bound) for name in ("window_messages", "buffer_messages")}
            self._config = config = msgspec.structs.replace(config, **few)
        self._window = Window(begin.position, config.window_messages, config.window_bytes, begin.first_run)
        bounded = BoundedSource(cast("Counted", source), begin.bound) if begin.bound else source
        self._committed = None if known is None else CommittedSource(bounded, source, known)
        scanned = replayed(self._committed or bounded, begin.replay, stream.partition, begin.position)
        if begin.newest > begin.position:
            scanned = NewestSource(scanned, wanted, begin.newest)
        self._scanner = MessageScanner(scanned, wanted, config.push_bytes)
        parking = Parking(begin.policy, begin.parked, random.uniform, begin.lanes)
        self._retrier = Retrier(parking, visible, self._morgue, ledger, config.push_bytes)
        self._pulse = Pulse(counters, self._window, ledger.note)
        outlet = Outlet(self._window, begin.gate, Adapting(config.window_messages))
        self._sender = MessageSender(stream, self._window, self._pulse, self._pulse.moved, self._retrier, outlet)
        self._by_key = begin.policy.order == "key"
        self._scanning = _NOT_BEGUN
        self._pausing = _NOT_BEGUN
        self._resting = _NOT_BEGUN
        """Around a pause before the next run."""
        self._running = _NOT_BEGUN
        self._connecting = _NOT_BEGUN
        """Around the waiting for a listener."""
        self._draining = False
        self._ending = Ending.BROKEN

    @property
    def last_run(self) -> int:
        """No push of it had a higher number; one above that of its run is for the empty push that recalls it."""
        return self._window.run + 1

    def __repr__(self) -> str:
        return f"<SubscriptionWorker {self.stream.subscription} {self.stream.queue}/{self.stream.partition}>"

    @property
    def position(self) -> int:
        """Everything up to here was acknowledged."""
        return self._window.position

    @property
    def unacknowledged(self) -> int:
        """Messages that were pushed and not yet answered."""
        return self._window.unacknowledged

    @property
    def draining(self) -> bool:
        """Whether it was told to end."""
        return self._draining

    @property
    def parts(self) -> Parts:
        """What it consists of, to be looked at."""
        return Parts(
            self._window, self._scanner, self._sender, self._retrier.parking, self._first, self._pulse, self._morgue,
            self._committed,
        )  # fmt: skip

    async def run(self, link: Link) -> None:
        """Deliver until refused, drained, cancelled, or the partition is lost."""
        while not self._draining:
            self._window.singly_until = max(self._window.singly_until, self._first.singly_until)
            if (guilty := self._first.guilty(self._window.position)) is not None:
                await self._put_aside(guilty)
                continue
            if (target := await self._target(link)) is None:
                return
            ending = await self._one_run(target)
            if ending is Ending.REFUSED:
                return
            if ending is Ending.FRUITLESS:
                await self._pause(self._first.refused())
            elif ending is Ending.FAILED:
                await self._after_failure()

    def drain(self) -> None:
        """Scan no further; `run` returns when what is out has been answered."""
        self._draining = True
        self._scanning.cancel()
        self._pausing.cancel()
        self._connecting.cancel()

    def abandon(self) -> None:
        """`run` returns at once, whatever is out."""
        self.drain()
        self._running.cancel()

    def leave(self) -> None:
        """Drain, but let the listener give back what it has not begun."""
        self.drain()
        self._sender.recall()

    def recall(self, grace_seconds: float) -> None:
        """End the run, as the partition goes to another listener; the next run asks the link for it.

        What the listener has begun may take it `grace_seconds`, what it has not begun it gives back.
        """
        self._resting.cancel()  # it was meant for the former listener
        if grace_seconds > 0:
            self._running.deadline = min(self._running.deadline, trio.current_time() + grace_seconds)
            self._sender.recall()
        else:
            self._sender.give_up()

    async def _target(self, link: Link) -> Target | None:
        """The connection; None when the worker is to end before there is one."""
        with trio.CancelScope() as self._connecting:
            return await link.target()
        return None

    async def _after_failure(self) -> None:
        failed = self._sender.failed
        assert failed is not None
        decision = self._first.failed(failed)
        self._ledger.note_failing(self._first.attempts)
        if isinstance(decision, GiveUp):
            await self._put_aside(decision)
            return
        self._window.singly_until = max(self._window.singly_until, decision.singly_until)
        await self._pause(decision.seconds)

    async def _put_aside(self, given_up: GiveUp) -> None:
        """Put a message aside, and go on behind it; unless the worker is to end."""
        with trio.CancelScope() as self._pausing:
            if not self._draining:
                await self._morgue.take(given_up)
                self._window.pass_over(given_up.id)
                self._first.gave_up(given_up.id)
                self._ledger.note_failing(self._first.attempts)
                self._ledger.note(self._window.position)

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the worker is to end."""
        with trio.CancelScope() as self._pausing:
            self._resting = self._pausing
            if not self._draining:
                self._pulse.waits(seconds)
                await trio.sleep(seconds)

    async def _one_run(self, target: Target) -> Ending:
        config, sender = self._config, self._sender
        position, until = self._window.position, self._window.singly_until
        cut = partial(singles, after=position, until=until) if position < until else None
        buffer = Buffer(config.buffer_messages, config.buffer_bytes, sender.pump, cut, position)
        self._ending = Ending.BROKEN
        with trio.CancelScope() as run:
            self._running = run

            def end(ending: Ending) -> None:
                self._ending = ending
                if ending is Ending.BROKEN and sender.broken is not None:
                    self._first.crashed(sender.broken)
                    self._ledger.note_failing(self._first.attempts)
                run.cancel()

            retries = self._by_key or bool(self._retrier.parking)
            sender.begin(buffer, target, end, retries=retries)
            try:
                if retries:
                    await self._scan_and_retry(buffer)
                else:
                    await self._scan(buffer)
            finally:
                sender.stop()
                self._window.rewind()  # also where it was the partition that ended the run
        return self._ending

    async def _scan(self, buffer: Buffer) -> None:
        """Scan until `drain`, then wait for the answers to what is out."""
        with trio.CancelScope() as self._scanning:
            await self._scanner.run(buffer, self._window.position)
        await self._sender.drained()

    async def _scan_and_retry(self, buffer: Buffer) -> None:
        """Scan, and bring parked messages again at the same time; with order="partition" first those, then the scan.

        Raises what reading the partition does; nothing but Cancelled when it is lost in the turn that cancels the run.
        """
        lost: list[HootError] = []

        async def unless_lost(work: Callable[[], Awaitable[None]]) -> None:
            try:
                await work()
            except HootError as error:
                lost.append(error)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(unless_lost, partial(self._retrier.run, self._sender))
            with trio.CancelScope() as self._scanning:
                await unless_lost(partial(self._scan_behind_parked, buffer))
            nursery.cancel_scope.cancel()
        if lost:
            raise lost[0]
        await self._sender.drained()

    async def _scan_behind_parked(self, buffer: Buffer) -> None:
        await self._retrier.room(all_gone=not self._by_key)
        await self._scanner.run(buffer, self._window.position)
