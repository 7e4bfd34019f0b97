"""What a partition holds, as its owner knows it and as checkpoints keep it. Values and arithmetic, no I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

import msgspec

from delivery.batch import Header
from delivery.storage.base import Amount, Bounds
from delivery.storage.hbase.heads import Head
from delivery.storage.sealed import EpochIds

CLOCK_STEP_MS: Final = 600_000
"""A writer's clock may go back by so much: what it writes then counts as living no shorter than what is before it."""

_first_id = attrgetter("first_id")


class Mark(msgspec.Struct, frozen=True):
    """A place between batches."""

    id: int = 0
    """The lowest id that may be read."""
    messages: int = 0
    """Messages before it, of all times."""
    bytes: int = 0
    """Bytes of batches before it, of all times."""


class Life(msgspec.Struct, frozen=True):
    """Batches one behind the other, all of which stay, or of which HBase removes none before the one before it."""

    first_id: int
    """The base id of the first; they end before the first of the next such life."""
    expires: int
    """When HBase may remove that one, in ms since 1970; 0 for never."""
    last_expires: int
    """The latest such time of them."""


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ids that count, and the sums over everything stored in the partition's life."""

    ranges: tuple[EpochIds, ...] = ()
    """What each epoch stored, rising: a row counts when its epoch's range has its id, and only then."""
    last_base: int = 0
    """The base id of the last batch."""
    last_id: int = 0
    """The watermark."""
    messages: int = 0
    bytes: int = 0
    kept: Mark = Mark()
    """What lies before this was trimmed."""
    last_shown: int = 0
    """Messages of the last batch."""
    lives: tuple[Life, ...] = ()
    """Which batches HBase removes by itself, rising: more than one where the queue's ttl was changed."""

    def plus(self, header: Header, expires: int) -> Held:
        """With one more batch at its end, which HBase removes at `expires`, 0 for never."""
        epoch, ranges = header.epoch, self.ranges
        first_id = header.base_id
        if ranges and ranges[-1].epoch == epoch:
            first_id = ranges[-1].first_id
            ranges = ranges[:-1]
        return Held(
            (*ranges, EpochIds(epoch, first_id, header.last_id)), header.base_id, header.last_id,
            self.messages + header.shown, self.bytes + header.length, self.kept, header.shown,
            _longer(self.lives, header.base_id, expires),
        )  # fmt: skip

    def found(self, head: Head) -> Held:
        """With a batch that was found behind it; what stood between is counted, though it is not there any more."""
        held = self
        if head.previous_last != self.last_id:
            gone = head.previous_expires
            held = Held(
                self.ranges, head.previous_base, head.previous_last, head.messages_before, head.bytes_before, self.kept,
                head.previous_shown, _longer(self.lives, head.previous_base, gone) if gone else self.lives,
            )  # fmt: skip
        return held.plus(head.header, head.expires)

    def trimmed(self, kept: Mark) -> Held:
        """With nothing before `kept`."""
        ranges = tuple(one for one in self.ranges if one.last_id >= kept.id)
        ends = [*(life.first_id for life in self.lives[1:]), self.last_id + 1]
        lives = tuple(life for life, end in zip(self.lives, ends, strict=True) if end > kept.id) if self.lives else ()
        return msgspec.structs.replace(self, ranges=ranges, kept=kept, lives=lives)

    @property
    def perishes(self) -> bool:
        """Whether HBase removes something of it by itself."""
        return any(life.expires for life in self.lives)

    def outlived(self, at_ms: int) -> int | None:
        """The newest batch that goes by that time though something before it stays: nobody can read across the hole.

        None where there is none. Such a batch was stored while the ttl was shorter than before and after.
        """
        return max((life.first_id for life in self.lives[1:] if 0 < life.expires <= at_ms), default=None)

    def counts(self, header: Header) -> bool:
        """Whether a batch found in the table is one of those held."""
        place = bisect_right(self.ranges, header.base_id, key=_first_id) - 1
        if place < 0 or header.base_id < self.kept.id:
            return False
        return self.ranges[place].epoch == header.epoch and header.last_id <= self.ranges[place].last_id

    def head_after(self, header: Header, *, expires: int, confirmed: int) -> Head:
        """The head that a batch behind the last one gets."""
        return Head(
            header, self.last_base, self.last_id, confirmed, self.messages, self.bytes, expires, self.last_shown,
            self.lives[-1].last_expires if self.lives else 0,
        )  # fmt: skip

    @property
    def end(self) -> Mark:
        """The place behind everything."""
        return Mark(self.last_id + 1, self.messages, self.bytes)

    def bounds(self) -> Bounds:
        """As `MessageStore.bounds` gives it."""
        first = max(self.kept.id, self.ranges[0].first_id) if self.ranges else 0
        return Bounds(first, self.last_id, self.messages - self.kept.messages, self.bytes - self.kept.bytes)

    def sealed(self, epoch: int) -> tuple[EpochIds, ...]:
        """What epochs below `epoch` left, as far as it is there still."""
        return tuple(
            EpochIds(one.epoch, max(one.first_id, self.kept.id), one.last_id)
            for one in self.ranges
            if one.epoch < epoch
        )

    def rank(self, message_id: int, following: Head | None) -> Amount:
        """What of all times has an id up to `message_id`, for one that is not before `kept`; a batch that it cuts, too.

        `following` is the first head whose base is above it, None behind the last base.
        """
        last, base, before = self.last_id, self.last_base, Amount(self.messages, self.bytes)
        shown = self.last_shown
        if following is not None:
            last, base, shown = following.previous_last, following.previous_base, following.previous_shown
            before = Amount(following.messages_before, following.bytes_before)
        behind = min(shown, last - message_id) if base >= self.kept.id else 0
        return before - Amount(behind, 0) if behind > 0 else before


def _longer(lives: tuple[Life, ...], base_id: int, expires: int) -> tuple[Life, ...]:
    last = lives[-1] if lives else None
    if last is None or bool(expires) != bool(last.expires) or expires < last.last_expires - CLOCK_STEP_MS:
        return (*lives, Life(base_id, expires, expires))
    return (*lives[:-1], Life(last.first_id, last.expires, max(expires, last.last_expires)))


def follow(last_id: int, epoch: int, heads: Iterable[Head]) -> Iterator[Head]:
    """The batches of `epoch` that follow `last_id`; rows of other epochs do not count.

    The writer of an epoch goes on only after a group is stored. So a hole is a part of a group that never arrived, and
    nothing behind it was acknowledged; unless its writer noted it as confirmed: then it was there, and HBase has
    removed it in the meantime.
    """
    for head in heads:
        if head.header.epoch == epoch and head.header.base_id > last_id:
            if head.previous_last != last_id and head.previous_last > head.confirmed:
                continue
            yield head
            last_id = head.header.last_id
