"""The real store over simulated tables of HBase, which promises one row at a time and nothing else.

A request travels to a gateway and from there, row by row, to the region servers. What has left the host arrives,
whatever becomes of the host: some of its rows or all, at once or seconds later, in any order, and now and then a second
time, because a gateway asks again on its own. The answer can get lost by itself.

What counts is noted on the shelf as it becomes true: by an acknowledgement, or by the seal of a next owner. Each owner
must find all that is on it, as it stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import outcome

from delivery.batch import Header, open_batch
from delivery.errors import HootError, StorageUnavailable, UnknownOutcome
from delivery.hbase import Cells, Row
from delivery.model import QueueSettings
from delivery.storage.base import Append, MessageStore, PartitionKey, PartitionState
from delivery.storage.hbase import HBaseStore
from delivery.storage.homes import OwnRegister
from tests.hbase_tables import Data, FakeTables
from tests.simulation.disk import Disk, Shelf
from tests.simulation.kernel import Kernel
from tests.simulation.machine import Machine, Resume, spend, stand_still

LOST: Final = 0.08
"""Part of the changes of which nobody knows how much arrives, when nothing else is wrong."""
TWICE: Final = 0.02
"""Part of the rows that arrive again, later."""
LATE_SECONDS: Final = 4.0


class Gone(Exception):
    """A batch that counted is not what it was, or is not there."""


class HBaseDisk(Disk):
    """HBase, as all hosts share it."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.pace = self.slowness = kernel.random.choice((8.0, 30.0, 60.0))  # so slow that batches wait and go together
        self.data: Data = {}
        self.register = OwnRegister()
        self._layout: Any = "rows" if kernel.chance(0.5) else "batches"

    @property
    def losing(self) -> float:
        """The part of the changes that are lost now, or some rows of them, or their answers."""
        return 0.0 if self.calm else max(self.failing, LOST)

    def store(self, machine: Machine) -> MessageStore:
        """See Disk."""
        return SimulatedHBaseStore(machine, self, self._layout)


class SimulatedTables(FakeTables):
    """The tables as one host reaches them. Blocking; used in strands."""

    def __init__(self, machine: Machine, disk: HBaseDisk) -> None:
        super().__init__(disk.data)
        self._machine, self._disk, self._kernel = machine, disk, machine.kernel

    def families(self, table: str) -> dict[str, int | None]:
        return self._travel(partial(super().families, table))  # type: ignore[no-any-return]

    def get(self, table: str, row: bytes, columns: Sequence[bytes]) -> Cells:
        return self._travel(partial(super().get, table, row, columns))  # type: ignore[no-any-return]

    def get_all(self, table: str, rows: Sequence[bytes], columns: Sequence[bytes]) -> dict[bytes, Cells]:
        one = super().get

        def get() -> dict[bytes, Cells]:
            found = {row: one(table, row, columns) for row in rows}
            return {row: cells for row, cells in found.items() if cells}

        return self._travel(get)  # type: ignore[no-any-return]

    def settle(self, table: str, row: bytes, column: bytes, value: bytes) -> bytes:
        """Once in the life of a table; in no time."""
        return FakeTables(self.data).settle(table, row, column, value)

    def scan(self, *args: Any, **options: Any) -> list[Row]:
        return self._travel(partial(super().scan, *args, **options))  # type: ignore[no-any-return]

    def put(self, table: str, rows: Sequence[Row], *, ttl_ms: int | None = None) -> None:
        put = super().put
        self._change([partial(put, table, [row], ttl_ms=ttl_ms) for row in rows])

    def erase(self, table: str, rows: Sequence[bytes], families: Sequence[str]) -> None:
        """Only what lies behind all that counts is erased here, so that what comes again stays behind it."""
        erase, held = super().erase, self.data[table]

        def one(row: bytes) -> None:
            if row in held:
                erase(table, [row], families)

        self._change([partial(one, row) for row in rows])

    def check_and_put(
        self, table: str, row: bytes, check: tuple[bytes, bytes | None], column: bytes, value: bytes
    ) -> bool:
        work = partial(super().check_and_put, table, row, check, column, value)
        if not self._kernel.chance(self._disk.losing):
            return self._travel(work)  # type: ignore[no-any-return]
        if self._kernel.chance(0.7):
            self._kernel.later(self._late(), work)
        spend(self._disk.travel())
        raise UnknownOutcome("the answer was lost")

    def _travel(self, work: Callable[[], Any]) -> Any:
        """Do it when it has got there; the answer takes some time, too."""

        def arrive(resume: Resume) -> None:
            answer = outcome.capture(work)
            self._kernel.later(self._kernel.between(0.0001, 0.001), partial(resume, answer))

        if self._kernel.chance(self._disk.failing / 4):
            spend(self._disk.travel())
            raise StorageUnavailable("HBase does not answer")
        return stand_still(lambda resume: self._kernel.later(self._disk.travel(), partial(arrive, resume))).unwrap()

    def _change(self, works: list[Callable[[], object]]) -> None:
        """Change rows, each by itself."""
        kernel = self._kernel
        for work in works:
            if not self._disk.calm and kernel.chance(TWICE):
                kernel.later(kernel.between(0, LATE_SECONDS), work)
        if kernel.chance(self._disk.losing):
            some = kernel.random.sample(works, kernel.random.randint(0, len(works)))
            for work in some:
                kernel.later(self._late(), work)
            spend(self._disk.travel())
            raise StorageUnavailable("HBase did not answer in time")
        self._travel(lambda: [work() for work in self._arriving(works)])

    def _arriving(self, works: list[Callable[[], object]]) -> list[Callable[[], object]]:
        """All of them; had the host crashed before, some."""
        if self._machine.alive:
            return works
        return self._kernel.random.sample(works, self._kernel.random.randint(0, len(works)))

    def _late(self) -> float:
        return self._disk.travel() * (1 if self._kernel.chance(0.5) else 100)


