"""Reading a partition from an id on: heads tell what lies there, then messages are fetched, those that may be wanted.

Who reads some topics (`refuses`) gets what the cells beside the heads leave of it, and is told how far that looked:

- a batch of which nothing can be wanted is passed over;
- where few messages can be wanted, and they have rows of their own, these rows are fetched and no others;
- of everything else whole batches come, as for who reads all.

A scan that has HBase select columns or filter rows looks at each row all the same: for one topic in a hundred it took
five times (QualifierFilter) to twenty times (columns) as long as asking for the rows by their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from delivery.batch import Header, peek
from delivery.batch.select import Refuses
from delivery.storage.base import Chunk
from delivery.storage.hbase.heads import Head
from delivery.storage.hbase.held import Held
from delivery.storage.hbase.layouts import Incomplete, LaidOut, Part
from delivery.storage.hbase.place import Place, Told
from delivery.storage.hbase.topics import wanted_of

HEADS_MAX: Final = 2000
"""One read looks at so many batches where all of them are refused."""
SCARCE: Final = 5
"""A row that is asked for by its key costs about as much as so many of a scan."""


def read(place: Place, layout: LaidOut, held: Held, first_id: int, bytes_max: int, refuses: Refuses | None) -> Chunk:
    """What a read gives of what is held and not below `first_id`, where there is something.

    Raises Incomplete where something that counts is not there, CorruptRecord, StorageUnavailable.
    """
    walk = partial(place.counting, held, told=refuses is not None)
    following = _following(walk, held, first_id)
    if refuses is not None:
        return _narrowed(place, layout, following, bytes_max, refuses)
    heads = _fitting((head for head, _ in following), bytes_max)
    batches = layout.load(place.tables, place.table, heads)
    return Chunk(b"".join(batches), tuple(head.header for head in heads))


def _following(walk: Callable[[int], Iterator[Told]], held: Held, first_id: int) -> Iterator[Told]:
    """The batches from the one that has `first_id` on, or follows it; `walk` gives those with a base from an id on.

    Each names the one before it. Raises Incomplete where that is not there.
    """
    found = walk(min(first_id, held.last_base))
    before = next(found, None)
    if before is not None and _is_behind(before[0], held, first_id):
        base = before[0].previous_base
        found = walk(base)
        before = next(found, None)
        if before is None or before[0].header.base_id != base:
            raise Incomplete(f"the batch of {base} is not there")
    if before is None:
        raise Incomplete("a batch that counts is not there")
    yield before
    for one in found:
        if one[0].previous_last != before[0].header.last_id:
            raise Incomplete(f"the batch of {one[0].previous_base} is not there")
        yield one
        before = one


def _is_behind(head: Head, held: Held, first_id: int) -> bool:
    """Whether the batch before that head has the id, too."""
    return head.previous_last >= first_id and head.previous_base >= held.kept.id


def _fitting(heads: Iterator[Head], bytes_max: int) -> list[Head]:
    """As many as fit, at least one if there is one."""
    found: list[Head] = []
    room = bytes_max
    for head in heads:
        room -= head.header.length
        if found and room < 0:
            break
        found.append(head)
    return found


class _Stretch:
    """Batches one after another, as many as one read takes in."""

    def __init__(self, *, selects: bool, bytes_max: int) -> None:
        self.parts: list[Part] = []
        self.seen = 0
        self.covered = 0
        """The last id that was looked at."""
        self._selects, self._room = selects, bytes_max
        self._wanted = self._messages = 0

    def take(self, part: Part) -> bool:
        """Take the next batch in, or pass it over. False where the stretch ends before it."""
        header = part.head.header
        if self.seen >= HEADS_MAX:
            return False
        if part.wanted:
            size = header.length * part.wanted // header.count if self._selects else header.length
            if self.parts and (size > self._room or part.is_known != self.parts[0].is_known):
                return False
            self.parts.append(part)
            self._room -= size
            self._wanted += part.wanted
            self._messages += header.count
        self.seen += 1
        self.covered = header.last_id
        return True

    @property
    def is_scarce(self) -> bool:
        """Whether the rows of what is wanted are to be asked for one by one."""
        return self._selects and self.parts[0].is_known and self._wanted * SCARCE <= self._messages


def _narrowed(place: Place, layout: LaidOut, heads: Iterator[Told], bytes_max: int, refuses: Refuses) -> Chunk:
    stretch = _Stretch(selects=layout.selects, bytes_max=bytes_max)
    for head, cell in heads:
        if not stretch.take(Part(head, None if cell is None else wanted_of(head.header, cell, refuses))):
            break
    parts, covered = stretch.parts, stretch.covered
    if not parts:
        return Chunk(b"", (), covered)
    if stretch.is_scarce:
        batches = layout.select(place.tables, place.table, parts)
        return Chunk(b"".join(batches), tuple(_headers(batches)), covered)
    fitting = _fitting((part.head for part in parts), bytes_max)
    batches = layout.load(place.tables, place.table, fitting)
    headers = tuple(head.header for head in fitting)
    if len(fitting) < len(parts):
        covered = headers[-1].last_id
    return Chunk(b"".join(batches), headers, covered if stretch.seen > len(parts) else None)


def _headers(batches: list[bytes]) -> Iterator[Header]:
    return (header for header in map(peek, batches) if header is not None)
