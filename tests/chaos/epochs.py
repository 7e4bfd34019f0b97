"""I6, nothing from an old epoch takes effect: what can be seen of it from outside of the hosts. Pure.

Every batch says under which epoch it was stored, and a subscriber is told when a partition's messages come from another
owner. That a former owner moves no checkpoint is told by `checks.never_back`: each state names its epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.story import Move, Place, Row, Story, Written


class Epochs:
    """Under which epoch each message was stored."""

    def __init__(self, written: list[Written]) -> None:
        self._batches: dict[int, list[Written]] = defaultdict(list)
        for batch in written:
            self._batches[batch.partition].append(batch)
        for batches in self._batches.values():
            batches.sort(key=lambda batch: batch.first)

    def of(self, place: Place) -> int:
        """The epoch; 0 for a message of no batch that is known."""
        partition, number = place
        batches = self._batches[partition]
        at = bisect_right(batches, number, key=lambda batch: batch.first) - 1
        return batches[at].epoch if at >= 0 and number <= batches[at].last else 0

    def falls(self) -> Iterator[tuple[Written, Written]]:
        """Neighbours of which the later one has the older epoch."""
        for batches in self._batches.values():
            yield from ((before, after) for before, after in pairwise(batches) if after.epoch < before.epoch)


def nothing_of_the_past(story: Story) -> list[str]:
    """No batch lies behind one of a newer epoch; nothing that was put after a message of a newer epoch was called back
    is stored under an older one; and no owner delivers under an old epoch, or what only its successors stored."""
    epochs = Epochs(story.written)
    wrong = [
        f"partition {after.partition}: {after.first} was stored under epoch {after.epoch}, behind {before.last} of"
        f" epoch {before.epoch}" for before, after in epochs.falls()
    ]  # fmt: skip
    wrong += [
        f"{row.body} at {row.partition}/{row.id} is in no batch" for row in story.scan if not epochs.of(row.place)
    ]
    return [*wrong, *_stored_too_late(story, epochs), *_delivered_by_the_past(story, epochs)]


def _stored_too_late(story: Story, epochs: Epochs) -> Iterator[str]:
    over = _over(story, epochs)
    for row in story.scan:
        put, epoch = story.puts.get(row.body), epochs.of(row.place)
        ended = over.get((row.partition, epoch), float("inf"))
        if put is not None and put.tried > ended:
            yield (f"{row.body} was put {put.tried - ended:.2f} s after a newer epoch was at work in partition"
                   f" {row.partition}, and is stored under epoch {epoch}")  # fmt: skip


def _over(story: Story, epochs: Epochs) -> dict[tuple[int, int], float]:
    """By partition and epoch when a message of a newer epoch was called back first."""
    begun: dict[int, dict[int, float]] = defaultdict(dict)
    for rows in story.calls.values():
        for row in rows:
            epoch = epochs.of(row.place)
            begun[row.partition][epoch] = min(row.at, begun[row.partition].get(epoch, float("inf")))
    found = {}
    for partition, firsts in begun.items():
        at = float("inf")
        for epoch in sorted(firsts, reverse=True):
            found[partition, epoch] = at
            at = min(at, firsts[epoch])
    return found


def _delivered_by_the_past(story: Story, epochs: Epochs) -> Iterator[str]:
    for name, moves in story.moves.items():
        for before, after in pairwise(sorted(moves, key=lambda move: (move.partition, move.process, move.at))):
            same = (before.partition, before.process) == (after.partition, after.process)
            if same and not before.epoch == after.former < after.epoch:
                yield (f"{name} was told that partition {after.partition} moved from epoch {after.former} to"
                       f" {after.epoch}, and before that to {before.epoch}")  # fmt: skip
        yield from _ahead(name, story.calls[name], moves, epochs)


def _ahead(name: str, rows: list[Row], moves: list[Move], epochs: Epochs) -> Iterator[str]:
    """Callbacks of what was stored under a newer epoch than that of the owner who pushed it."""
    told: dict[tuple[int, int], list[Move]] = defaultdict(list)
    for move in moves:
        told[move.partition, move.process].append(move)
    for row in rows:
        here = told.get((row.partition, row.process), [])
        at = bisect_right(here, row.at, key=lambda move: move.at)
        owner = here[at - 1].epoch if at else here[0].former if here else None
        if owner is not None and epochs.of(row.place) > owner:
            yield (
                f"{name} got {row.partition}/{row.id} of epoch {epochs.of(row.place)} from the owner of epoch {owner}"
            )
