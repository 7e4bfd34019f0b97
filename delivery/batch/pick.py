"""Some messages of a batch as a batch of their own, which covers no ids beyond theirs, or as several without gaps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from delivery.batch.decode import Batch
from delivery.batch.encode import assemble


def pick(batch: Batch, numbers: Collection[int]) -> bytes:
    """The messages of `batch` with these ids; there must be at least one."""
    wanted = frozenset(numbers)
    return pick_places(batch, [place for place, number in enumerate(batch.ids()) if number in wanted])


def pick_places(batch: Batch, places: Sequence[int]) -> bytes:
    """The messages of `batch` at these places, which rise; there must be at least one."""
    ids, header = batch.ids(), batch.header
    first, last = ids[places[0]], ids[places[-1]]
    columns = batch.columns(places)
    columns.positions = [ids[place] - first for place in places] if last - first >= len(places) else None
    return assemble(
        columns, header.partition, base_id=first, epoch=header.epoch, producer_id=header.producer_id,
        producer_sequence=header.producer_sequence, span=last - first + 1,
    )  # fmt: skip


def dense(batch: Batch, numbers: Collection[int]) -> Iterator[bytes]:
    """The messages of `batch` with these ids as batches that can be stored: one for each run of ids without a gap.

    They are of no producer: several would have the number of the one.
    """
    wanted, ids, run = frozenset(numbers), batch.ids(), list[int]()
    for place, number in enumerate(ids):
        if number in wanted and (not run or number == ids[run[-1]] + 1):
            run.append(place)
            continue
        if run:
            yield _run(batch, run)
        run = [place] if number in wanted else []
    if run:
        yield _run(batch, run)


def _run(batch: Batch, places: Sequence[int]) -> bytes:
    header, columns = batch.header, batch.columns(places)
    columns.positions = None
    return assemble(columns, header.partition, base_id=batch.ids()[places[0]], epoch=header.epoch)
