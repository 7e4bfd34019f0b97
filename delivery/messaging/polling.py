"""One poll of a topic, message by message: what it gives, passes over and stops at (seed 003, "Consuming")."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from delivery.batch import Batch
from delivery.batch.layout import HEADERS
from delivery.errors import InvalidRequest
from delivery.messaging.ids import Start, TopicId, id_of, inline_ids
from delivery.messaging.ledger import Ledger
from delivery.messaging.marks import MARKER, Range, pointer_in, read_marker
from delivery.messaging.transactions import Snapshot, Verdict
from delivery.model import ASIDE, Message


class Given(NamedTuple):
    """What the poll gives to its client."""

    id: bytes
    payload: bytes


class Stretch(NamedTuple):
    """What the poll gives at once: message by message an id and a payload."""

    ids: Sequence[bytes]
    payloads: Sequence[bytes]


class Group(NamedTuple):
    """Bodies to be read now and handed to `Poll.body`: those that the marker of that number makes visible."""

    marker: int
    ranges: list[Range]


def check_limit(limit: int | None, messages_max: int = 0) -> int | None:
    """How many messages a poll gives that asks for `limit`, None for all; never above `messages_max`, unless that is 0.

    Raises InvalidRequest.
    """
    if limit is not None and limit <= 0:
        raise InvalidRequest(f"a poll gives 1 message or more, not {limit}")
    return min(limit or messages_max, messages_max) if messages_max else limit


class Poll:
    """A poll, which is handed the messages of a partition in order. Without a snapshot it sees all transactions."""

    def __init__(self, start: Start, limit: int | None, snapshot: Snapshot | None, ledger: Ledger | None) -> None:
        """`ledger` knows the rollbacks up to where the poll ends; only a poll with a snapshot needs it."""
        assert snapshot is None or ledger is not None, "rollbacks decide what a transaction sees"
        self.start, self._left, self._snapshot, self._ledger = start, limit, snapshot, ledger
        self.finished = False
        """Nothing more comes: the limit is reached, or a transaction in progress is."""
        self.stopped_at: int | None = None
        """The number of the first message of that transaction."""

    @property
    def judges(self) -> bool:
        """Whether it looks at transactions, and so at the ledger."""
        return self._snapshot is not None

    def take(self, batch: Batch) -> Stretch:
        """What the next batch of the partition means, which is not one aside."""
        if self._snapshot is None or not batch.header.flags & HEADERS:
            return self._all_of(batch)
        given: list[Given] = []
        for message in batch.messages("", self.start.after):
            if self.finished:
                break
            if isinstance(found := self.step(message), Given):
                given.append(found)
        return Stretch([one.id for one in given], [one.payload for one in given])

    def go_on(self) -> None:
        """Try again from where a transaction in progress was: it may have been rolled back."""
        self.finished, self.stopped_at = False, None

    def step(self, message: Message) -> Given | Group | None:
        """What the next message of the partition means; None for nothing."""
        aside = message.topic.startswith(ASIDE)
        if aside and message.topic != MARKER:
            return None
        if not aside and not self.start.takes(id_of(message.number)):
            return None  # what is left out by its id stops nobody
        pointer = pointer_in(message.header_block) if message.header_block else None
        if not self._sees(pointer, message.number):
            return None
        return self._group(message) if aside else self._give(id_of(message.number), message.body)

    def body(self, group: Group, message: Message) -> Given | None:
        """What a body of a group means; None for one before the start."""
        return self._give(id_of(group.marker, message.number), message.body)

    def _all_of(self, batch: Batch) -> Stretch:
        """The messages of a batch without looking at each: all are of no transaction, or transactions do not matter."""
        numbers = batch.ids()
        first = bisect_right(numbers, self.start.after)
        if first < len(numbers) and not self.start.takes(id_of(numbers[first])):
            first += 1
        end = len(numbers)
        if self._left is not None:
            end = min(end, first + self._left)
            self._left -= max(0, end - first)
            self.finished = self._left == 0
        return Stretch(inline_ids(numbers[first:end]), batch.bodies()[first:end])

    def _sees(self, pointer: int | None, number: int) -> bool:
        if self._snapshot is None or self._ledger is None or pointer is None:
            return True
        rolled_back = self._ledger.is_rolled_back(pointer, number)
        verdict = self._snapshot.judge(pointer, rolled_back=rolled_back)
        if verdict is Verdict.STOP:
            self.finished, self.stopped_at = True, number
        return verdict is Verdict.TAKE

    def _group(self, message: Message) -> Group:
        """The ranges of a marker that do not lie wholly before the start."""
        ranges = read_marker(message.body)
        return Group(
            message.number, [one for one in ranges if self.start.takes(id_of(message.number, one.last))]
        )  # fmt: skip

    def _give(self, found: TopicId, payload: bytes) -> Given | None:
        if not self.start.takes(found):
            return None
        if self._left is not None:
            self._left -= 1
            self.finished = self._left == 0
        return Given(found.pack(), payload)
