"""All histories of a run in one Story: puts, callbacks, what readers saw, what ZooKeeper said, the faults.

Times are seconds of the machine's monotonic clock.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.chaos.cluster import Listens
from tests.chaos.history import events

Place = tuple[int, int]
"""Partition and id."""


class Put(msgspec.Struct):
    """One attempt to publish one body."""

    body: str
    producer: str
    """Name and incarnation."""
    number: int
    """Of the puts of that producer, in their order."""
    topic: str
    checksum: int
    tried: float
    outcome: str = "open"
    """`stored`, `refused`, `refused-for-good`, `unknown`, or `open`: the producer was killed before it knew."""
    place: Place | None = None
    code: str = ""


class Row(msgspec.Struct, frozen=True):
    """One message as a reader saw it, or a callback."""

    partition: int
    id: int
    topic: str
    body: str
    checksum: int
    at: float = 0.0

    @property
    def place(self) -> Place:
        return self.partition, self.id

    @property
    def content(self) -> tuple[str, str, int]:
        """What must be the same wherever this message is seen."""
        return self.topic, self.body, self.checksum


class Seen(msgspec.Struct, frozen=True):
    """A checkpoint of a subscription's partition, or (with no subscription) an owner's record, as read at a time."""

    at: float
    subscription: str
    partition: int
    id: int
    epoch: int


class Fault(msgspec.Struct):
    """One strike, from its begin until it was healed."""

    name: str
    target: str
    begun: float
    partitions: frozenset[int] = frozenset()
    """Those that its target owned, when it was to lose them."""
    healed: float = float("inf")


class Story(msgspec.Struct):
    """Everything that the checks look at."""

    puts: dict[str, Put] = {}
    """By body."""
    calls: dict[str, list[Row]] = {}
    """By subscription, in the order of the callbacks."""
    tail: list[Row] = []
    scan: list[Row] = []
    """A fresh scan after the end."""
    command_scan: list[Row] = []
    """The same by `hoot scan`."""
    seen: list[Seen] = []
    faults: list[Fault] = []
    problems: list[str] = []
    """What the run itself found wrong: processes that ended by themselves, no settling."""
    subscriptions: tuple[Listens, ...] = ()
    window: int = 0
    """Messages that may be unacknowledged per partition and subscription."""


def load(histories: Path, subscriptions: tuple[Listens, ...], window: int) -> Story:
    """Read the files that the processes of a run wrote; the scans and problems are for the run to add."""
    story = Story(subscriptions=subscriptions, window=window)
    for path in sorted(histories.glob("publisher-*")):
        _read_puts(path, story)
    for one in subscriptions:
        story.calls[one.name] = [_row(words) for words in events(histories / f"subscriber-{one.name}")
                                 if words[0] == "call"]  # fmt: skip
    story.tail = [_row(words) for words in events(histories / "tail") if words[0] == "read"]
    _read_seen(histories / "watcher", story)
    _read_faults(histories / "nemesis", story)
    return story


def _at(word: str) -> float:
    return int(word) / 1e6


def _row(words: list[str]) -> Row:
    _, at, partition, number, topic, body, checksum = words
    return Row(int(partition), int(number), topic, body, int(checksum), _at(at))


def _read_puts(path: Path, story: Story) -> None:
    producer = path.name.removeprefix("publisher-")
    own: dict[str, Put] = {}
    for what, at, *rest in events(path):
        if what == "try":
            number, topic, checksum = rest
            own[number] = put = Put(f"{producer}.{number}", producer, int(number), topic, int(checksum), _at(at))
            story.puts[put.body] = put
        elif rest:
            put = own[rest[0]]
            put.outcome = what
            if what == "stored":
                put.place = (int(rest[1]), int(rest[2]))
            else:
                put.code = rest[1]


def _read_seen(path: Path, story: Story) -> None:
    for what, at, *rest in events(path):
        if what == "checkpoint":
            name, partition, number, epoch = rest
            story.seen.append(Seen(_at(at), name, int(partition), int(number), int(epoch)))
        else:
            partition, epoch, _ = rest
            story.seen.append(Seen(_at(at), "", int(partition), 0, int(epoch)))


def _read_faults(path: Path, story: Story) -> None:
    for what, at, name, *rest in events(path):
        if what == "fault":
            target, owned = rest
            partitions = frozenset(int(word) for word in owned.split(",") if word != "-")
            story.faults.append(Fault(name, target, _at(at), partitions))
        elif what == "healed":
            fault = next(one for one in story.faults if (one.name, one.target) == (name, rest[0]) and one.healed > 1e18)
            fault.healed = _at(at)
        elif what == "ended":
            story.faults.append(Fault(f"ended-{name}", name, _at(at), healed=_at(at)))
