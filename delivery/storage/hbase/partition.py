"""One partition under one epoch: what its owner knows of it, writing behind it, reading it, and its retention."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from delivery import wall
from delivery.batch import Header
from delivery.batch.select import Refuses
from delivery.errors import CorruptRecord, Fenced, HootError, StorageUnavailable
from delivery.hbase import Row
from delivery.ids import ID_MAX
from delivery.model import QueueSettings
from delivery.storage.base import NOTHING, Amount, Append, Bounds, Chunk, PartitionState
from delivery.storage.hbase import keys, records
from delivery.storage.hbase.heads import Head
from delivery.storage.hbase.held import Held, Mark
from delivery.storage.hbase.layouts import Incomplete
from delivery.storage.hbase.opening import laid_out, save
from delivery.storage.hbase.place import Place
from delivery.storage.hbase.reading import read
from delivery.storage.hbase.records import Checkpoint, Owner
from delivery.storage.hbase.topics import pack
from delivery.storage.order import assert_in_order
from delivery.storage.retention import oldest_kept_id

CHECKPOINT_BATCHES: Final = 1000
"""Batches between two checkpoints: as many heads are read when the partition is opened after a crash."""
EXPIRY_MARGIN_MS: Final = 3_600_000
"""HBase removes cells so long after the queue's own time for them: until then retention and openings find them.

