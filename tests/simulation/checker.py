"""The checker: follows a run as it happens, and names the first invariant that does not hold.

The invariants, by their numbers in the fault table:

    I1   what was acknowledged is stored, and reaches every subscription
    I2   what is handled was published, byte for byte, and is stored
    I3   within a turn of a listener (an owner's run) ids rise; a new turn begins where a checkpoint was, or behind it
    I4   checkpoints and epochs never go back
    I5   no checkpoint is beyond a message that was not handled
    I6   nothing of an old epoch takes effect: no checkpoint by it, no row behind a newer one's
    I7   an id stands for one message, and ids rise as they are issued
    I8   nothing appears behind a point that was passed
    I9   duplicates come only after a fault, and only of what no checkpoint covered
    I11  some time after the last fault everything is stored, handled and checkpointed
    I14  what was refused is not stored; what was unknown and asked again is stored once

Those of positions that are moved by hand, I15 and I16, stand in `moves`. A move begins all others anew from its place:
what is still handled of pushes from before it is looked at no further.

With order="key" messages without a key come in any order: I3, I8 and I9 are not asked then, and for I5 a message that
is parked is not missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from delivery.ids import ID_MAX
from delivery.metastore import records
from delivery.metastore.managers.records import SEPARATOR, OwnerInfo, SubscriptionState
from delivery.metastore.ops import Create, Op, Set
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.tables.entries import decode_key, decode_value
from delivery.metastore.tables.zookeeper import FOLDER
from subscriber.inbox import Turn
from tests.simulation.contents import Contents
from tests.simulation.history import Entry
from tests.simulation.moves import Moves
from tests.simulation.world import World

_PLACES: Final = re.compile(
    rf"(?:{FOLDER}/tables/(?P<table>owners|states|subscriptions)/keys/[^/]+|{records.LISTENERS}/[^/]+)/(?P<last>[^/]+)\Z"
)
REFUSALS: Final = frozenset(
    {"not_owner", "stopping", "throttled", "metadata_unavailable", "no_host", "host_unreachable", "out_of_sequence"}
)
"""The outcomes of a publish that promise that nothing was stored."""
UNKNOWN: Final = frozenset({"unknown_outcome", "storage_unavailable", "fenced"})


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class _Progress(msgspec.Struct):
    """One partition of one subscription."""

    end: int = ID_MAX
    """Of a replay, its last id."""
    moves: int = 0
    """The number of the last move by hand."""
    owed: set[int] = set()
    """What was parked at that place, and is to be handled again."""
    seen: set[int] = set()
    """All that were handled, when they need not be in order."""
    handled: int = 0
    """The highest id that was handled; nothing below it is missing."""
    checkpoint: int = 0
    epoch: int = 0
    by: dict[str, tuple[Turn, int]] = {}
    """By listener the last id that it handled, and in which turn."""
    floors: dict[str | int, int] = {}
    """By listener the checkpoint when it attached, and by epoch that at its beginning."""

    def begin_anew(self, state: SubscriptionState) -> None:
        """From where somebody moved the position to."""
        self.moves, self.handled, self.checkpoint = state.moves, state.position, state.position
        self.seen, self.floors = set(), {}
        self.owed = {number for one in state.parked for number in one.ids}


class Checker:
    """Of one run. Violations end it."""

    def __init__(self, world: World, *, faultless: bool) -> None:
        self._world, self._kernel, self._faultless = world, world.kernel, faultless
        self._contents = [Contents(world.disk.shelf(world.key(p))) for p in range(world.partitions)]
        self._topics = {record.name: record.topics for record in world.subscriptions}
        self._progress = {(name, p): _Progress() for name in self._topics for p in range(world.partitions)}
        self._moves = Moves(world.subscriptions, self._fail)
        self._owners: dict[int, OwnerInfo] = {}
        self._published: dict[bytes, str] = {}
        """By body: nothing yet, `stored`, `unknown_outcome` or why it was refused."""
        self.duplicates = 0
        world.kernel.history.listeners.append(self._hear)
        world.server.on_applied = self._see
        self._ears: dict[str, Callable[[Entry], None]] = {
            "publish": self._begun, "stored": self._stored, "handled": self._handled,
        }  # fmt: skip

    # -- as it happens

    def _hear(self, entry: Entry) -> None:
        self._moves.hear(entry)
        ear = self._ears.get(entry.kind)
        if ear is not None:
            ear(entry)
        elif entry.kind in REFUSALS or entry.kind in UNKNOWN:
            for body in entry.facts[1:]:
                self._published[body] = entry.kind  # type: ignore[index]

    def _fail(self, invariant: str, text: str) -> None:
        self._kernel.fail(Violation(invariant, text))

    def _begun(self, entry: Entry) -> None:
        for body in entry.facts[1:]:
            self._published[body] = ""  # type: ignore[index]

    def _stored(self, entry: Entry) -> None:
        partition, base, *bodies = entry.facts
        assert isinstance(partition, int)
        assert isinstance(base, int)
        contents = self._contents[partition]
        for number, body in enumerate(bodies, base):
            self._published[body] = "stored"  # type: ignore[index]
            if contents.body(number) != body:
                self._fail("I1", f"{body!r} was acknowledged as {number}, where {contents.body(number)!r} is stored")

    def _handled(self, entry: Entry) -> None:
        partition, number, body, turn, moves = entry.facts
        assert isinstance(partition, int)
        assert isinstance(number, int)
        assert isinstance(turn, tuple)
        name = entry.who.partition(".")[0]
        progress, contents = self._progress[name, partition], self._contents[partition]
        if contents.body(number) != body:
            self._fail("I2", f"{entry.who} handled {number} {body!r}, where {contents.body(number)!r} is stored")
            return
        if number > progress.end:
            self._fail("I16", f"{entry.who} handled {number}, behind the end {progress.end} of its replay")
        if self._world.desk is not None and moves != progress.moves:
            return
        if self._world.in_any_order:
            self.duplicates += number in progress.seen
            progress.seen.add(number)
            progress.owed.discard(number)
            return
        before, place = progress.by.get(entry.who, ((0, 0), 0))
        due = contents.next(place if turn == before else progress.handled, self._topics[name])
        again = number <= progress.handled
        floor = max(progress.floors.get(entry.who, 0), progress.floors.get(turn[0], 0))
        if turn < before:
            self._fail("I6", f"{entry.who} handled {number} in turn {turn} after one in turn {before}")
        elif turn == before and number <= place:
            self._fail("I3", f"{entry.who} handled {number} after {place}")
        elif number != due and (turn == before or not again):
            self._fail("I8", f"{entry.who} handled {number}, and {due} before it was passed over")
        elif number <= floor:
            self._fail("I9", f"{entry.who} handled {number} again, which checkpoint {floor} covered before")
        elif again and self._faultless:
            self._fail("I9", f"{entry.who} handled {number} again, and nothing went wrong")
        self.duplicates += again
        progress.by[entry.who] = (turn, number)
        progress.handled = max(progress.handled, number)

    def _see(self, who: str, op: Op) -> None:
        place = _PLACES.match(op.path)
        if place is None or not isinstance(op, Create | Set):
            return
        if place["table"]:
            self._written(who, place["table"], decode_key(place["last"], ""), op.value)
        else:
            listener = msgspec.json.decode(op.value, type=ListenerRecord).address
            for (name, _), progress in self._progress.items():
                if name == records.seat(place["last"])[0]:
                    progress.floors.setdefault(listener, progress.checkpoint)

    def _written(self, who: str, table: str, key: str, value: bytes) -> None:
        fields, parts = decode_value(value, table, key), key.split(SEPARATOR)
        if table == "subscriptions":
            self._preferred(msgspec.json.decode(fields["preferences"] or b"", type=SubscriptionRecord))
        elif table == "owners":
            self._claimed(who, int(parts[1]), msgspec.json.decode(fields["owner"] or b"", type=OwnerInfo))
        else:
            state = msgspec.json.decode(fields["state"] or b"", type=SubscriptionState)
            self._saved(who, parts[1], int(parts[2]), state)

    def _preferred(self, record: SubscriptionRecord) -> None:
        if record.replay is not None and record.name not in self._topics:
            self._topics[record.name] = record.topics
            self._moves.begin(record)
            for partition, start in record.starts.items():
                end = record.replay.until.get(partition, 0)
                self._progress[record.name, partition] = _Progress(end=end, handled=start, checkpoint=start)

    def _claimed(self, who: str, partition: int, record: OwnerInfo) -> None:
        before = self._owners.get(partition)
        epoch = 0 if before is None else before.epoch
        if record.epoch < epoch or (record.host and record.epoch == epoch):
            self._fail("I4", f"partition {partition} went from epoch {epoch} to {record.epoch}")
        self._owners[partition] = record
        self._kernel.note("claimed" if record.host else "released", who, partition, record.epoch)

    def _saved(self, who: str, name: str, partition: int, state: SubscriptionState) -> None:
        """A state was saved, or taken over. A new epoch begins with what it takes; no older one says anything then."""
        progress, contents = self._progress[name, partition], self._contents[partition]
        self._kernel.note("checkpoint", who, name, partition, state.position, state.epoch)
        if self._moves.saved(name, partition, state):
            self._begin_anew(who, name, partition, state)
        if state.position < progress.checkpoint or state.epoch < progress.epoch:
            self._fail("I4", f"the checkpoint of {name}/{partition} went from {progress.checkpoint} of epoch"
                             f" {progress.epoch} to {state.position} of epoch {state.epoch}")  # fmt: skip
        if state.epoch > progress.epoch and state.position > progress.checkpoint:
            self._fail(
                "I6", f"epoch {state.epoch} moved the checkpoint of {name}/{partition} and had not taken it over"
            )
        if state.epoch > self._owners[partition].epoch:
            self._fail("I6", f"epoch {state.epoch} moved the checkpoint of {name}/{partition}, which has epoch"
                             f" {self._owners[partition].epoch}")  # fmt: skip
        progress.floors.setdefault(state.epoch, state.position)
        missing = self._missing(name, partition, state)
        if missing is not None and missing <= state.position:
            self._fail("I5", f"the checkpoint of {name}/{partition} passed {missing}, which was not handled")
        if state.position > contents.last_id:
            self._fail("I5", f"the checkpoint of {name}/{partition} is {state.position}, behind all that is stored")
        progress.checkpoint, progress.epoch = state.position, state.epoch

    def _begin_anew(self, who: str, name: str, partition: int, state: SubscriptionState) -> None:
        self._kernel.note("moved", who, name, partition, state.position, state.moves)
        self._progress[name, partition].begin_anew(state)

    def _missing(self, name: str, partition: int, state: SubscriptionState | None) -> int | None:
        """The first message that was not handled; what is parked by `state` is none that is missing."""
        progress, contents = self._progress[name, partition], self._contents[partition]
        missing = contents.next(progress.handled, self._topics[name])
        if not self._world.in_any_order:
            return missing if missing is None or missing <= progress.end else None
        parked = {number for one in (() if state is None else state.parked) for number in one.ids}
        while missing is not None and (missing in progress.seen or missing in parked):
            if missing in progress.seen and missing == contents.next(progress.handled, self._topics[name]):
                progress.handled = missing
            missing = contents.next(missing, self._topics[name])
        return missing if missing is None or missing <= progress.end else None

    # -- at the end

    def behind(self) -> str:
        """What is still to come before everything is settled; nothing when it is."""
        for publisher in self._world.publishers:
            if not publisher.idle:
                return f"{publisher.name} waits for an outcome"
        if self._world.desk is not None and self._world.desk.commands:
            return "the operator has something to do"
        for (name, partition), progress in self._progress.items():
            if name in self._world.retired:
                continue
            contents = self._contents[partition]
            if (missing := self._missing(name, partition, None)) is not None:
                return f"{name} has not handled {missing} of partition {partition}"
            if (due := contents.next(progress.checkpoint, ())) is not None and due <= progress.end:
                return f"the checkpoint of {name}/{partition} is {progress.checkpoint}, before {due}"
            if progress.owed:
                return f"{name} has not handled {min(progress.owed)} of partition {partition} again"
        return ""

    def finish(self) -> None:
        """Whatever can be said only in the end."""
        by_partition = [contents.bodies() for contents in self._contents]
        stored = [body for bodies in by_partition for body in bodies]
        if len(set(stored)) < len(stored):
            twice = next(body for body in stored if stored.count(body) > 1)
            self._fail("I14", f"{twice!r} is stored twice")
        for contents, bodies in zip(self._contents, by_partition, strict=True):
            self._check_order(contents, bodies)
        there = frozenset(stored)
        for body, outcome in self._published.items():
            if outcome == "stored" and body not in there:
                self._fail("I1", f"{body!r} was acknowledged and is not stored")
            if outcome in REFUSALS and body in there:
                self._fail("I14", f"{body!r} was refused ({outcome}) and is stored")
        for body in stored:
            if body not in self._published:
                self._fail("I2", f"{body!r} is stored, and nobody published it")

    def _check_order(self, contents: Contents, bodies: list[bytes]) -> None:
        last_id = epoch = 0
        numbers: dict[bytes, int] = {}
        for row in contents.shelf.rows:
            if row.header.base_id <= last_id:
                self._fail("I7", f"id {row.header.base_id} was issued after {last_id}")
            if row.epoch < epoch:
                self._fail("I6", f"a row of epoch {row.epoch} is stored behind one of epoch {epoch}")
            last_id, epoch = row.header.last_id, row.epoch
        for body in bodies:
            publisher, _, number, _ = body.split(b"/")
            if int(number) <= numbers.get(publisher, 0):
                self._fail("I3", f"{body!r} is stored after number {numbers[publisher]} of its publisher")
            numbers[publisher] = int(number)
