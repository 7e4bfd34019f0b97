"""The MetaStore in HBase on tables in memory that lose requests and answers, for the tests of what can go wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from delivery.errors import HootError, UnknownOutcome
from delivery.hbase import Cells
from delivery.metastore.tables.hbase import HBaseMetaStore
from tests.hbase_tables import Data, FakeTables

TABLE = "p.metastore"


class Faulty(FakeTables):
    """Compare-and-sets that are not done, or not answered, by what `plan` says of the next ones."""

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        self.plan: list[str] = []
        """`lost`: not done, no answer. `done`: done, no answer. `late`: no answer, done at `arrive`. Else as it is."""
        self.before_look: Callable[[], object] | None = None
        """Called once, before the next look at rows."""
        self.before_ask: Callable[[], object] | None = None
        """Called once, before the next compare-and-set."""
        self.failing: HootError | None = None
        self.asked = 0
        self._late: list[tuple[Any, ...]] = []

    def check_and_put(
        self, table: str, row: bytes, check: tuple[bytes, bytes | None], column: bytes, value: bytes
    ) -> bool:
        self.asked += 1
        step, self.before_ask = self.before_ask, None
        if step is not None:
            step()
        self._check()
        fault = self.plan.pop(0) if self.plan else ""
        if fault == "late":
            self._late.append((table, row, check, column, value))
        if fault in ("lost", "late"):
            raise UnknownOutcome("the answer was lost")
        done = super().check_and_put(table, row, check, column, value)
        if fault == "done":
            raise UnknownOutcome("the answer was lost")
        return done

    def arrive(self) -> None:
        for call in self._late:
            super().check_and_put(*call)
        self._late.clear()

    def get_all(self, table: str, rows: Any, columns: Any) -> dict[bytes, Cells]:
        step, self.before_look = self.before_look, None
        if step is not None:
            step()
        self._check()
        return super().get_all(table, rows, columns)

    def scan(self, *arguments: Any, **options: Any) -> Any:
        self._check()
        return super().scan(*arguments, **options)

    def families(self, table: str) -> dict[str, int | None]:
        self._check()
        return super().families(table)

    def _check(self) -> None:
        if self.failing is not None:
            raise self.failing


def opened(tables: FakeTables, cluster: str = "c") -> HBaseMetaStore:
    """A store of that cluster, ready for use."""
    store = HBaseMetaStore(tables, "p", cluster)
    store.prepare()
    return store
