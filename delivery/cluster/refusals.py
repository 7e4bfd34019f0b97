"""Why partitions could not be owned a moment ago: answered from memory instead of asking ZooKeeper each time."""

from __future__ import annotations

from typing import Final

import msgspec

from delivery.errors import (
    CorruptRecord,
    Fenced,
    HootError,
    InvalidRequest,
    LayoutMismatch,
    MessagesGone,
    StorageUnavailable,
    UnknownQueue,
    WrongStore,
)

AGAIN_SECONDS: Final = 0.25
"""How long "another host has it" or "ZooKeeper does not answer" is believed."""
REFUSALS_MAX: Final = 100_000

TROUBLE: Final = (StorageUnavailable, CorruptRecord, Fenced, LayoutMismatch, MessagesGone, WrongStore)
"""The store's fault: the partition was claimed, could not be opened, and was released."""


class _Refusal(msgspec.Struct, frozen=True):
    error: HootError
    until: float


class Refusals:
    """Plain memory of failed claims; `now` is a monotonic clock in seconds."""

    def __init__(self, reopen_seconds: float) -> None:
        """A partition whose store failed is left alone for `reopen_seconds`."""
        self._reopen_seconds = reopen_seconds
        self._refused: dict[tuple[str, int], _Refusal] = {}
        self._troubles: dict[tuple[str, int], str] = {}

    def note(self, queue: str, partition: int, error: HootError, now: float) -> bool:
        """Remember that a claim failed. True when that is news that a person should hear: the store's fault."""
        place = (queue, partition)
        trouble = isinstance(error, TROUBLE)
        if len(self._refused) >= REFUSALS_MAX:
            self._refused.clear()
        if not isinstance(error, UnknownQueue | InvalidRequest):
            pause = self._reopen_seconds if trouble else AGAIN_SECONDS
            self._refused[place] = _Refusal(error, now + pause)
        if not trouble:
            self._troubles.pop(place, None)
            return False
        text = f"{queue}/{partition}: {error.message}"
        news = self._troubles.get(place) != text
        self._troubles[place] = text
        return news

    def find(self, queue: str, partition: int, now: float) -> HootError | None:
        """Why the partition need not be tried at this moment."""
        refusal = self._refused.get((queue, partition))
        if refusal is None:
            return None
        if now >= refusal.until:
            del self._refused[queue, partition]
            return None
        return refusal.error

    def settle(self, queue: str, partition: int) -> None:
        """The partition is owned now."""
        self._refused.pop((queue, partition), None)
        self._troubles.pop((queue, partition), None)

    def forget(self, queue: str) -> None:
        """The queue is gone."""
        for memory in (self._refused, self._troubles):
            for place in [place for place in memory if place[0] == queue]:
                del memory[place]

    def troubles(self) -> list[str]:
        """What keeps partitions from being served, a line each."""
        return sorted(self._troubles.values())
