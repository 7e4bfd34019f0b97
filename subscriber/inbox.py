"""What to do with a push: the subscriber's delivery policy, without any I/O.

A *turn* is (epoch, run): the owner's epoch, and the owner's count of rewinds. Turns only rise. Within a turn the pushes
of a partition follow one another without a gap: each covers what the subscription's topics left out before it.

Two threads use an inbox: pushes arrive on one (`arrive`), and are begun and ended in the same order on another. They
share only `_latest`, which the first one alone writes, as one tuple.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

from subscriber.holding import Holding

Turn = tuple[int, int]


class Status(enum.IntEnum):
    """The status codes of idl/subscriber.thrift."""

    OK = 0
    FAILED = 1
    SKIPPED = 2
    STALE = 3
    UNKNOWN = 4


class PartitionInbox:
    """The pushes of one partition to one attached subscription.

    Ids that listeners have handled here are not handed to them again when an owner rewinds, because its last
    acknowledgements were lost or because it took over from another. The rule is narrow: ids are skipped only inside
    `(_floor, position]`, a range that this inbox saw handled from end to end. A turn that begins outside of it, behind
    or ahead, is a new beginning, and nothing is skipped. So is one after somebody moved the position by hand: handled
    messages are *meant* to come again then.
    """

    __slots__ = (
        "_failed", "_floor", "_latest", "_moves", "_reach", "_recalled", "_turn", "beginning", "holding", "moved_from",
        "position", "repeats",
    )  # fmt: skip

    def __init__(self) -> None:
        self._latest: Turn = (-1, -1)
        self._turn: Turn = (-1, -1)
        self._failed: Turn | None = None
        self._moves = 0
        self._floor = 0
        self.position = -1
        """Everything in `(_floor, position]` was handled, or is held."""
        self._reach = -1
        """So is everything between the position and this, but for what was recalled."""
        self._recalled: set[int] = set()
        self.beginning = 0
        """How often something began here that what was before has nothing to do with."""
        self.holding = Holding()
        self.moved_from: int | None = None
        """The former owner's epoch, when the push that was begun last is the first one of another owner."""
        self.repeats = False
        """Whether the push that was begun last begins with what was handled here already."""

    def arrive(self, turn: Turn) -> bool:
        """Note that a push of `turn` is here; False when it is stale already."""
        if turn < self._latest:
            return False
        self._latest = turn
        return True

    def begin(
        self, turn: Turn, after: int, moves: int = 0, parked: Iterable[tuple[int, bytes | None]] = (), *,
        retry: bool = False,
    ) -> Status | int:  # fmt: skip
        """The id after which listeners are to be called for a push, or the status that answers it at once.

        `moves` rises with each move of the position by hand, and only with a new turn. `parked` counts with the first
        push of a turn; `retry` is for one that repeats parked messages.
        """
        self.moved_from = None
        if turn < self._latest:
            return Status.STALE
        if turn == self._failed:
            return Status.SKIPPED
        if turn != self._turn:
            if -1 < self._turn[0] < turn[0]:
                self.moved_from = self._turn[0]
            self._turn, self._failed = turn, None
            if moves != self._moves or not self._floor <= after <= max(self.position, self._reach):
                self._floor = self.position = after
                self.holding = Holding()  # what it held comes again, or is parked
                self._reach, self.beginning = -1, self.beginning + 1
            self._moves = moves
            self.holding.begin_turn(after, self._floor, self.position, parked)
        if not retry:
            self.position = max(self.position, after)
        self.repeats = self.position > after
        return self.position

    def end(self, position: int) -> int:
        """Listeners handled the push that was begun; it reached up to `position`. Gives the position to answer."""
        self.position = max(self.position, position)
        return self.position

    @property
    def turn(self) -> Turn:
        """Of the push that was begun last."""
        return self._turn

    @property
    def has_gaps(self) -> bool:
        """Whether some of what lies behind the position was handled."""
        return self._reach > self.position

    def is_wanted(self, number: int) -> bool:
        """Whether a message behind the position is to be handed to listeners, where there are gaps."""
        return number > self._reach or number in self._recalled

    def recall(self, first: int, numbers: Iterable[int], *, fails: bool) -> None:
        """Handled messages turn out not to be: `first`, and of those behind it `numbers`. They come again.

        With `fails` what follows in this turn is skipped.
        """
        assert self._floor < first <= self.position, "what was not handed out cannot be recalled"
        before = self._recalled if self.has_gaps else set()
        self._recalled = {number for number in before if number > self.position} | set(numbers)
        self._reach = max(self._reach, self.position)
        self.position = first - 1
        if fails:
            self._failed = self._turn

    def fail(self, position: int) -> int:
        """They handled it up to `position` only: what follows in this turn is skipped."""
        self._failed = self._turn
        return self.end(position)

    def is_failed(self, turn: Turn) -> bool:
        """Whether a failure ended this turn."""
        return turn == self._failed

    def forget(self, handled: int) -> None:
        """Of what lies behind `handled` some was handled and some not: all of it comes again, and counts."""
        self.position = max(self._floor, handled)
        self.holding.forget(handled)


class Inbox:
    """The partitions of one attached subscription."""

    __slots__ = ("_known", "_partitions")

    def __init__(self, partitions: Collection[int]) -> None:
        """`partitions` are those subscribed to; pushes of others are unknown here."""
        self._partitions: dict[int, PartitionInbox] = {}
        self.know(partitions)

    def know(self, partitions: Collection[int]) -> None:
        """These are subscribed to, as has turned out. What came for them stays."""
        self._known = frozenset(partitions)

    def arrive(self, partition: int, turn: Turn) -> PartitionInbox | Status:
        """Where to begin the push later, or the status that answers it at once."""
        if partition not in self._known:
            return Status.UNKNOWN
        inbox = self._partitions.setdefault(partition, PartitionInbox())
        return inbox if inbox.arrive(turn) else Status.STALE

    def partition(self, partition: int) -> PartitionInbox:
        """Of a partition that a push came for."""
        return self._partitions[partition]
