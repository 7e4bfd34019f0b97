"""Where batches enter a host: per partition in the order in which they were begun."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import trio

from delivery.cluster.ownership import Ownership
from delivery.cluster.partition import OwnedPartition, Tail
from delivery.errors import Fenced, HootError, InvalidRequest, ServiceStopping, Throttled, UnknownOutcome
from delivery.metrics import Metrics
from delivery.model import is_generation
from delivery.publish.committer import Committer
from delivery.publish.lane import CommitLane, CommitThread
from delivery.publish.pending import PendingPublish, Stored
from delivery.publish.permits import Permit, Permits
from delivery.publish.writer import Clock, Entry, PartitionWriter, wall_clock_ms
from delivery.rpc.together import together
from delivery.storage.base import MessageStore

Place = tuple[str, int]


class Publisher:
    """Admits, stamps and commits. For the trio thread; `run` owns the commit loop and waiting for partitions."""

    def __init__(
        self, ownership: Ownership, store: MessageStore, tail: Tail, metrics: Metrics, *, commit_bytes: int,
        pending_bytes_max: int, now_ms: Clock = wall_clock_ms, lane: CommitLane | None = None,
    ) -> None:  # fmt: skip
        """`pending_bytes_max` bounds what was received and is not stored yet; more is refused as Throttled.

        `lane` is the way into the store, by default a thread of its own.
        """
        self._ownership, self._tail, self._metrics = ownership, tail, metrics
        self._pending_bytes_max, self._now_ms = pending_bytes_max, now_ms
        self._committer = Committer(lane or CommitThread(store), metrics, commit_bytes, self)
        self._writers: dict[Place, PartitionWriter] = {}
        self._waiting: dict[Place, deque[PendingPublish]] = {}
        self._permits = Permits(self._go_on)
        self._acquired = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery | None = None
        self._stopping = False
        self.pending_bytes = 0
        """Received and not stored yet."""

    def begin(
        self, queue: str, partition: int, batch: bytes, *, generation: str = "", aside: bool = False,
        after: int | None = None, permit: Permit | None = None,
    ) -> PendingPublish:  # fmt: skip
        """Take a batch. Never raises, never waits: the outcome, whatever it is, comes from `wait`.

        Batches of one partition are stored in the order of these calls. When the partition is not owned yet, they
        wait, in order, for one claim. With a `generation` the batch is for the queue of that generation alone: one that
        was deleted and created again may still be the old one here when its first batches come. `aside` is for batches
        of the engine's own (see `model.ASIDE`), `after` for those that a closed queue gets from another one. With a
        `permit` that is asked first, and what the same producer sends to the partition meanwhile waits as well.
        """
        pending = PendingPublish(queue, partition, batch, generation=generation, aside=aside, after=after)
        self.pending_bytes += pending.size
        try:
            self._begin(pending, permit)
        except HootError as error:
            self._end(pending, error)
        return pending

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then everything that was not stored ends with ServiceStopping."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await nursery.start(self._committer.run)
                task_status.started()
        finally:
            self._stopping, self._nursery = True, None

    async def drain(self) -> None:
        """Refuse new batches with ServiceStopping and return when all that were taken have ended."""
        self._stopping = True
        while self._waiting:
            await self._acquired.park()
        await self._committer.drained()

    def _begin(self, pending: PendingPublish, permit: Permit | None) -> None:
        nursery = self._running()
        if self.pending_bytes > self._pending_bytes_max:
            raise Throttled(f"{self._pending_bytes_max} bytes are waiting to be stored; try again after a pause")
        if not self._permits.take(pending, permit, nursery):
            self._place(pending, nursery)

    def _go_on(self, pending: PendingPublish, refusal: HootError | None) -> None:
        """With a batch that had to wait for a permit."""
        try:
            if refusal is not None:
                raise refusal
            self._place(pending, self._running())
        except HootError as error:
            self._end(pending, error)

    def _running(self) -> trio.Nursery:
        if self._stopping or self._nursery is None:
            raise ServiceStopping("the host is stopping; nothing was stored")
        return self._nursery

    def _place(self, pending: PendingPublish, nursery: trio.Nursery) -> None:
        place = (pending.queue, pending.partition)
        if (waiting := self._waiting.get(place)) is not None:
            waiting.append(pending)
        elif (owned := self._ownership.owned(*place)) is not None and is_generation(
            owned.key.generation, pending.generation
        ):
            self._take(owned, pending)
        else:
            self._waiting[place] = deque([pending])
            nursery.start_soon(self._acquire, place)

    async def _acquire(self, place: Place) -> None:
        """Claim the partition and begin what waits for it, in order."""
        waiting = self._waiting[place]
        try:
            while waiting:
                await self._begin_waiting(place, waiting, waiting[0].generation)
        finally:
            del self._waiting[place]
            for pending in waiting:
                self._end(pending, ServiceStopping("the host is stopping; nothing was stored"))
            self._acquired.unpark_all()

    async def _begin_waiting(self, place: Place, waiting: deque[PendingPublish], generation: str) -> None:
        """Begin the first ones that wait, as long as they are for the same queue."""
        outcome: OwnedPartition | HootError
        try:
            outcome = await self._ownership.acquire(*place, generation=generation)
        except HootError as error:
            outcome = error
        while waiting and waiting[0].generation == generation:
            pending = waiting.popleft()
            try:
                if isinstance(outcome, HootError):
                    raise outcome
                self._take(outcome, pending)
            except HootError as error:
                self._end(pending, error)

    def _take(self, owned: OwnedPartition, pending: PendingPublish) -> None:
        place = (owned.key.queue, owned.key.partition)
        writer = self._writers.get(place)
        if writer is None or writer.owned is not owned:
            writer = self._writers[place] = PartitionWriter(owned, self._tail, self._now_ms)
        entry = writer.take(pending)
        if entry is not None:
            self._committer.add(entry)
        else:
            self.pending_bytes -= pending.size

    # -- what the committer tells (see committer.Outcomes)

    def stored(self, entries: Sequence[Entry]) -> None:
        """The batches are durable. What a partition got goes on to its readers as one, and before the replies."""
        outcomes = [entry.writer.stored(entry) for entry in entries]
        for writer in dict.fromkeys(entry.writer for entry in entries):
            writer.announce()
        with together():
            for entry, outcome in zip(entries, outcomes, strict=True):
                self._metrics.stored(entry.pending.queue, outcome.count, entry.pending.size)
                self._end(entry.pending, outcome)

    def failed(self, entry: Entry, error: HootError) -> None:
        """The store could not confirm the batch: nobody knows, and its partition is dropped.

        Also when it was fenced: the new owner may have found the batch before it sealed what this host wrote. Only of
        a batch that no store takes it is known that it is not there.
        """
        owned = entry.writer.owned
        if isinstance(error, Fenced):
            self._ownership.fence(owned)
        elif owned.feed.error is None:
            self._ownership.poison(owned, error)
        self._end(entry.pending, error if isinstance(error, InvalidRequest) else UnknownOutcome(
            f"the batch may be stored or not; publishing the same producer sequence again finds out: {error.message}"
        ))  # fmt: skip

    def refused(self, entry: Entry, error: HootError) -> None:
        """The batch was stamped and never stored: its partition was lost, or the host stops."""
        self._end(entry.pending, error)

    def _end(self, pending: PendingPublish, outcome: Stored | HootError) -> None:
        self.pending_bytes -= pending.size
        if isinstance(outcome, HootError):
            self._metrics.refused(outcome.code)
        pending.give(outcome)
