"""The delivery of one attached subscription: its links, and a worker for each partition that this host can own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol, TypeVar

import msgspec
import trio

from delivery import logs, wall
from delivery.config import HostConfig
from delivery.dispatch.checkpoints import CheckpointKeeper
from delivery.dispatch.committed import Transactions
from delivery.dispatch.crew import Crew
from delivery.dispatch.deadletters import DeadLetters
from delivery.dispatch.gate import Gate
from delivery.dispatch.keeping import KeptShares
from delivery.dispatch.lines import Connect, Lines
from delivery.dispatch.members import Members, Way
from delivery.dispatch.plan import Attached
from delivery.dispatch.progress import CheckpointKey, Progress
from delivery.dispatch.pulse import Counters
from delivery.dispatch.runs import Runs
from delivery.dispatch.scanner import Judge, Source
from delivery.dispatch.shares import Shares
from delivery.dispatch.taking import StateTaker
from delivery.dispatch.target import Stream
from delivery.dispatch.worker import Begin, Ledger, SubscriptionWorker
from delivery.errors import HootError, NotOwner
from delivery.filters import filter_of
from delivery.metastore.flow import seconds_paused
from delivery.metastore.managers.changes import Taken, TakeState
from delivery.metastore.records import ListenerRecord

log = logs.logger(__name__)

T = TypeVar("T")

_PAUSE_SECONDS = 1.0
"""Before another attempt after one that failed, such as a partition that could not be opened, or was lost."""


class Owned(Protocol):
    """A partition of this host."""

    @property
    def epoch(self) -> int:
        """The epoch under which it is owned."""

    @property
    def watermark(self) -> int:
        """The last id that is complete."""

    def source(self) -> Source:
        """A reader of it."""

    def reading(self, drain: Callable[[], None], end: Callable[[], None]) -> AbstractContextManager[None]:
        """To be entered while it is read; `drain`, then `end` are called when it goes to another host."""


class Partitions(Protocol):
    """Where partitions are acquired (cluster.sharing.takeover.Takeovers)."""

    async def acquire(self, queue: str, partition: int, generation: str) -> Owned:
        """That queue's partition, as soon as this host owns it. Raises the errors of the store and of ZooKeeper."""


class Tools(msgspec.Struct, frozen=True):
    """What every delivery of a host shares."""

    partitions: Partitions
    keeper: CheckpointKeeper
    taker: StateTaker
    counters: Counters
    config: HostConfig
    letters: DeadLetters
    lines: Lines
    """To listeners."""
    transactions: Transactions | None = None
    """None where there are none: all that is published is committed then."""
    runs: Runs = msgspec.field(default_factory=Runs)


class Serving(msgspec.Struct, frozen=True):
    """A partition that is served."""

    owned: Owned
    progress: Progress


