"""Opening a partition: the fence, then what older epochs left, then the seal.

0. The table is seen to be the one that was made for the queue (`making`).
1. `batch:owner` is moved to the new epoch by checkAndPut. Whoever writes under an older epoch looks at that cell after
   each write, so nothing that lands from here on is acknowledged; what was acknowledged has landed.
2. The heads behind the last checkpoint are followed as long as they hang together. What the writer itself noted as
   confirmed is complete; of the rest, one group at most, every batch is looked at, since of a request with many rows
   any part may have arrived. What was confirmed and is not there any more, HBase has removed after its time: what
   stands behind such a hole counts all the same.
3. The checkpoint with the new epoch and the found range is the seal: rows of an older epoch beyond it never count,
   whenever they arrive. What is there of them is deleted.

A host may die between any two of them. The next one then finds a newer owner and an older checkpoint, whose epoch tells
whose batches may still follow.
"""

from __future__ import annotations

from typing import Final

from delivery.errors import Fenced, StorageUnavailable, UnknownOutcome
from delivery.model import Layout
from delivery.storage.hbase import keys, records
from delivery.storage.hbase.heads import Head
from delivery.storage.hbase.held import Held, follow
from delivery.storage.hbase.layouts import Batches, Incomplete, LaidOut, Rows
from delivery.storage.hbase.making import gone
from delivery.storage.hbase.place import Place
from delivery.storage.hbase.records import VERSION, Checkpoint, Owner

TRIES: Final = 5
"""Hosts that move the owner at the same moment, or lost answers, before an opening is given up."""
_FOLLOW_PAGE: Final = 500


def laid_out(layout: Layout) -> LaidOut:
    """The code of a layout."""
    return Rows() if layout == "rows" else Batches()


def fence(place: Place, epoch: int, store: str, layout: Layout, word: bytes) -> Owner:
    """Take the partition for `store` under `epoch`. A partition that has a layout keeps it.

    Raises MessagesGone when another `word` is in the table; Fenced, LayoutMismatch, CorruptRecord, StorageUnavailable.
    """
    for _ in range(TRIES):
        rows = place.tables.get_all(place.table, [place.row, keys.TABLE_ROW], [keys.OWNER, keys.TABLE])
        if rows.get(keys.TABLE_ROW, {}).get(keys.TABLE) != word:
            raise gone(place.table, f"was emptied, or made anew (batch:table of its row ff ff is not {word.decode()})")
        cell = rows.get(place.row, {}).get(keys.OWNER)
        found = None if cell is None else records.decode_owner(cell)
        if found is not None:
            if (found.epoch, found.store) == (epoch, store):
                return found
            if found.epoch >= epoch:
                raise Fenced(f"epoch {found.epoch} has {place.key} already; {epoch} is too old")
        owner = Owner(VERSION, layout if found is None else found.layout, epoch, store)
        try:
            moved = place.tables.check_and_put(
                place.table, place.row, (keys.OWNER, cell), keys.OWNER, records.encode(owner)
            )
        except UnknownOutcome:
            continue
        if moved:
            return owner
    raise StorageUnavailable(f"{place.key} could not be taken in {TRIES} tries")


def recover(place: Place, owner: Owner) -> Checkpoint:
    """Find what is stored, seal it, and delete what does not count.

    Raises Fenced when a newer epoch came in between, CorruptRecord, StorageUnavailable.
    """
    cell = place.tables.get(place.table, place.row, [keys.CHECKPOINT]).get(keys.CHECKPOINT)
    before = Checkpoint(owner.epoch, Held(), ()) if cell is None else records.decode_checkpoint(cell)
    held, producers = before.held, before.memory()
    for head in _whole(place, owner.layout, before):
        held = held.found(head)
        producers.note(head.header, published=False)
    sealed = records.checkpoint(owner.epoch, held, producers)
    save(place, owner, sealed)
    place.erase(held.last_id + 1)
    return sealed


def save(place: Place, owner: Owner, checkpoint: Checkpoint) -> None:
    """Put a checkpoint while `owner` stands.

    Raises Fenced, and StorageUnavailable when it may have been put or not: then nothing more may be written under this
    epoch, since what was lost on its way might still arrive, behind a later checkpoint.

    It is read back: on a region server whose clock is behind that of the one before, a put lies under the older value,
    and is there only when that clock has caught up. HBase sees to it for the cell that is checked, not for another.
    """
    cell = records.encode(checkpoint)
    check = (keys.OWNER, records.encode(owner))
    try:
        put = place.tables.check_and_put(place.table, place.row, check, keys.CHECKPOINT, cell)
    except UnknownOutcome as error:
        raise StorageUnavailable(f"{place.key}: whether a checkpoint was put is unknown: {error.message}") from error
    if not put:
        raise Fenced(f"{place.key} has a newer epoch than {owner.epoch}")
    found = place.tables.get(place.table, place.row, [keys.OWNER, keys.CHECKPOINT])
    if found.get(keys.OWNER) != check[1]:
        raise Fenced(f"{place.key} has a newer epoch than {owner.epoch}")
    if found.get(keys.CHECKPOINT) != cell:
        raise StorageUnavailable(f"{place.key}: a checkpoint was put and is not there: do the servers' clocks differ?")


def _whole(place: Place, layout: Layout, before: Checkpoint) -> list[Head]:
    """The batches behind a checkpoint that are complete, up to the first that is not."""
    last_id = before.held.last_id
    found = list(follow(last_id, before.epoch, place.walk(last_id + 1, page=_FOLLOW_PAGE)))
    confirmed = max((head.confirmed for head in found), default=last_id)
    for number, head in enumerate(found):
        if head.header.last_id > confirmed:
            try:
                laid_out(layout).load(place.tables, place.table, [head])
            except Incomplete:
                return found[:number]
    return found
