"""One partition of the log under one epoch: its segments, read and written, and its retention."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from delivery.batch.select import Refuses
from delivery.errors import CorruptRecord, Fenced, StorageUnavailable
from delivery.model import QueueSettings
from delivery.storage.base import NOTHING, Amount, Append, Bounds, Chunk, PartitionKey, PartitionState
from delivery.storage.log.disk import Disk, locked, refusals
from delivery.storage.log.epochs import Epochs
from delivery.storage.log.folder import DataFolder
from delivery.storage.log.reader import Reader
from delivery.storage.log.recovery import recover
from delivery.storage.log.segment import ClosedFiles, Segment
from delivery.storage.log.writer import Writer
from delivery.storage.order import assert_in_order
from delivery.storage.retention import expired, oldest_kept_id
from delivery.storage.sealed import by_epoch

SEGMENT_BYTES_MIN: Final = 256 * 1024
"""A small retention makes segments smaller, since only whole ones are dropped, but not smaller than this."""
_last_id = methodcaller("last_id")
_T = TypeVar("_T")


class Tools(NamedTuple):
    """What the partitions of a store share."""

    data: DataFolder
    disk: Disk
    files: ClosedFiles
    segment_bytes: int


class Partition:
    """A partition that this process owns until it is closed, fenced or broken.

    `write`, `sync`, `confirm`, `trim` and `close` are called by one thread at a time (the store has a lock for it);
    `read`, `bounds` and `measure` by any.
    """

    def __init__(self, key: PartitionKey, epoch: int, settings: QueueSettings, tools: Tools, epochs: Epochs) -> None:
        """Fence older epochs, recover and seal what they left. Raises Fenced, CorruptRecord, StorageUnavailable."""
        self.key, self.epoch = key, epoch
        self._epochs, self._files = epochs, tools.files
        self._segment_bytes_max = tools.segment_bytes
        self._keep(settings)
        self._reader = Reader(tools.files)
        self._writer = Writer(key, epoch, tools.data, tools.disk, epochs)
        self._folder = self._writer.folder
        with refusals(f"open {key}"):
            self._folder.mkdir(exist_ok=True)
            with locked(self._folder / "lock"):
                epochs.raise_to(key.partition, epoch)
                found = recover(self._folder, epochs, key.partition, epoch, tools.disk)
        self._segments, self._relic = found.segments, found.relic
        self._writer.producers = found.producers
        self._writer.last_id = max(found.last_id, epochs.noted(key.partition, 0))

    def state(self) -> PartitionState:
        """What opening found out."""
        parts = [(one.epoch, one.base_id, one.extent.last_id) for one in self._segments if one.extent.end]
        return PartitionState(self._writer.last_id, self._writer.producers.snapshot(), by_epoch(parts, self.epoch))

    def write(self, batches: Sequence[Append], *, synced: bool = False) -> None:
        """Write stamped batches behind the watermark; they count only after `confirm`. `synced`: see `Writer.write`.

        Raises StorageUnavailable or Fenced; then and ever after, until the partition is opened anew.
        """
        writer = self._writer
        writer.check()
        assert_in_order(batches, writer.last_id)
        if writer.active is not None and writer.active.extent.end >= self._segment_bytes:
            writer.seal()
        if writer.active is None:
            self._segments += (writer.start(batches[0].header.base_id),)
        writer.write(batches, synced=synced)

    @property
    def is_quick(self) -> bool:
        """Whether `write` and `confirm` have no segment to begin or to close, and no other owner to ask about."""
        active = self._writer.active
        return active is not None and active.extent.end < self._segment_bytes and self._writer.stands

    def sync(self) -> None:
        """Bring what was written to the disk. Raises StorageUnavailable."""
        self._writer.sync()

    def confirm(self, *, asking: bool = True) -> int:
        """Publish what was written if the epoch stands; how many of the batches are stored for good.

        Raises StorageUnavailable when a newer owner has not yet settled which are, and without `asking` it Fenced.
        """
        return self._writer.confirm(asking=asking)

    def read(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """See `MessageStore.read`."""

        def read(segments: Sequence[Segment]) -> Chunk | None:
            place = bisect_right(segments, after, key=_last_id)
            if place == len(segments):
                return None
            if refuses is None:
                return self._reader.read(segments[place], after, bytes_max)
            return self._reader.read_wanted(segments[place], after, bytes_max, refuses)

        return self._reading(read)

    def bounds(self) -> Bounds:
        """See `MessageStore.bounds`."""
        held = [(segment.base_id, segment.extent) for segment in self._segments]
        stored = [(base_id, extent) for base_id, extent in held if extent.end]
        return Bounds(
            first_id=stored[0][0] if stored else 0,
            last_id=stored[-1][1].last_id if stored else self._writer.last_id,
            messages=sum(extent.messages for _, extent in stored),
            bytes=sum(extent.end for _, extent in stored),
        )

    def measure(self, after: int, until: int) -> Amount:
        """See `MessageStore.measure`."""

        def rank(segments: Sequence[Segment], message_id: int) -> Amount:
            place = bisect_right(segments, message_id, key=_last_id)
            below = [segment.extent for segment in segments[:place]]
            whole = Amount(sum(extent.messages for extent in below), sum(extent.end for extent in below))
            return whole + (self._reader.rank(segments[place], message_id) if place < len(segments) else NOTHING)

        return self._reading(lambda all_: rank(all_, until) - rank(all_, after)) if until > after else NOTHING

    def trim(self, settings: QueueSettings, now_ms: int, until: int) -> int:
        """See `MessageStore.trim`. Raises Fenced when a newer epoch owns the partition."""
        self._keep(settings)
        with refusals(f"trim {self.key}"):
            freed = self._drop(settings, now_ms, until)
            active = self._writer.active
            aged = active is not None and active.extent.end and active.base_id < oldest_kept_id(settings, now_ms)
            if aged and self._writer.broken is None:
                self._writer.seal()
                freed += self._drop(settings, now_ms, until)
        return freed

    def sync_ahead(self) -> None:
        """Bring to the disk what is there by now; for any thread, as it holds nobody up."""
        self._writer.sync_ahead()

    def shorten_tail(self) -> None:
        """Close the open segment, unless it is a small one. Raises StorageUnavailable, Fenced; it is broken then."""
        active = self._writer.active
        if active is not None and active.extent.end >= SEGMENT_BYTES_MIN and self._writer.broken is None:
            with refusals(f"shorten {self.key}"):
                self._writer.seal()

    def close(self) -> None:
        """Stop; the files close when the last reader lets go. Raises StorageUnavailable."""
        self._files.forget(self._folder)
        try:
            with refusals(f"close {self.key}"):
                self._writer.close()
        except Fenced:
            # The newer owner has cut and sealed what there was to cut.
            pass

    def _keep(self, settings: QueueSettings) -> None:
        wanted = self._segment_bytes_max
        if settings.retention_bytes is not None:
            wanted = min(wanted, max(settings.retention_bytes // 4, SEGMENT_BYTES_MIN))
        self._segment_bytes = wanted

    def _drop(self, settings: QueueSettings, now_ms: int, until: int) -> int:
        """Unlink the closed segments that are not kept; the bytes freed."""
        closed = [segment for segment in self._segments if segment is not self._writer.active]
        held = sum(segment.extent.end for segment in self._segments)
        count = expired([(s.extent.end, s.extent.last_id) for s in closed], held, settings, now_ms, until)
        doomed = closed[:count]
        if doomed:
            with self._writer.standing():
                self._segments = self._segments[count:]
                self._unlink(doomed, newest=closed[-1])
        return sum(segment.extent.end for segment in doomed)

    def _unlink(self, doomed: Sequence[Segment], newest: Segment) -> None:
        """Delete segments. The newest index stays, even alone: it keeps the last id and the producers' batches."""
        for segment in doomed:
            segment.log_path.unlink(missing_ok=True)
        relics: list[Path] = [self._relic] if self._relic else []
        for index in relics + [segment.index_path for segment in doomed]:
            if index != newest.index_path:
                index.unlink(missing_ok=True)
        self._relic = newest.index_path if newest in doomed else None

    def _reading(self, work: Callable[[Sequence[Segment]], _T]) -> _T:
        """Do `work` on the segments; again when they changed meanwhile, since trimming takes files from readers."""
        while True:
            segments = self._segments
            try:
                return work(segments)
            except FileNotFoundError as error:
                if self._epochs.current(self.key.partition) != self.epoch:
                    raise Fenced(f"{self.key} has a newer owner, which trimmed it") from error
                if self._segments is segments:
                    raise CorruptRecord(f"{self.key}: {error.filename} is missing") from error
            except CorruptRecord as error:
                raise CorruptRecord(f"{self.key}: {error.message}") from error
            except OSError as error:
                raise StorageUnavailable(f"cannot read {self.key}: {error.strerror or error}") from error
