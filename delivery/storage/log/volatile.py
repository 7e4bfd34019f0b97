"""A partition of a queue with durability `memory`: its batches in this process, its fence shared with all hosts."""

from __future__ import annotations

from collections.abc import Sequence

from delivery.batch.select import Refuses
from delivery.errors import Fenced
from delivery.model import QueueSettings
from delivery.storage.base import Amount, Append, Bounds, Chunk, PartitionKey, PartitionState
from delivery.storage.log.disk import locked, refusals
from delivery.storage.log.epochs import Epochs
from delivery.storage.log.partition import Tools
from delivery.storage.memory import BYTES_MAX, MemoryPartition


class VolatilePartition:
    """The same verbs as `Partition`, nothing on disk. Another owner starts empty, but above the ids given out here.

    Bounded by the queue's retention, or 64 MiB: the oldest batches go, read or not.
    """

    def __init__(self, key: PartitionKey, epoch: int, settings: QueueSettings, tools: Tools, epochs: Epochs) -> None:
        """Fence older epochs. Raises Fenced, StorageUnavailable."""
        self.key, self.epoch = key, epoch
        self._epochs = epochs
        self._keep(settings)
        folder = tools.data.partition(key)
        with refusals(f"open {key}"):
            folder.mkdir(exist_ok=True)
            with locked(folder / "lock"):
                epochs.raise_to(key.partition, epoch)
        self.held = MemoryPartition(epochs.noted(key.partition, 0))
        self._pending: Sequence[Append] = ()

    def inherit(self, older: VolatilePartition) -> None:
        """Go on with what this process held under an older epoch, unless another owner has given out ids since."""
        if older.held.last_id == self.held.last_id:
            self.held = older.held

    def state(self) -> PartitionState:
        """What opening found out."""
        return PartitionState(self.held.last_id, self.held.producers.snapshot())

    is_quick = True
    """See `Partition.is_quick`: there is no disk."""

    def write(self, batches: Sequence[Append], *, synced: bool = False) -> None:  # noqa: ARG002
        """Take the batches; they count only after `confirm`. Raises Fenced."""
        self._check_standing()
        self._pending = batches

    def sync(self) -> None:
        """There is no disk to wait for."""

    def confirm(self, *, asking: bool = True) -> int:  # noqa: ARG002
        """Publish what was taken; how many of the batches count."""
        self._check_standing()
        self.held.add(self._pending, self._bytes_max)
        self._epochs.note(self.key.partition, 0, self.held.last_id)
        return len(self._pending)

    def read(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:  # noqa: ARG002
        """See `MessageStore.read`; there is nothing to be gained by leaving batches out."""
        return self.held.read(after, bytes_max, self.held.last_id)

    def bounds(self) -> Bounds:
        """See `MessageStore.bounds`."""
        return self.held.bounds(self.held.last_id)

    def measure(self, after: int, until: int) -> Amount:
        """See `MessageStore.measure`."""
        return self.held.measure(after, min(until, self.held.last_id))

    def trim(self, settings: QueueSettings, now_ms: int, until: int) -> int:
        """See `MessageStore.trim`."""
        self._keep(settings)
        return self.held.trim(settings, now_ms, until)

    def close(self) -> None:
        """Nothing to close; what is held goes with the last reference."""

    def _keep(self, settings: QueueSettings) -> None:
        self._bytes_max = settings.retention_bytes or BYTES_MAX

    def _check_standing(self) -> None:
        if (newer := self._epochs.current(self.key.partition)) != self.epoch:
            raise Fenced(f"{self.key} has a newer epoch than {self.epoch}: {newer}")
