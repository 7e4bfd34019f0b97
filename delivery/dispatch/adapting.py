"""How much work is to be out with a subscriber: as much as it gets done in a while, measured. Plain decisions.

What is out is what a crash repeats, what a pause still has to wait for, and what another subscriber cannot take. So it
is not to be more than keeps the subscriber busy. How long a message takes is measured by when pushes are answered: from
the answer before, or from the sending of one that nothing was out before. The window is what is done in TARGET_SECONDS
at that rate. A window that is too small makes answers come early, and by that grows with the next of them.

A subscriber that works on several messages of a partition at the same time says so. It gets enough for all of them,
however long one takes, and in pushes so small that it does not wait for the last message of one with nothing to do.
"""

from __future__ import annotations

from typing import Final

TARGET_SECONDS: Final = 1.0
"""Far above a round trip, so that a subscriber never waits, and far below a person's patience."""
FIRST_MESSAGES: Final = 100
"""Before anything was measured."""
ON_THE_WAY_SECONDS: Final = 0.005
"""What a push that nothing was out before may take without any work: it is not a callback's time."""
_PARTS: Final = 8
"""Pushes of a window, for who works on several messages at the same time."""
_KEPT: Final = 0.8
"""The part that what was measured before still counts for, with each answer."""


class Adapting:
    """The window of one partition of one subscription, in messages. Times are seconds of one clock."""

    __slots__ = ("_answered", "_messages", "_messages_max", "_seconds", "largest", "messages")

    def __init__(self, messages_max: int) -> None:
        self._messages_max = messages_max
        self._messages = self._seconds = 0.0
        self._answered = -float("inf")
        self.messages = min(FIRST_MESSAGES, messages_max)
        """At most so many are to be out."""
        self.largest = self.messages
        """And so many in one push."""

    def answered(self, messages: int, sent: float, now: float, abreast: int = 1) -> None:
        """A push of so many messages, which was sent at that time, was answered; `abreast` are worked on at once."""
        idle = sent >= self._answered
        seconds = now - (sent + ON_THE_WAY_SECONDS if idle else self._answered)
        self._answered = now
        self._messages = self._messages * _KEPT + messages
        self._seconds = self._seconds * _KEPT + max(0.0, seconds)
        done = self._messages * TARGET_SECONDS / self._seconds if self._seconds else self._messages_max
        least = 2 * abreast if abreast > 1 else 1
        self.messages = int(min(self._messages_max, max(least, done)))
        self.largest = max(1, self.messages // _PARTS) if abreast > 1 else self.messages
