"""The order of a table in ZooKeeper: the sorted keys in pages, as the leaves of a B+ tree.

    order/-            Page: the keys below `order/-m`
    order/-m           Page: "m" and above; the last one has no end

A page is JSON: {"high": the first page's end or null, "keys": [...]}. Together the pages cover all keys without gap or
overlap, because each change of a page's ends is one transaction with that of its neighbour's. A page above PAGE_BYTES
is split; one without keys is given to its left neighbour; others are not merged. Of the ends that would separate two
pages the shortest is taken.

What is known of the pages here is their ends, and that may be out of date: a page says by itself how far it goes, and
every change of one is made under its version.

The arithmetic: a page is left some two thirds full, 22 KB, which is 340 keys of 60 characters. A million of these are
3,000 pages, and their listing takes 190 KB of the LISTING_BYTES it may have. With N keys of L characters it is
N * L * L / 22,000 bytes: room for a million keys of 140 characters, or 5 million of 60. Then the table is full, and
says so (TableFull). A new key writes its page anew, 22 KB, which is why tables that need no order have none.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from delivery.errors import BadVersion, CorruptRecord, MetadataUnavailable
from delivery.metastore.errors import TableFull
from delivery.metastore.ops import Check, Create, Delete, Op, Set
from delivery.metastore.tables.entries import decode_key, encode_key
from delivery.metastore.znodes import ZNodes
from delivery.model import lay_out

PAGE_BYTES: Final = 32 * 1024
LISTING_BYTES: Final = 900_000

_FILL = PAGE_BYTES * 2 // 3
_ATTEMPTS = 20
_NAME_BYTES = 4  # in a listing, before each name
_WITHOUT_KEYS = b'"keys":[]}'


class Page(msgspec.Struct, frozen=True):
    """Some of the keys."""

    high: str | None
    """Where the next page begins; None in the last."""
    keys: list[str]
    """Sorted."""


lay_out(Page)


class Loaded(msgspec.Struct, frozen=True):
    """A page as it was read."""

    low: str
    page: Page
    version: int

    def covers(self, key: str) -> bool:
        """Whether `key` belongs here."""
        return self.low <= key and (self.page.high is None or key < self.page.high)


def first_page(folder: str) -> Op:
    """The one page of a new table."""
    return Create(f"{folder}/-", _encode(Page(None, [])))


class Pages:
    """The pages of one table. Thread-safe."""

    def __init__(self, zk: ZNodes, folder: str) -> None:
        self._zk = zk
        self._folder = folder
        self._lock = threading.Lock()
        self._lows: list[str] = [""]

    def low_of(self, key: str) -> str:
        """The page that `key` belongs to, as far as is known."""
        with self._lock:
            return self._lows[bisect_right(self._lows, key) - 1]

    def holding(self, key: str) -> Loaded:
        """The page that `key` belongs to."""
        return self.holding_all([key])[key]

    def before(self, key: str | None) -> Loaded:
        """The page that the keys right below `key` are on; the last one for None."""
        return self._find(lambda: self._low_before(key), lambda found: _reaches(found, key))

    def holding_all(self, keys: Iterable[str]) -> dict[str, Loaded]:
        """Per key the page that it belongs to."""
        missing = list(keys)
        found: dict[str, Loaded] = {}
        for _ in range(_ATTEMPTS):
            lows = {key: self.low_of(key) for key in missing}
            pages = self._load(list(dict.fromkeys(lows.values())))
            for key, low in lows.items():
                page = pages.get(low)
                if page is not None and page.covers(key):
                    found[key] = page
            missing = [key for key in missing if key not in found]
            if not missing:
                return found
            self.refresh()
        raise self._restless()

    def refresh(self) -> list[str]:
        """Look where the pages begin now; gives the names of their znodes."""
        names = self._zk.children(self._folder)
        if not names:
            raise MetadataUnavailable(f"{self._folder} is not there any more: its table was dropped")
        lows = sorted(_low_of_name(name, self._folder) for name in names)
        with self._lock:
            self._lows = lows
        return names

    # -- changing

    def changes(self, added: Iterable[str], removed: Iterable[str]) -> list[Op]:
        """What is to be done with the pages so that `added` are on them and `removed` are not. Raises TableFull."""
        adding, removing = set(added), set(removed)
        if not adding | removing:
            return []
        ops: list[Op] = []
        by_low: dict[str, Loaded] = {}
        touched: dict[str, set[str]] = {}
        for key, loaded in self.holding_all(adding | removing).items():
            by_low[loaded.low] = loaded
            touched.setdefault(loaded.low, set()).add(key)
        for low, keys in touched.items():
            ops += self._changed(by_low[low], keys & adding, keys & removing)
        return ops

    def _changed(self, loaded: Loaded, adding: set[str], removing: set[str]) -> list[Op]:
        path = self._path(loaded.low)
        page = Page(loaded.page.high, sorted((set(loaded.page.keys) | adding) - removing))
        if page == loaded.page:
            return [Check(path, loaded.version)]
        if _size(page.keys) <= PAGE_BYTES:
            return [Set(path, _encode(page), loaded.version)]
        parts = _split(page)
        self._check_room([encode_key(low) for low, _ in parts])
        ops: list[Op] = [Set(path, _encode(parts[0][1]), loaded.version)]
        return ops + [Create(self._path(low), _encode(part)) for low, part in parts[1:]]

    def _check_room(self, more: Sequence[str]) -> None:
        names = [*self.refresh(), *more]
        if sum(len(name) + _NAME_BYTES for name in names) > LISTING_BYTES:
            raise TableFull(
                f"{self._folder} has {len(names)} pages, more than can be listed: remove keys, or use HBase"
            )

    def _join(self, low: str) -> None:
        """Give the range of a page without keys to its left neighbour; leaves it when others are at it."""
        with contextlib.suppress(BadVersion, MetadataUnavailable, CorruptRecord):
            left, page = self.before(low), self.holding(low)
            if page.page.keys or page.low != low or left.page.high != low:
                return
            wider = Page(page.page.high, left.page.keys)
            joined: list[Op] = [
                Set(self._path(left.low), _encode(wider), left.version),
                Delete(self._path(low), page.version),
            ]
            if self._zk.multi(joined) is None:
                with self._lock:
                    self._lows = [one for one in self._lows if one != low]

    def applied(self, ops: Iterable[Op]) -> None:
        """What `changes` gave was done: learn of the new pages, and join the ones that it left without keys."""
        prefix = len(self._folder) + 1
        lows = {op: _low_of_name(op.path[prefix:], self._folder) for op in ops}
        with self._lock:
            for op, low in lows.items():
                if isinstance(op, Create) and low not in self._lows:
                    insort(self._lows, low)
        for op, low in lows.items():
            if low and isinstance(op, Set) and op.value.endswith(_WITHOUT_KEYS):
                self._join(low)

    # -- reading

    def _find(self, low: Callable[[], str], fits: Callable[[Loaded], bool]) -> Loaded:
        for _ in range(_ATTEMPTS):
            wanted = low()
            found = self._load([wanted]).get(wanted)
            if found is not None and fits(found):
                return found
            self.refresh()
        raise self._restless()

    def _load(self, lows: Sequence[str]) -> dict[str, Loaded]:
        paths = [self._path(low) for low in lows]
        found = zip(lows, paths, self._zk.get_many(paths), strict=True)
        return {low: Loaded(low, _decode(path, one[0]), one[1]) for low, path, one in found if one is not None}

    def _low_before(self, key: str | None) -> str:
        with self._lock:
            if key is None:
                return self._lows[-1]
            return self._lows[max(0, bisect_left(self._lows, key) - 1)]

    def _path(self, low: str) -> str:
        return f"{self._folder}/-{encode_key(low)}"

    def _restless(self) -> BadVersion:
        return BadVersion(f"the pages of {self._folder} are being changed by others at this moment; try again")


def _reaches(loaded: Loaded, key: str | None) -> bool:
    high = loaded.page.high
    if key is None:
        return high is None
    return loaded.low < key and (high is None or key <= high)


def _split(page: Page) -> list[tuple[str, Page]]:
    """Pages of at most _FILL bytes with the keys of `page`, each with its beginning; the first one's is unknown."""
    runs: list[list[str]] = [[]]
    size = 0
    for key in page.keys:
        size += _key_size(key)
        if size > _FILL and runs[-1]:
            runs.append([])
            size = _key_size(key)
        runs[-1].append(key)
    lows = ["", *(_between(left[-1], right[0]) for left, right in itertools.pairwise(runs))]
    highs = [*lows[1:], page.high]
    return [(low, Page(high, run)) for low, high, run in zip(lows, highs, runs, strict=True)]


def _between(left: str, right: str) -> str:
    """The shortest beginning of `right` that is above `left`."""
    same = 0
    while same < len(left) and left[same] == right[same]:
        same += 1
    return right[: same + 1]


def _key_size(key: str) -> int:
    return len(msgspec.json.encode(key)) + 1


def _size(keys: Iterable[str]) -> int:
    return sum(map(_key_size, keys))


def _encode(page: Page) -> bytes:
    return msgspec.json.encode(page)


def _decode(path: str, data: bytes) -> Page:
    try:
        return msgspec.json.decode(data, type=Page)
    except msgspec.DecodeError as error:
        raise CorruptRecord(f"the value of {path} is no page of keys: {error}") from error


def _low_of_name(name: str, folder: str) -> str:
    if name == "-":
        return ""
    if not name.startswith("-"):
        raise CorruptRecord(f"{folder}/{name[:80]} is not Hoot's: pages have names that begin with a dash")
    return decode_key(name[1:], folder)