class Delivery:
    """Runs one attached subscription until cancelled or drained. A changed registration makes a new Delivery, but for
    the members of a group, which come and go.
    """

    def __init__(self, attached: Attached, tools: Tools) -> None:
        self.attached = attached
        self._tools = tools
        record = attached.subscription
        self._queue, self._name = record.queue, record.name
        self.gate = Gate()
        self._members = Members(attached, tools.config, tools.lines)
        self._wanted = filter_of(record.topics, record.filter)
        self._draining = False
        self._waiting: dict[trio.CancelScope, None] = {}
        self.workers: dict[int, SubscriptionWorker | Crew] = {}
        self.serving: dict[int, Serving] = {}
        """For each of the workers what else is known of its partition."""
        self.troubles: dict[int, str] = {}
        """Why partitions could not be served, as long as that lasts."""

    @property
    def place(self) -> tuple[str, str]:
        """Queue and subscription."""
        return self._queue, self._name

    @property
    def known(self) -> frozenset[int]:
        """The partitions that are served, or could not be."""
        return frozenset(self.workers.keys() | self.troubles.keys())

    @property
    def connect(self) -> Connect:
        """To listeners, by a connection that nobody else uses."""
        return self._tools.lines.connect

    def way(self, partition: int) -> Way:
        """To whoever gets the partition, to be looked at."""
        return self._members.way(partition)

    def listener(self, partition: int, member: str) -> ListenerRecord | None:
        """Who gets the partition, or that member where several share it; None for nobody."""
        if not member:
            return self._members.way(partition).holder
        seat = self._members.seats.get(member)
        return None if seat is None else seat.record

    @property
    def is_filtered(self) -> bool:
        """Whether it takes only some messages."""
        return self._wanted is not None

    async def run(self) -> None:
        """Serve every partition of the subscription. Returns after `drain`, when what is out has been answered."""
        self._regulate()
        self._members.link()
        self.gate.serve(self._tools.lines.background.start_soon)
        try:
            partitions = tuple(self.attached.subscription.starts)
            if len(partitions) == 1:  # as most have it, and there may be thousands to which nothing comes: no task more
                await self._serve(partitions[0])
            else:
                await self._serve_all(partitions)
        finally:
            self.gate.end()
            self._members.unlink()

    def change(self, attached: Attached) -> None:
        """Go on at another pace, or with other members or partitions for them: only what moves is interrupted.

        A member that is there still may end what it has begun before another one gets the partition.
        """
        self.attached = attached
        for partition, stays in self._members.change(attached):
            if isinstance(worker := self.workers.get(partition), SubscriptionWorker):
                worker.recall(self._tools.config.handover_seconds if stays else 0)
        for worker in self.workers.values():
            if isinstance(worker, Crew):
                worker.change(self._members.seats)
        self._regulate()

    def _regulate(self) -> None:
        self.gate.pause(seconds_paused(self.attached.subscription.pause, wall.ms()))
        self._share_limits()

    def _share_limits(self) -> None:
        """Each host has the part of the limits that its partitions are of all: together they keep to the whole."""
        record = self.attached.subscription
        self.gate.limit(record.flow, len(self.workers) / len(record.starts))

    def drain(self) -> None:
        """Scan no further; `run` ends when the listener has answered what is out."""
        self._draining = True
        for waiting in self._waiting:
            waiting.cancel()
        for worker in self.workers.values():
            worker.drain()

    async def _serve_all(self, partitions: tuple[int, ...]) -> None:
        async with trio.open_nursery() as workers:
            for partition in partitions:
                workers.start_soon(self._serve, partition)

    async def _serve(self, partition: int) -> None:
        while not self._draining:
            owned = None
            try:
                generation = self.attached.generation
                owned = await self._unless_draining(
                    partial(self._tools.partitions.acquire, self._queue, partition, generation)
                )
                moved_on = owned is not None and await self._serve_owned(owned, partition)
            except HootError as error:
                moved_on = owned is not None and isinstance(error, NotOwner)
                if not isinstance(error, NotOwner) and self.troubles.get(partition) != error.message:
                    log.warning("subscription %s on %s/%d waits: %s", self._name, self._queue, partition, error)
                    self.troubles[partition] = error.message
            if not moved_on:
                await self._unless_draining(partial(trio.sleep, _PAUSE_SECONDS))

    async def _serve_owned(self, owned: Owned, partition: int) -> bool:
        """Serve it until the worker ends; whether there is a reason to begin anew at once.

        That is so when the partition goes to another host, and when somebody moved the position.
        """
        key = CheckpointKey(self._queue, self._name, partition)
        taken = await self._take(key, owned)
        moved_on = False

        def move_on() -> None:
            nonlocal moved_on
            moved_on = True
            worker.drain()

        def begin_anew() -> None:
            nonlocal moved_on
            moved_on = True
            worker.abandon()

        progress = self._tools.keeper.begin(key, taken, begin_anew)
        stream = Stream(self._queue, self._name, partition, owned.epoch, taken.value.moves)
        worker, serve = self._worker(stream, self._begin(key, taken, owned.watermark), owned, taken, progress)
        if self._draining:
            return False
        self.troubles.pop(partition, None)
        self.workers[partition], self.serving[partition] = worker, Serving(owned, progress)
        self._share_limits()
        try:
            with owned.reading(move_on, worker.abandon):
                await serve()
        finally:
            if isinstance(worker, SubscriptionWorker):
                self._tools.runs.ended(worker.last_run)
            del self.workers[partition], self.serving[partition]
            self._share_limits()
        return moved_on

    def _worker(
        self, stream: Stream, begin: Begin, owned: Owned, taken: Taken, progress: Progress
    ) -> tuple[SubscriptionWorker | Crew, Callable[[], Awaitable[None]]]:
        """What serves a partition, and how it is run."""

        def make(stream: Stream, begin: Begin, wanted: Judge | None, ledger: Ledger) -> SubscriptionWorker:
            return SubscriptionWorker(
                stream, owned.source(), begin=begin, wanted=wanted, config=self._tools.config,
                counters=self._tools.counters, ledger=ledger, letters=self._tools.letters,
            )  # fmt: skip

        if self.attached.subscription.kind != "key_shared":
            worker = make(stream, begin, self._wanted, progress)
            return worker, partial(worker.run, self._members.way(stream.partition))
        limit = max(owned.watermark, begin.position)
        saved = [msgspec.structs.replace(one, position=min(one.position, limit)) for one in taken.value.shares]
        shares = Shares(saved, begin.position, begin.parked)
        ledger = KeptShares(progress, self._tools.keeper)
        crew = Crew(stream, begin, shares, wanted=self._wanted, make=make, ledger=ledger, runs=self._tools.runs)
        crew.change(self._members.seats)
        return crew, crew.run

    async def _unless_draining(self, wait: Callable[[], Awaitable[T]]) -> T | None:
        """What `wait` gives, None when `drain` ended it, or was called before."""
        if self._draining:
            return None
        with trio.CancelScope() as scope:
            self._waiting[scope] = None
            try:
                return await wait()
            finally:
                del self._waiting[scope]
        return None

    async def _take(self, key: CheckpointKey, owned: Owned) -> Taken:
        """Take the state over, so that no former owner moves it any more."""
        await self._tools.keeper.settle(key)
        return await self._tools.taker.take(TakeState(self.attached.subscription, key.partition, owned.epoch))

    def _begin(self, key: CheckpointKey, taken: Taken, watermark: int) -> Begin:
        record, state = self.attached.subscription, taken.value
        position = self._position(key, taken, watermark)
        # A position is moved before the preferences are: by these it may still begin with the newest of each key.
        newest = record.newest.get(key.partition, 0) if state.moves <= record.moves else 0
        transactions = self._tools.transactions if record.isolation == "committed" else None
        return Begin(
            position, self._tools.runs.first(), record.retry, state.failing, state.parked, record.replay, newest,
            record.bound, self.gate, transactions=transactions,
        )  # fmt: skip

    def _position(self, key: CheckpointKey, taken: Taken, watermark: int) -> int:
        """Where to go on: where the state says; never beyond what is stored, but for a start that was asked for."""
        position = taken.value.position
        if position <= max(watermark, self.attached.subscription.starts[key.partition]):
            return position
        log.error(
            "subscription %s on %s/%d: its position %d is beyond the last stored id %d; going on there",
            self._name, self._queue, key.partition, position, watermark,
        )  # fmt: skip
        return watermark
