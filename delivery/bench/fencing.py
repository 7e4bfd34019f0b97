"""The case `fencing`: what the look whether the epoch still stands adds to an append, measured in the log itself.

After a write is durable the log reads the partition's epoch in the memory that the hosts of a data folder share
(storage/log/epochs.py). That cannot be switched off, so its cost is measured in its place: of two appends in turn one
is timed from outside, and in the other the disk takes the same look once more, right behind the write or flush, with
caches as cold as the log's own look finds them, and times it alone. An append without is the difference of the medians.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from random import randbytes
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter_ns, time_ns

from delivery.batch import encode, peek, stamp
from delivery.bench.checking import BenchFailed
from delivery.bench.report import Result, result, with_fencing
from delivery.bench.stage import Plan
from delivery.ids import first_id_at
from delivery.model import Durability, QueueSettings
from delivery.storage.base import Append, PartitionKey
from delivery.storage.log import SegmentedLog
from delivery.storage.log.disk import Disk
from delivery.storage.log.epochs import Epochs
from delivery.storage.log.folder import DataFolder

_KEY, _EPOCH = PartitionKey("bench", "fencing", 0), 1


class Gauge(Disk):
    """The log's disk, which may take the log's look at the epoch once more, and time it."""

    def __init__(self) -> None:
        self.epochs: Epochs | None = None
        """Where to look after each write and flush; None for not at all."""
        self.look_ns = 0
        """What the last look took, the clock's own time taken off."""

    def write(self, fd: int, parts: Sequence[bytes], offset: int, *, synced: bool = False) -> None:
        """See Disk.write."""
        super().write(fd, parts, offset, synced=synced)
        self._look()

    def sync(self, fd: int) -> None:
        """See Disk.sync."""
        super().sync(fd)
        self._look()

    def _look(self) -> None:
        if self.epochs is None:
            return
        first = perf_counter_ns()
        begun = perf_counter_ns()
        stands = self.epochs.current(_KEY.partition) == _EPOCH
        ended = perf_counter_ns()
        assert stands, "nobody else has this folder"
        self.look_ns = (ended - begun) - (begun - first)


def fencing(plan: Plan) -> Result:
    """Appends of one message each, in an empty folder: the medians with and without the look. Raises BenchFailed."""
    with TemporaryDirectory(dir=plan.folder) as folder:
        return measured(plan, Path(folder))


def measured(plan: Plan, folder: Path) -> Result:
    """In this folder, which keeps what was appended."""
    gauge, size, messages, durability = Gauge(), plan.size, plan.messages, plan.durability
    with closing(SegmentedLog(folder, disk=gauge)) as log:
        log.open(_KEY, _EPOCH, QueueSettings(durability=durability))
        epochs = Epochs(DataFolder(folder, gauge).queue(_KEY.queue, _KEY.generation) / "epochs")
        batches = _batches(size, durability)
        for _ in range(max(10, messages // 10)):
            _append(log, next(batches))
        appends, looks = [], []
        for _ in range(messages):
            appends.append(_append(log, next(batches)))
            gauge.epochs = epochs
            _append(log, next(batches))
            gauge.epochs = None
            looks.append(gauge.look_ns)
    rated = result("fencing", size, messages, sum(appends) / 1e9, durability)
    return with_fencing(rated, median(appends) / 1e3, median(looks) / 1e3)


def _append(log: SegmentedLog, batch: Append) -> int:
    """The nanoseconds that the log took to store it."""
    begun = perf_counter_ns()
    (error,) = log.append([batch])
    took = perf_counter_ns() - begun
    if error is not None:
        raise BenchFailed(f"the log refused a batch: {error}")
    return took


def _batches(size: int, durability: Durability) -> Iterator[Append]:
    """Stamped batches of one message, as a publisher sends them."""
    base, body = first_id_at(time_ns() // 1_000_000), randbytes(size)
    for number in count():
        data = encode([(body, None, "", b"")], _KEY.partition, 1, number)
        header = peek(data)
        assert header is not None
        yield Append(_KEY, _EPOCH, *stamp(header, data, base + number, _EPOCH), durability)
