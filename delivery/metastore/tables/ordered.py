"""A table in key order in ZooKeeper (seed 001, `MetastoreScannableTable`): a hashed one with pages of its keys.

An entry is found by its hash, without the pages; only a new key and a removed one change a page, in one transaction
with the entry. So a page lists exactly the keys that are there, and an update costs no more than without an order.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from delivery.errors import BadVersion, CorruptRecord
from delivery.metastore.errors import TableFull
from delivery.metastore.ops import Op, Refused
from delivery.metastore.tables.base import MetaStore, MetastoreCursor, MetastoreScannableTable, Put
from delivery.metastore.tables.changes import Work
from delivery.metastore.tables.cursors import BufferedCursor
from delivery.metastore.tables.hashed import HashedTable
from delivery.metastore.tables.pages import Pages
from delivery.metastore.tables.ranges import KeyRange, Order
from delivery.metastore.tables.values import Fields
from delivery.metastore.tables.watching import OneShots
from delivery.metastore.znodes import ZNodes

_PAGES_AT_ONCE = 12
"""Pages in one transaction: with what a full one is split into, some 400 KB."""


class OrderedTable(MetastoreScannableTable, HashedTable):
    """A table below `path`, with its pages in `path`/order."""

    def __init__(self, store: MetaStore, name: str, zk: ZNodes, shots: OneShots, path: str) -> None:
        HashedTable.__init__(self, store, name, zk, shots, path)
        self._pages = Pages(zk, f"{path}/order")

    def _cursor(self, keys: KeyRange, fields: Fields) -> MetastoreCursor:
        return BufferedCursor(_PageKeys(self._pages, keys), lambda names: self.get_many(names, fields))

    def _arranged(self, works: list[Work]) -> list[Work]:
        """By key, so that those on one page are changed together."""
        return sorted(works, key=lambda work: work.change.key)

    def _fitting(self, works: Sequence[Work]) -> dict[Work, Op]:
        lows: set[str] = set()
        for at, work in enumerate(works):
            if _is_structural(work):
                lows.add(self._pages.low_of(work.change.key))
            if len(lows) > _PAGES_AT_ONCE:
                return super()._fitting(works[:at])
        return super()._fitting(works)

    def _extra(self, work: Work) -> int:
        return len(msgspec.json.encode(work.change.key)) if _is_structural(work) else 0

    def _commit(self, planned: dict[Work, Op], more: Sequence[Op] = ()) -> Refused | None:
        structural = [work for work in planned if _is_structural(work)]
        try:
            pages = self._pages.changes(
                [work.change.key for work in structural if work.creates],
                [work.change.key for work in structural if not work.creates],
            )
        except BadVersion:
            for work in planned:
                work.refused()
            return None
        except (CorruptRecord, TableFull) as error:
            # One full or damaged page is the business of those alone who need it.
            for work, op in planned.items():
                if len(planned) == 1:
                    work.outcome = error
                else:
                    self._commit({work: op})
            return None
        refused = super()._commit(planned, [*more, *pages])
        if refused is None:
            self._pages.applied(pages)
        return refused


def _is_structural(work: Work) -> bool:
    """Whether a key comes or goes."""
    return work.creates or not isinstance(work.change, Put)


class _PageKeys:
    """The keys of a range, page by page, looked up anew each time: pages may be split and joined meanwhile."""

    def __init__(self, pages: Pages, keys: KeyRange) -> None:
        self._pages = pages
        self._range = keys
        self._at = keys.high if keys.order is Order.DESC else keys.low or ""
        """Upwards: the lowest key that is left. Downwards: what all that is left is below, but for the first time."""
        self._is_first = True
        self._ended = False

    def more(self) -> Sequence[str] | None:
        """See Keys."""
        if self._ended:
            return None
        keys = self._upwards() if self._range.order is Order.ASC else self._downwards()
        return [key for key in keys if self._range.contains(key)]

    def _upwards(self) -> list[str]:
        at = self._at or ""
        page = self._pages.holding(at).page
        self._ended = page.high is None or self._range.ends_before(page.high)
        self._at = page.high
        return [key for key in page.keys if key >= at]

    def _downwards(self) -> list[str]:
        at = self._at
        loaded = self._pages.holding(at) if self._is_first and at is not None else self._pages.before(at)
        keys = [key for key in reversed(loaded.page.keys) if self._is_first or at is None or key < at]
        self._ended = not loaded.low or self._range.begins_after(loaded.low)
        self._at, self._is_first = loaded.low, False
        return keys
