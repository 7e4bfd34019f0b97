"""The promises, held against a Story. Pure: each check gives what is wrong, a line each; none means that it holds.

I1 to I14 are the invariants of the engine's fault table; what a check is of is said in CHECKS.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.epochs import nothing_of_the_past
from tests.chaos.limits import within_caps
from tests.chaos.neighbours import others_unharmed
from tests.chaos.refusals import refused_without_effect
from tests.chaos.story import Place, Row, Story


def stored_once(story: Story) -> list[str]:
    """Every acknowledged put is in the scan under its id, byte for byte; an unknown one at most once."""
    wrong = []
    bodies = Counter(row.body for row in story.scan)
    wrong += [f"{body} is stored {times} times" for body, times in bodies.items() if times > 1]
    by_place = {row.place: row for row in story.scan}
    for put in story.puts.values():
        if put.outcome == "stored" and put.place is not None:
            row = by_place.get(put.place)
            if row is None:
                wrong.append(f"{put.body} was acknowledged as {_named(put.place)} and is not there")
            elif row.content != (put.topic, put.body, put.checksum):
                wrong.append(f"{put.body} was acknowledged as {_named(put.place)}, where {row.body} is")
    return wrong


def refused_never_seen(story: Story) -> list[str]:
    """What was refused is nowhere, and nothing is that nobody put."""
    wrong = []
    seen = {row.body for rows in (story.scan, story.tail, *story.calls.values()) for row in rows}
    for body in seen:
        put = story.puts.get(body)
        if put is None:
            wrong.append(f"{body} was never put")
        elif put.outcome.startswith("refused"):
            wrong.append(f"{body} was refused ({put.code}) and is there")
    return wrong


def not_refused_for_good(story: Story) -> list[str]:
    """No fault makes the engine call a good message bad."""
    return [f"{put.body}: {put.code}" for put in story.puts.values() if put.outcome == "refused-for-good"]


def ids_rise(story: Story) -> list[str]:
    """Within a partition a scan finds each id once, in rising order."""
    return [f"{_named(after.place)} follows {_named(before.place)}" for before, after in _falls(story.scan)]


def producers_order(story: Story) -> list[str]:
    """A producer's messages lie in a partition in the order in which they were put."""
    wrong = []
    last: dict[tuple[str, int], int] = {}
    for row in story.scan:
        put = story.puts.get(row.body)
        if put is None:
            continue
        before = last.get((put.producer, row.partition), 0)
        if put.number <= before:
            wrong.append(f"{put.body} lies behind number {before} of the same producer in partition {row.partition}")
        last[put.producer, row.partition] = max(before, put.number)
    return wrong


def scans_agree(story: Story) -> list[str]:
    """`hoot scan` prints what the scanner of the client finds."""
    return _difference(story.scan, story.command_scan, "hoot scan")


def tail_has_no_hole(story: Story) -> list[str]:
    """A reader that followed all the time saw each message once and in order: none appeared behind its place."""
    wrong = _difference(story.scan, story.tail, "the follower")
    return wrong + [
        f"the follower read {_named(after.place)} after {_named(before.place)}" for before, after in _falls(story.tail)
    ]


def delivered(story: Story) -> list[str]:
    """Everything stored reached every subscription that wants it."""
    wrong = []
    for one in story.subscriptions:
        called = {row.place for row in story.calls[one.name]}
        for row in story.scan:
            if one.wants(row.partition, row.topic) and row.place not in called:
                outcome = story.puts[row.body].outcome if row.body in story.puts else "?"
                wrong.append(f"{one.name} never got {row.body} at {_named(row.place)} ({outcome})")
    return wrong


def contents_agree(story: Story) -> list[str]:
    """An id has one content, wherever it is seen, and only what a subscription asked for comes."""
    wrong = []
    known = {row.place: row.content for row in story.scan}
    for one in story.subscriptions:
        for row in story.calls[one.name]:
            if known.get(row.place) != row.content:
                wrong.append(f"{one.name} got {row.body} at {_named(row.place)}, where {known.get(row.place)} is")
            if not one.wants(row.partition, row.topic):
                wrong.append(f"{one.name} got {row.body} of topic {row.topic} at {_named(row.place)}, unasked")
    return wrong


def nothing_skipped(story: Story) -> list[str]:
    """A partition's callbacks begin with its first message; after each comes the next one's or, by a rewind, an
    earlier one's."""
    return [f"{move.name} got {_named(move.row.place)} and skipped {move.there - move.here - 1} before it"
            for move in _moves(story) if move.there > move.here + 1]  # fmt: skip


class Rewind(NamedTuple):
    """A callback of something that a subscription had before."""

    name: str
    row: Row
    depth: int
    """How many messages come again by it."""


def rewinds(story: Story) -> list[Rewind]:
    """All, in no order that matters."""
    return [Rewind(one.name, one.row, one.here - one.there + 1) for one in _moves(story) if one.there <= one.here]


def rewinds_after_faults(story: Story) -> list[str]:
    """Nothing is delivered twice without a fault."""
    return [f"{one.name} went back to {_named(one.row.place)} by {one.depth} messages at {one.row.at:.3f}"
            for one in rewinds(story) if not story.troubled(one.row.at)]  # fmt: skip


def rewinds_within_window(story: Story) -> list[str]:
    """A fault makes no more come again than may be unacknowledged."""
    return [f"{one.name} went back to {_named(one.row.place)} by {one.depth} messages; the window is {story.window}"
            for one in rewinds(story) if one.depth > story.window]  # fmt: skip