class StrandLock:
    """What a threading.Lock is to threads."""

    def __init__(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        while self._held:
            spend(0.0005)
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False


class SimulatedHBaseStore(HBaseStore):
    """The store of one host. It also notes on the shelves what counts, and compares what an owner finds with them."""

    def __init__(self, machine: Machine, disk: HBaseDisk, layout: Any) -> None:
        super().__init__(SimulatedTables(machine, disk), layout=layout, register=disk.register)
        self._name = machine.name
        self._machine, self._disk = machine, disk

    def open(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> PartitionState:
        state = super().open(key, epoch, settings)
        self._compare(key, epoch, self._disk.shelf(key))
        self._machine.kernel.note("opened", self._machine.name, key.partition, epoch, state.last_id)
        return state

    def append(self, group: Sequence[Append]) -> list[HootError | None]:
        self._machine.kernel.note("append", self._machine.name, *(item.header.base_id for item in group))
        answers = super().append(group)
        for item, error in zip(group, answers, strict=True):
            if error is None:
                self._acknowledge(item)
        return answers

    def close(self) -> None:
        """A host that is no more leaves everything as it is."""
        if self._machine.alive:
            super().close()

    def _lock(self, key: PartitionKey) -> Any:
        return self._locks.setdefault(key, StrandLock())  # type: ignore[arg-type]

    def _acknowledge(self, item: Append) -> None:
        shelf, kernel = self._disk.shelf(item.key), self._machine.kernel
        if item.header.base_id > shelf.last_id:
            shelf.rows.append(item)
            kernel.note("landed", self._machine.name, item.key.partition, item.epoch, item.header.base_id)
        elif item.header.base_id not in {row.header.base_id for row in shelf.rows if row.epoch == item.epoch}:
            kernel.fail(Gone(f"{item.key}: {item.header.base_id} of epoch {item.epoch} was acknowledged after a seal"))

    def _compare(self, key: PartitionKey, epoch: int, shelf: Shelf) -> None:
        """An owner must find what counts; what it finds behind that counts from now on.

        One that stood still since its seal finds nothing of later owners, and no more than they did.
        """
        found = list(self._batches(key))
        before = [row for row in shelf.rows if row.epoch < epoch]
        for row, (header, data) in zip(before, found, strict=False):
            if header.base_id != row.header.base_id or _bodies(data) != _bodies(row.batch):
                self._machine.kernel.fail(Gone(f"{key}: an owner finds {header.base_id} for {row.header.base_id}"))
        if len(found) < len(before):
            missing = before[len(found)].header.base_id
            self._machine.kernel.fail(Gone(f"{key}: an owner does not find {missing}, which counted"))
        more = [Append(key, header.epoch, header, data, "fsync") for header, data in found[len(before) :]]
        if more and len(before) < len(shelf.rows):
            self._machine.kernel.fail(Gone(f"{key}: an owner found {more[0].header.base_id}, and the next one did not"))
        shelf.rows += more

    def _batches(self, key: PartitionKey) -> Iterator[tuple[Header, bytes]]:
        """All that an open partition holds, in no time."""
        after = 0
        with self._at_once(key):
            while (chunk := super().read(key, after, 1)) is not None:
                yield chunk.headers[0], chunk.data
                after = chunk.last_id

    @contextmanager
    def _at_once(self, key: PartitionKey) -> Iterator[None]:
        partition = self._partitions[key]
        place = partition.place
        partition.place = place._replace(tables=FakeTables(self._disk.data))
        try:
            yield
        finally:
            partition.place = place


def _bodies(data: bytes) -> list[bytes]:
    return list(open_batch(data).bodies())
