"""All histories of a run in one Story: puts, callbacks, what readers saw, what ZooKeeper said, the faults.

Times are seconds of the machine's monotonic clock.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.chaos.cluster import Listens
from tests.chaos.history import events

GRACE_SECONDS = 10.0
"""How long after it was healed a fault may be felt: two session timeouts and what reconnecting takes."""

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
    process: int = 0
    """Of a callback: which start of the subscriber it was."""

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


class Written(msgspec.Struct, frozen=True):
    """A batch as it is stored: its ids, and the epoch of the owner who stored it."""

    partition: int
    first: int
    last: int
    epoch: int


class Move(msgspec.Struct, frozen=True):
    """What a subscriber was told: from now on the messages of a partition come from another owner."""

    at: float
    process: int
    """Which start of the subscriber it was."""
    partition: int
    former: int
    epoch: int


class Gauge(msgspec.Struct, frozen=True):
    """What was seen of a process: its memory, or what a host says of its queues."""

    at: float
    process: str
    what: str
    value: float


class Attempt(msgspec.Struct, frozen=True):
    """Something that must be refused."""

    at: float
    kind: str
    due: str
    """The answer that it deserves: a code, a listener's status, or `closed`."""
    outcome: str
    """The one that it got (see intruding.attempt)."""


class Fault(msgspec.Struct):
    """One strike, from its begin until it was healed."""

    name: str
    target: str
    begun: float
    partitions: frozenset[int] = frozenset()
    """Those that its target owned, when it was to lose them."""
    healed: float = float("inf")

    def felt(self, at: float) -> bool:
        """Whether it may be felt at a time."""
        return self.begun <= at <= self.healed + GRACE_SECONDS


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
    written: list[Written] = []
    """All batches, after the end."""
    seen: list[Seen] = []
    moves: dict[str, list[Move]] = {}
    """By subscription."""
    gauges: list[Gauge] = []
    attempts: list[Attempt] = []
    leftovers: list[str] = []
    """Queues and subscriptions that are there in the end and nobody made."""
    faults: list[Fault] = []
    problems: list[str] = []
    """What the run itself found wrong: processes that ended by themselves, no settling."""
    subscriptions: tuple[Listens, ...] = ()
    window: int = 0
    """Messages that may be unacknowledged per partition and subscription."""
    partitions: int = 0

    def troubled(self, at: float) -> bool:
        """Whether something was wrong at a time, or had been shortly before."""
        return any(fault.felt(at) for fault in self.faults)


def load(histories: Path, subscriptions: tuple[Listens, ...], window: int, partitions: int) -> Story:
    """Read the files that the processes of a run wrote; the scans and problems are for the run to add."""
    story = Story(subscriptions=subscriptions, window=window, partitions=partitions)
    for path in sorted(histories.glob("publisher-*")):
        _read_puts(path, story)
    for one in subscriptions:
        _read_calls(histories / f"subscriber-{one.name}", one.name, story)
    story.tail = [_row(words) for words in events(histories / "tail") if words[0] == "read"]
    _read_seen(histories / "watcher", story)
    _read_faults(histories / "nemesis", story)
    for _, at, process, what, value in events(histories / "gauges"):
        story.gauges.append(Gauge(_at(at), process, what, float(value)))
    for _, at, kind, due, outcome in events(histories / "intruder"):
        story.attempts.append(Attempt(_at(at), kind, due, outcome))
    return story


def _at(word: str) -> float:
    return int(word) / 1e6


def _row(words: list[str], process: int = 0) -> Row:
    _, at, partition, number, topic, body, checksum = words
    return Row(int(partition), int(number), topic, body, int(checksum), _at(at), process)


def _read_calls(path: Path, name: str, story: Story) -> None:
    story.calls[name], story.moves[name], process = [], [], 0
    for words in events(path):
        if words[0] == "begin":
            process += 1
        elif words[0] == "call":
            story.calls[name].append(_row(words, process))
        elif words[0] == "moved":
            partition, former, epoch = map(int, words[2:])
            story.moves[name].append(Move(_at(words[1]), process, partition, former, epoch))


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
