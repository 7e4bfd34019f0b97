"""A simulated message store that several hosts share: the contract of delivery.storage.base, step by step.

An append takes three steps, between which anything may happen: its rows travel, they land on the disk, and the host
looks whether its epoch still stands. What has left the host lands whatever becomes of the host. Opening takes two: the
fence, and then the seal, which counts what has landed until then. What lands later from an older epoch is never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from delivery.batch.select import Refuses
from delivery.errors import Fenced, HootError, StorageUnavailable
from delivery.ids import ID_MAX
from delivery.model import QueueSettings
from delivery.storage.base import Amount, Append, Bounds, Chunk, MessageStore, PartitionKey, PartitionState
from delivery.storage.producers import Producers
from tests.simulation.kernel import Kernel
from tests.simulation.machine import Machine, Resume, spend, stand_still

LATE: Final = 0.01
"""Part of the writes that take long to land."""
LATE_SECONDS: Final = 4.0


class Shelf:
    """One partition on the disk."""

    def __init__(self) -> None:
        self.epoch = 0
        """The newest; all older ones are fenced."""
        self.sealed = 0
        """The epoch that made the last seal: what lands from an older one now comes too late."""
        self.rows: list[Append] = []

    @property
    def last_id(self) -> int:
        """The highest id of what counts."""
        return self.rows[-1].header.last_id if self.rows else 0

    def land(self, row: Append) -> bool:
        """A row arrives. False when it came too late to be seen by anybody."""
        if row.epoch < self.sealed:
            return False
        self.rows.append(row)
        return True

    def stands(self, epoch: int) -> bool:
        """Whether an epoch has not been fenced."""
        return self.epoch == epoch

    def fence(self, epoch: int) -> None:
        """No older epoch is confirmed from here on."""
        self.epoch = epoch

    def seal(self, epoch: int) -> PartitionState:
        """What the older epochs have stored."""
        self.sealed = epoch
        producers = Producers()
        for row in self.rows:
            producers.note(row.header)
        return PartitionState(self.last_id, producers.snapshot())


class Disk:
    """What all hosts share, and how slow and faulty it is at the moment."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.shelves: dict[PartitionKey, Shelf] = {}
        self.pace = kernel.random.choice((1.0, 1.0, 8.0, 30.0))
        """How slow it is when nothing is wrong."""
        self.slowness = self.pace
        self.failing = 0.0
        """The part of the appends and opens that fail."""
        self.calm = False
        """Whether writes may be late."""

    def mend(self) -> None:
        """Nothing is wrong any more."""
        self.slowness, self.failing = self.pace, 0.0

    def store(self, machine: Machine) -> MessageStore:
        """That of a host."""
        return SimulatedStore(machine, self)

    def shelf(self, key: PartitionKey) -> Shelf:
        """The partition's place."""
        return self.shelves.setdefault(key, Shelf())

    def travel(self) -> float:
        """How long a write is on its way."""
        if not self.calm and self.kernel.chance(LATE):
            return self.kernel.between(0, LATE_SECONDS)
        return self.slowness * self.kernel.between(0.0005, 0.004)


class _View:
    """A partition as one host sees it."""

    def __init__(self, shelf: Shelf, epoch: int, last_id: int) -> None:
        self.shelf, self.epoch, self.last_id = shelf, epoch, last_id
        self.poisoned = False