Of that, half is for clocks that differ and for rounds of retention that come late: nothing is read that goes sooner.
"""

_log = logging.getLogger(__name__)


class Partition:
    """A partition that this store owns until it is fenced or broken.

    `plan`, `confirm`, `fail`, `trim` and `close` are called by one thread at a time (the store has a lock for it);
    `read`, `bounds` and `measure` by any.
    """

    def __init__(self, place: Place, owner: Owner, found: Checkpoint) -> None:
        self.place, self.owner, self.epoch = place, owner, owner.epoch
        self.broken: HootError | None = None
        """Why nothing more can be written until it is opened under a newer epoch."""
        self._held = found.held
        self._producers = found.memory()
        self._layout = laid_out(owner.layout)
        self._ttl_seconds: float | None = None
        """Only what `begin` or `trim` said last: a queue's settings may change while nobody tells the store."""
        self._planned: list[tuple[Header, Held]] = []
        self._since_checkpoint = 0
        self._oldest: Head | None = None
        """The first head that retention left, so that the next look at it costs no scan."""
        self._erased_below = 0
        self._told_of_loss = False

    def state(self) -> PartitionState:
        """What opening found out."""
        return PartitionState(self._held.last_id, self._producers.snapshot(), self._held.sealed(self.epoch))

    @property
    def ttl_ms(self) -> int | None:
        """The life of the cells that are put now."""
        return None if self._ttl_seconds is None else round(self._ttl_seconds * 1000) + EXPIRY_MARGIN_MS

    # -- writing ----------------------------------------------------------------------------------------------------

    def plan(self, batches: Sequence[Append]) -> list[Row]:
        """The rows of some batches, to be put behind what is held; they count only after `confirm`.

        Raises what broke the partition.
        """
        if self.broken is not None:
            raise type(self.broken)(self.broken.message)
        assert_in_order(batches, self._held.last_id)
        rows: list[Row] = []
        held, expires = self._held, 0 if self.ttl_ms is None else wall.ms() + self.ttl_ms
        self._planned = []
        for item in batches:
            header, made = self._layout.prepare(item)
            head = held.head_after(header, expires=expires, confirmed=self._held.last_id)
            row, cells = made[0]
            told = pack(item.header, item.batch, by_message=self._layout.selects)
            made[0] = (row, {keys.HEAD: head.pack(), **({} if told is None else {keys.TOPICS: told}), **cells})
            rows += made
            held = held.plus(header, expires)
            self._planned.append((header, held))
        return rows

    def confirm(self, owner: bytes | None) -> int:
        """Count what was planned and put, if the cell that was read after that is still this owner's.

        How many of the batches are stored for good: when a newer epoch came in between, its seal tells. Raises
        StorageUnavailable when that owner has not sealed yet.
        """
        if owner == records.encode(self.owner):
            stored = len(self._planned)
        else:
            stored = self._count_sealed()
            self.broken = Fenced(f"{self.place.key} has a newer epoch than {self.epoch}")
        self._publish(stored)
        return stored

    def fail(self, error: HootError) -> HootError:
        """Nobody knows what of the planned batches was put: accept nothing more. The error to answer with."""
        if isinstance(error, Fenced):
            self.broken = error
        elif self.broken is None:
            self.broken = StorageUnavailable(f"cannot write to {self.place.key}: {error.message}")
            _log.error("%s; it accepts nothing more until it is opened anew", self.broken.message)
        return self.broken

    def close(self) -> None:
        """Leave a checkpoint, so that the next opening has nothing to follow. Fine for who was fenced or broken."""
        if self._since_checkpoint and self.broken is None:
            try:
                self._checkpoint(self._held)
            except HootError as error:
                _log.info("%s was released without a checkpoint: %s", self.place.key, error)

    def _publish(self, count: int) -> None:
        for header, held in self._planned[:count]:
            self._producers.note(header, published=False)
            self._held = held
        self._planned = []
        self._since_checkpoint += count
        if self._since_checkpoint >= CHECKPOINT_BATCHES and self.broken is None:
            try:
                self._checkpoint(self._held)
            except HootError as error:
                _log.warning("%s", error)

    def _checkpoint(self, held: Held) -> None:
        try:
            save(self.place, self.owner, records.checkpoint(self.epoch, held, self._producers))
        except HootError as error:
            self.fail(error)
            raise
        self._since_checkpoint = 0

    def _count_sealed(self) -> int:
        """How many of the planned batches a newer owner's seal includes."""
        place = self.place
        cell = place.tables.get(place.table, place.row, [keys.CHECKPOINT]).get(keys.CHECKPOINT)
        sealed = None if cell is None else records.decode_checkpoint(cell)
        if sealed is None or sealed.epoch <= self.epoch:
            raise StorageUnavailable(f"no seal of a newer epoch of {place.key} tells what counts of this one's writes")
        if self._planned and sealed.held.kept.id > self._planned[0][0].base_id:
            raise StorageUnavailable(f"{place.key} was trimmed by a newer owner: what counted is gone")
        counted = [sealed.held.counts(header) for header, _ in self._planned]
        return counted.index(False) if False in counted else len(counted)

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """See `MessageStore.read`."""
        while True:
            held = self._held
            if after >= held.last_id or held.bytes == held.kept.bytes:
                return None
            try:
                return read(self.place, self._layout, held, max(after + 1, held.kept.id), bytes_max, refuses)
            except Incomplete as error:
                if self._held is held:
                    self._explain(error)
            except CorruptRecord as error:
                raise CorruptRecord(f"{self.place.key}: {error.message}") from error

    def bounds(self) -> Bounds:
        """See `MessageStore.bounds`."""
        return self._held.bounds()

    def measure(self, after: int, until: int) -> Amount:
        """See `MessageStore.measure`."""
        held = self._held
        return self._rank(held, until) - self._rank(held, after) if until > after else NOTHING

    def _rank(self, held: Held, message_id: int) -> Amount:
        if message_id < held.kept.id:
            return Amount(held.kept.messages, held.kept.bytes)
        if message_id >= held.last_id:
            return Amount(held.messages, held.bytes)
        following = next((head for head, _ in self.place.counting(held, message_id + 1, page=1)), None)
        return held.rank(message_id, following)

    def _explain(self, error: Incomplete) -> None:
        """Say why a batch that counts is not whole: a newer owner trimmed it, or it is damaged."""
        owner = self.place.tables.get(self.place.table, self.place.row, [keys.OWNER]).get(keys.OWNER)
        if owner != records.encode(self.owner):
            raise Fenced(f"{self.place.key} has a newer owner, which trimmed it") from error
        raise CorruptRecord(f"{self.place.key}: {error.message}") from error

    # -- retention --------------------------------------------------------------------------------------------------

    def begin(self, settings: QueueSettings, now_ms: int) -> None:
        """Once opened: pass over what HBase has removed while nobody had the partition. Raises what `trim` does."""
        self._give_life(settings)
        if self._held.perishes:
            # What is archived is not known yet.
            self.trim(settings, now_ms, 0 if settings.archive_first else ID_MAX)

    def trim(self, settings: QueueSettings, now_ms: int, until: int) -> int:
        """See `MessageStore.trim`; a batch is a segment here. Raises Fenced when a newer epoch owns the partition."""
        self._give_life(settings)
        if self.broken is not None:
            raise type(self.broken)(self.broken.message)
        held = self._held
        if held.bytes == held.kept.bytes or self._all_stays(held, settings, now_ms, until):
            return 0
        first, by_itself = self._find_kept(held, settings, now_ms, until)
        kept = held.end if first is None else Mark(first.header.base_id, first.messages_before, first.bytes_before)
        if kept.bytes > held.kept.bytes:
            self._forget(held.trimmed(kept), by_itself=by_itself)
            self._tell_loss(held.last_id if first is None else first.previous_last, until)
        return kept.bytes - held.kept.bytes

    def _give_life(self, settings: QueueSettings) -> None:
        # What has to be archived first, HBase must not remove by itself.
        self._ttl_seconds = None if settings.archive_first else settings.ttl_seconds

    def _all_stays(self, held: Held, settings: QueueSettings, now_ms: int, until: int) -> bool:
        """Whether that is known without asking HBase."""
        if settings.ttl_seconds is None and settings.retention_bytes is None and not held.perishes:
            return True
        oldest = self._oldest
        return (
            oldest is not None
            and not _goes(oldest, held, settings, now_ms, until)
            and held.outlived(_doomed_by(now_ms)) is None
        )

    def _find_kept(self, held: Held, settings: QueueSettings, now_ms: int, until: int) -> tuple[Head | None, bool]:
        """The first batch that stays, None where none does, and whether HBase removes all before it by itself."""
        outlived = held.outlived(_doomed_by(now_ms))
        by_itself = outlived is None
        for head, _ in self.place.counting(held, held.kept.id if outlived is None else outlived):
            if not _goes(head, held, settings, now_ms, until):
                self._oldest = head
                return head, by_itself
            by_itself &= head.expires > 0
        self._oldest = None
        return None, by_itself

    def _forget(self, held: Held, *, by_itself: bool) -> None:
        self._checkpoint(held)
        self._held = held
        if not by_itself:
            self.place.erase(self._erased_below, held.kept.id)
            self._erased_below = held.kept.id

    def _tell_loss(self, last_id: int, until: int) -> None:
        """Warn, once, when HBase takes what had to wait for the archive; an opening does not know what is archived."""
        if last_id > until and not self._told_of_loss:
            self._told_of_loss = True
            _log.warning(
                "%s: HBase removes messages by itself, up to %d by now, which were stored with a ttl before"
                " archive_first was switched on: those that are not archived are lost", self.place.key, last_id,
            )  # fmt: skip


def _goes(head: Head, held: Held, settings: QueueSettings, now_ms: int, until: int) -> bool:
    """Whether HBase is about to remove the oldest batch, whatever is wanted now; or it is not above `until`, and is
    too old, or the partition too large with it.
    """
    if 0 < head.expires <= _doomed_by(now_ms):
        return True
    if head.header.last_id > until:
        return False
    limit = settings.retention_bytes
    too_old = head.header.last_id < oldest_kept_id(settings, now_ms)
    return too_old or (limit is not None and held.bytes - head.bytes_before > limit)


def _doomed_by(now_ms: int) -> int:
    """Nothing is read that HBase may remove by then."""
    return now_ms + EXPIRY_MARGIN_MS // 2
