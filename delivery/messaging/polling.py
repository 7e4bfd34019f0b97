"""One poll of a topic, message by message: what it gives, passes over and stops at (seed 003, "Consuming")."""

from __future__ import annotations

from typing import NamedTuple

from delivery.errors import InvalidRequest
from delivery.messaging.ids import Start, TopicId, id_of
from delivery.messaging.ledger import Ledger
from delivery.messaging.marks import MARKER, Range, pointer_in, read_marker
from delivery.messaging.transactions import Snapshot, Verdict
from delivery.model import ASIDE, Message


class Given(NamedTuple):
    """What the poll gives to its client."""

    id: bytes
    payload: bytes


class Group(NamedTuple):
    """Bodies to be read now and handed to `Poll.body`: those that the marker of that number makes visible."""

    marker: int
    ranges: list[Range]


def check_limit(limit: int | None) -> int | None:
    """How many messages a poll gives at most, None for all. Raises InvalidRequest."""
    if limit is not None and limit <= 0:
        raise InvalidRequest(f"a poll gives 1 message or more, not {limit}")
    return limit


class Poll:
    """A poll, which is handed the messages of a partition in order. Without a snapshot it sees all transactions."""

    def __init__(self, start: Start, limit: int | None, snapshot: Snapshot | None, ledger: Ledger | None) -> None:
        """`ledger` knows the rollbacks up to where the poll ends; only a poll with a snapshot needs it."""
        assert snapshot is None or ledger is not None, "rollbacks decide what a transaction sees"
        self.start, self._left, self._snapshot, self._ledger = start, limit, snapshot, ledger
        self.finished = False
        """Nothing more comes: the limit is reached, or a transaction in progress is."""

    def step(self, message: Message) -> Given | Group | None:
        """What the next message of the partition means; None for nothing."""
        aside = message.topic.startswith(ASIDE)
        if aside and message.topic != MARKER:
            return None
        pointer = pointer_in(message.header_block) if message.header_block else None
        if not self._sees(pointer, message.number):
            return None
        return self._group(message) if aside else self._give(id_of(message.number), message.body)

    def body(self, group: Group, message: Message) -> Given | None:
        """What a body of a group means; None for one before the start."""
        return self._give(id_of(group.marker, message.number), message.body)

    def _sees(self, pointer: int | None, number: int) -> bool:
        if self._snapshot is None or self._ledger is None or pointer is None:
            return True
        rolled_back = self._ledger.is_rolled_back(pointer, number)
        verdict = self._snapshot.judge(pointer, rolled_back=rolled_back)
        self.finished = verdict is Verdict.STOP
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