def never_back(story: Story) -> list[str]:
    """Checkpoints and epochs never decrease."""
    wrong = []
    highest: dict[tuple[str, int], tuple[int, int]] = {}
    for seen in story.seen:
        number, epoch = highest.get((seen.subscription, seen.partition), (0, 0))
        if seen.id < number or seen.epoch < epoch:
            whose = f"the checkpoint of {seen.subscription}" if seen.subscription else "the owner"
            wrong.append(
                f"{whose}, partition {seen.partition}: {seen.id} of epoch {seen.epoch} after {number} of {epoch}"
            )
        highest[seen.subscription, seen.partition] = (max(number, seen.id), max(epoch, seen.epoch))
    return wrong


def checkpoints_behind_callbacks(story: Story) -> list[str]:
    """When a checkpoint was read, everything up to it had reached a callback."""
    wrong = []
    for one in story.subscriptions:
        first: dict[Place, float] = {}
        for row in story.calls[one.name]:
            first.setdefault(row.place, row.at)
        wanted = [row for row in story.scan if one.wants(row.partition, row.topic)]
        for partition, rows in _by_partition(wanted).items():
            at, pending = 0, float("-inf")
            for seen in (s for s in story.seen if (s.subscription, s.partition) == (one.name, partition)):
                while at < len(rows) and rows[at].id <= seen.id:
                    pending = max(pending, first.get(rows[at].place, float("inf")))
                    at += 1
                if pending > seen.at:
                    wrong.append(f"{one.name}, partition {partition}: the checkpoint {seen.id} was ahead of callbacks")
                    break
    return wrong


def checkpoints_at_end(story: Story) -> list[str]:
    """When all is settled, the checkpoints are at the last message that each subscription wants, or behind it."""
    wrong = []
    last_seen = {(seen.subscription, seen.partition): seen.id for seen in story.seen}
    for one in story.subscriptions:
        wanted = [row for row in story.scan if one.wants(row.partition, row.topic)]
        for partition, rows in _by_partition(wanted).items():
            found = last_seen.get((one.name, partition), 0)
            if found < rows[-1].id:
                wrong.append(f"{one.name}, partition {partition}: the checkpoint is {found}, the last id {rows[-1].id}")
    return wrong


def run_itself(story: Story) -> list[str]:
    """Something was stored, the run settled, everything has one living owner, and no program ended by itself."""
    return story.problems if story.scan else ["nothing was stored, so nothing was shown", *story.problems]


Check = Callable[[Story], list[str]]

CHECKS: tuple[tuple[str, str, Check], ...] = (
    ("I1", "every stored message reached every subscription", delivered),
    ("I1 I14", "acknowledged is stored once, unknown at most once", stored_once),
    ("I14", "refused is never seen", refused_never_seen),
    ("I14", "nothing is refused for good", not_refused_for_good),
    ("I2 I7", "an id has one content everywhere, and only what was asked for comes", contents_agree),
    ("I7", "ids rise within a partition", ids_rise),
    ("I3", "a producer's messages are in order", producers_order),
    ("I3", "no callback skips a message", nothing_skipped),
    ("I9", "nothing comes twice without a fault", rewinds_after_faults),
    ("I9", "no rewind is longer than the window", rewinds_within_window),
    ("I4 I6", "checkpoints and epochs never decrease", never_back),
    ("I5", "no checkpoint passes what was not called back", checkpoints_behind_callbacks),
    ("I5 I11", "checkpoints are at the end when all is settled", checkpoints_at_end),
    ("I6", "nothing of an old epoch is stored or delivered", nothing_of_the_past),
    ("I8", "a follower sees no hole", tail_has_no_hole),
    ("I1 I7", "hoot scan and the client's scan agree", scans_agree),
    ("I10", "memory, handles and queues stay under their caps", within_caps),
    ("I12", "one subscriber's fault is not felt by the others", others_unharmed),
    ("I13", "what must be refused is, without an effect, and is told", refused_without_effect),
    ("I11", "all settled, one living owner per partition", run_itself),
)


def _named(place: Place) -> str:
    return f"{place[0]}/{place[1]}"


def _by_partition(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.partition].append(row)
    return found


def _difference(expected: list[Row], found: list[Row], who: str) -> list[str]:
    had = {row.place: row.content for row in found}
    wrong = [f"{who} lacks {row.body} at {_named(row.place)}" for row in expected if row.place not in had]
    wrong += [f"{who} has {had[row.place][1]} at {_named(row.place)}, where {row.body} is"
              for row in expected if had.get(row.place, row.content) != row.content]  # fmt: skip
    known = {row.place for row in expected}
    wrong += [
        f"{who} has {row.body} at {_named(row.place)}, where nothing is" for row in found if row.place not in known
    ]
    if len(found) > len(had):
        wrong.append(f"{who} has {len(found) - len(had)} messages twice")
    return wrong


def _falls(rows: list[Row]) -> Iterator[tuple[Row, Row]]:
    """Neighbours in a partition whose ids do not rise."""
    for those in _by_partition(rows).values():
        yield from ((before, after) for before, after in pairwise(those) if after.id <= before.id)


class _Move(NamedTuple):
    """From one callback of a partition to the next: their orders among the messages that the subscription wants."""

    name: str
    row: Row
    """Of the later callback."""
    here: int
    """A rewind counts from the furthest that was reached; what follows it, from where it went to."""
    there: int


def _moves(story: Story) -> Iterator[_Move]:
    """Per subscription and partition; the first one begins before the first message."""
    for one in story.subscriptions:
        wanted = [row for row in story.scan if one.wants(row.partition, row.topic)]
        orders = {row.place: order for rows in _by_partition(wanted).values() for order, row in enumerate(rows)}
        for rows in _by_partition(row for row in story.calls[one.name] if row.place in orders).values():
            here = furthest = -1
            for row in rows:
                there = orders[row.place]
                yield _Move(one.name, row, here if there > here else furthest, there)
                here, furthest = there, max(furthest, there)
