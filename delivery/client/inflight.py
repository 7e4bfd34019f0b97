"""What a publisher has under way to one partition: producer sequences, the window, and the order of retries. Pure.

The host takes a producer's batch when its sequence follows the last one it took (any sequence from a producer that it
does not know), answers one that it remembers with the first one's ids, and refuses a gap with OutOfSequence. A batch
that it refuses consumes no sequence. From this follow the rules here, which leave each message stored once and in
order, or reported:

1.  Sequences are given when a batch is first sent. Every attempt to send it again uses the same one.
2.  After any failure, and with a producer that the host has not seen, one batch is sent alone; only when it is stored
    does the window open. A host that does not know the producer would else take the second batch without the first.
3.  Once something fails, nothing more is sent until all that is in flight was answered or its connection is broken.
    Then it goes out again from the oldest on.
4.  An attempt without an answer, or with one that leaves it open, puts the batch in doubt for good: an answer to a
    later attempt says nothing of the earlier one. What fails in doubt is reported as UnknownOutcome, else as refused.
5.  A batch that leaves without being stored leaves a gap in the sequences. The rest begins them anew (batch.sequences:
    late copies of the old ones are refused from then on) as soon as it is known that none of it is stored: when none of
    it is in doubt, or when the oldest is answered with OutOfSequence. Until then it keeps its sequences.
6.  A batch in doubt whose deadline has passed is reported at once, but goes on being sent for as long as others behind
    it are in doubt: without it the host could not take those.

The host remembers the last 16 batches of a producer, so the window is at most that.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable

from delivery.batch.sequences import begun_anew
from delivery.client.receipts import Batch
from delivery.errors import (
    ClockWrong,
    HootError,
    HostUnreachable,
    MetadataUnavailable,
    NoHost,
    NotOwner,
    OutOfSequence,
    QueueFull,
    ServiceStopping,
    StorageUnavailable,
    Throttled,
    UnknownOutcome,
)

WINDOW_MAX = 16
"""Batches in flight per partition, at most."""

# Answers that promise that this attempt was not stored. Any other error that may go away leaves it open.
_NOT_STORED = (
    ClockWrong, MetadataUnavailable, NoHost, NotOwner, OutOfSequence, QueueFull, ServiceStopping, StorageUnavailable,
    Throttled,
)  # fmt: skip


def fresh_producer() -> int:
    """A producer id that nobody else has: 63 random bits."""
    return random.SystemRandom().getrandbits(63) or 1


Settled = tuple[Batch, HootError]
"""A batch that failed, and why."""


class Entry:
    """A batch with its attempts. `sequence` is 0 until it is first sent."""

    __slots__ = ("batch", "data", "doubt", "error", "producer", "reported", "sequence")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.producer = self.sequence = 0
        self.data = b""
        """The packed bytes, for as long as producer and sequence stay."""
        self.doubt = False
        self.error: HootError | None = None
        """What its last attempt ended with."""
        self.reported = False
        """Whether its outcome was given out: it is only sent for the sake of those behind it (rule 6)."""

    def late(self, now: float) -> bool:
        """Whether it is to be reported because its deadline has passed."""
        return self.batch.deadline <= now and not self.reported


class Lane:
    """One partition's batches in order: `_flying` (sent, no answer), then `_waiting` (to be sent, or sent again).

    The owner sends what `launch` gives while `may_send`, tells each answer in the order of sending by `stored` or
    `failed`, a lost connection by `broken`, and after any of these, and now and then, gives out what `settle` returns.
    """

    __slots__ = ("_flying", "_fresh", "_gap", "_producer", "_proven", "_restart", "_returned", "_sequence", "_waiting",
                 "_window", "paused_until")  # fmt: skip

    def __init__(self, window: int, fresh: Callable[[], int] = fresh_producer) -> None:
        assert 1 <= window <= WINDOW_MAX
        self._window, self._fresh = window, fresh
        self._flying: deque[Entry] = deque()
        self._returned: list[Entry] = []
        """Failed attempts, in order, until the last of `_flying` is answered (rule 3)."""
        self._waiting: deque[Entry] = deque()
        self._producer = self._sequence = 0
        self._restart = True
        """Whether the next batch without a sequence begins them anew."""
        self._gap = False
        """Whether one was given up whose sequence the host never took."""
        self._proven = False
        """Whether the host stored the batch answered last, so that the window is open (rule 2)."""
        self.paused_until = 0.0

    @property
    def idle(self) -> bool:
        """Whether it holds nothing."""
        return not (self._flying or self._returned or self._waiting)

    @property
    def backlog(self) -> bool:
        """Whether a batch that it holds is to be sent."""
        return bool(self._waiting)

    @property
    def flying(self) -> int:
        """How many batches are sent and not answered."""
        return len(self._flying)

    def may_send(self, now: float) -> bool:
        """Whether one more batch may go out."""
        if self._returned or now < self.paused_until:
            return False
        return len(self._flying) < (self._window if self._proven else 1)

    def add(self, batch: Batch) -> None:
        """One more batch, behind all others."""
        self._waiting.append(Entry(batch))

    def launch(self) -> Entry | None:
        """The next batch to send, from now on in flight; None when there is none. Ask `may_send` first."""
        if not self._waiting:
            return None
        entry = self._waiting[0]
        if not entry.sequence:
            if self._restart:
                if self._flying:
                    return None
                if self._producer:
                    self._sequence = begun_anew(self._sequence)
                else:
                    self._producer = self._fresh()
                self._restart = self._proven = False
            self._sequence += 1
            entry.producer, entry.sequence = self._producer, self._sequence
        self._flying.append(self._waiting.popleft())
        return entry

    def stored(self) -> Batch | None:
        """The oldest in flight is stored; None when another outcome of it was reported already."""
        entry = self._flying.popleft()
        self._proven = not self._returned  # after a failure, a later one can only be taken from an unknown producer
        return None if entry.reported else entry.batch

    def failed(self, error: HootError) -> None:
        """The oldest in flight was answered with an error."""
        entry = self._flying.popleft()
        entry.error = error
        # The bare class is an error of a newer host that this software does not know.
        entry.doubt |= (error.retryable or type(error) is HootError) and not isinstance(error, _NOT_STORED)
        self._returned.append(entry)
        self._proven = False

    def broken(self, error: HootError) -> None:
        """The connection broke: what is in flight will not be answered."""
        for entry in self._flying:
            entry.error, entry.doubt = error, True
        self._returned += self._flying
        self._flying.clear()
        self._proven = False

    def blocked(self, error: HootError) -> None:
        """The next batch cannot be sent for now, because of `error`."""
        if self._waiting and not self._waiting[0].doubt:
            self._waiting[0].error = error

    def abandon(self, error: HootError) -> list[Settled]:
        """Give up all that is held, because of `error`; what is in flight or was in doubt is unknown."""
        self.broken(error)
        left = [*self._returned, *self._waiting]
        self._returned.clear()
        self._waiting.clear()
        self._restart = True
        for entry in left:
            entry.error = error
        return _reports(left)

    def settle(self, now: float) -> list[Settled]:
        """The batches that have failed for good by now."""
        settled = self._take_back() if self._returned and not self._flying else []
        settled += self._expire(now)
        if not self._flying and not self._returned:
            self._bury()
        return settled

    def _take_back(self) -> list[Settled]:
        """All attempts are answered: drop what was refused for good, and put the rest back to be sent again."""
        refused = []
        while self._returned and (error := self._returned[0].error) and not error.retryable:
            refused.append(self._returned.pop(0))
        self._waiting.extendleft(reversed(self._returned))
        self._returned.clear()
        head = self._waiting[0] if self._waiting else None
        none_stored = head is not None and isinstance(head.error, OutOfSequence)
        if none_stored or (refused and not any(entry.doubt for entry in self._waiting)):
            self._waiting = self._restarted(self._waiting)
        return _reports(refused)

    def _expire(self, now: float) -> list[Settled]:
        late = [entry for entry in (*self._flying, *self._waiting) if entry.late(now)]
        if not late:
            return []
        for entry in self._flying:
            entry.doubt |= entry.late(now)
        reports = _reports(late)
        kept = deque(entry for entry in self._waiting if entry.doubt or not entry.reported)
        self._gap |= len(kept) < len(self._waiting)
        self._waiting = kept
        return reports

    def _bury(self) -> None:
        """Drop what was reported, once nothing in doubt stands behind it (rule 6), and begin anew behind a gap."""
        waiting = self._waiting
        reported = self._gap or any(entry.reported for entry in waiting)
        if reported and not any(entry.doubt and not entry.reported for entry in waiting):
            self._waiting = self._restarted(waiting)

    def _restarted(self, entries: Iterable[Entry]) -> deque[Entry]:
        """Those whose outcome is open: none of them is stored, they begin their sequences anew."""
        self._restart, self._gap = True, False
        kept = deque(entry for entry in entries if not entry.reported)
        for entry in kept:
            entry.sequence, entry.data, entry.doubt = 0, b"", False
        return kept


def _reports(entries: Iterable[Entry]) -> list[Settled]:
    found = []
    for entry in entries:
        if entry.reported:
            continue
        entry.reported = True
        error = entry.error or HostUnreachable("no region host took it in time")
        if entry.doubt:
            error = UnknownOutcome(f"the message may or may not be stored; the last answer: {error.message}")
        found.append((entry.batch, error))
    return found