class SimulatedStore:
    """The store of one host on the disk. Blocking; used in strands."""

    def __init__(self, machine: Machine, disk: Disk) -> None:
        self._machine, self._disk, self._kernel = machine, disk, machine.kernel
        self._views: dict[PartitionKey, _View] = {}

    def open(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> PartitionState:
        """See MessageStore.open."""
        shelf = self._disk.shelf(key)
        if self._kernel.chance(self._disk.failing):
            raise StorageUnavailable(f"{key} cannot be opened")

        def fence() -> bool:
            if shelf.epoch <= epoch:
                shelf.fence(epoch)
            return shelf.epoch == epoch

        if not self._on_disk(fence):
            raise Fenced(f"a newer epoch than {epoch} has {key} already")
        state = self._on_disk(lambda: shelf.seal(epoch) if shelf.stands(epoch) else None)
        if state is None:
            raise Fenced(f"a newer epoch than {epoch} has {key} by now")
        self._views[key] = _View(shelf, epoch, state.last_id)
        self._kernel.note("opened", self._machine.name, key.partition, epoch, state.last_id)
        opened: PartitionState = state
        return opened

    def append(self, group: Sequence[Append]) -> list[HootError | None]:
        """See MessageStore.append."""
        answers: list[HootError | None] = [self._refusal(row) for row in group]
        good = [row for row, error in zip(group, answers, strict=True) if error is None]
        failure: HootError | None = None
        if good and self._kernel.chance(self._disk.failing):
            failure = StorageUnavailable("the disk failed")
        if good:
            self._kernel.note("append", self._machine.name, *(row.header.base_id for row in good))
        self._write(good, whole=failure is None)
        for place, row in enumerate(group):
            if answers[place] is None:
                answers[place] = failure or self._confirm(row)
        for row, error in zip(group, answers, strict=True):
            if error is not None and row.key in self._views:
                self._views[row.key].poisoned = True
        return answers

    def append_at_once(self, _: Append, /) -> None:
        """See MessageStore.append_at_once: a disk that takes its time is the harder case."""

    def read(self, key: PartitionKey, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """See MessageStore.read."""
        view = self._view(key)
        spend(self._disk.slowness * self._kernel.between(0.0005, 0.004))
        taken: list[Append] = []
        room = bytes_max
        for row in view.shelf.rows:
            if after < row.header.last_id <= view.last_id and (room >= row.header.length or not taken):
                taken.append(row)
                room -= row.header.length
            elif taken:
                break
        if not taken:
            return None
        return Chunk(b"".join(row.batch for row in taken), tuple(row.header for row in taken))

    def bounds(self, key: PartitionKey) -> Bounds:
        """See MessageStore.bounds."""
        view = self._view(key)
        headers = [row.header for row in view.shelf.rows if row.header.last_id <= view.last_id]
        first = headers[0].base_id if headers else 0
        return Bounds(first, view.last_id, sum(one.count for one in headers), sum(one.length for one in headers))

    def measure(self, key: PartitionKey, after: int, until: int) -> Amount:
        """See MessageStore.measure; batches count whole here."""
        rows = self._view(key).shelf.rows
        between = [row.header for row in rows if after < row.header.base_id and row.header.last_id <= until]
        return Amount(sum(one.count for one in between), sum(one.length for one in between))

    def trim(self, key: PartitionKey, settings: QueueSettings, now_ms: int, until: int = ID_MAX) -> int:
        """See MessageStore.trim; nothing ever gets too old here."""
        return 0

    def prepare_release(self, key: PartitionKey) -> None:
        """See MessageStore.prepare_release; it takes as long as a look at the disk."""
        spend(self._disk.slowness * self._kernel.between(0.0005, 0.004))

    def release(self, key: PartitionKey) -> None:
        """See MessageStore.release."""
        self._views.pop(key, None)

    def queues(self) -> list[tuple[str, str]]:
        """See MessageStore.queues; none is deleted here, so none has to be heard of."""
        return []

    def delete(self, queue: str, generation: str) -> None:
        """See MessageStore.delete; no queue is deleted here."""

    def close(self) -> None:
        """See MessageStore.close."""
        self._views.clear()

    def _view(self, key: PartitionKey) -> _View:
        view = self._views.get(key)
        if view is None:
            raise StorageUnavailable(f"{key} is not open here")
        return view

    def _refusal(self, row: Append) -> HootError | None:
        view = self._views.get(row.key)
        if view is None or view.poisoned:
            return StorageUnavailable(f"{row.key} is not open here")
        return None if view.epoch == row.epoch else Fenced(f"{row.key} is open under another epoch")

    def _write(self, rows: Sequence[Append], *, whole: bool) -> None:
        """Let rows land, in order. When the write fails some of them do, now or later, and nobody knows which."""
        kernel = self._kernel
        kept = len(rows) if whole or kernel.chance(0.4) else kernel.random.randint(0, len(rows))
        lost = kernel.random.randint(0, len(rows))
        """Had the host crashed before they landed, so many would."""

        def land() -> None:
            for row in rows[: kept if self._machine.alive else min(kept, lost)]:
                seen = self._disk.shelf(row.key).land(row)
                kernel.note("landed" if seen else "too late", self._machine.name, row.key.partition, row.epoch,
                            row.header.base_id, row.header.count)  # fmt: skip

        if whole:
            self._on_disk(land)
        else:
            kernel.later(self._disk.travel() * (1 if kernel.chance(0.5) else 100), land)
            spend(self._disk.travel())

    def _confirm(self, row: Append) -> HootError | None:
        """After the write is durable: only what is confirmed then counts for this host."""
        spend(self._kernel.between(0, 0.0005))
        view = self._views.get(row.key)
        shelf = self._disk.shelf(row.key)
        if not self._still_owned(shelf, row.epoch):
            return Fenced(f"{row.key} has a newer epoch than {row.epoch}")
        if view is not None and view.epoch == row.epoch:
            view.last_id = row.header.last_id
        return None

    def _still_owned(self, shelf: Shelf, epoch: int) -> bool:
        """The proof, at the only moment at which it is one: when the rows are there."""
        return shelf.stands(epoch)

    def _on_disk(self, work: Callable[[], Any]) -> Any:
        """Do it when it has got there; the answer takes some time, too."""

        def arrive(resume: Resume) -> None:
            answer = work()
            self._kernel.later(self._kernel.between(0.0001, 0.001), partial(resume, answer))

        return stand_still(lambda resume: self._kernel.later(self._disk.travel(), partial(arrive, resume)))
