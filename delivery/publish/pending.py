"""A publish on its way, and how it ended."""

from __future__ import annotations

import msgspec
import trio

from delivery.cluster.feed import again
from delivery.errors import HootError
from delivery.model import Durability


class Stored(msgspec.Struct, frozen=True):
    """The ids of a stored batch, `base_id … base_id + count - 1`, and what the acknowledgement means."""

    base_id: int
    count: int
    durability: Durability
    duplicate: bool = False
    """This sequence had been published before; the ids are those of the first time."""


class PendingPublish:
    """One batch from its arrival until its outcome. For the trio thread."""

    __slots__ = ("_done", "_followers", "batch", "outcome", "partition", "queue", "size")

    def __init__(self, queue: str, partition: int, batch: bytes) -> None:
        self.queue, self.partition, self.batch = queue, partition, batch
        self.size = len(batch)
        self.outcome: Stored | HootError | None = None
        self._done: trio.Event | None = None
        self._followers: list[PendingPublish] = []

    async def wait(self) -> Stored:
        """The outcome; raises the error that it was refused with, or UnknownOutcome. Cancelling leaves it under way."""
        while self.outcome is None:
            if self._done is None:
                self._done = trio.Event()
            await self._done.wait()
        if isinstance(self.outcome, HootError):
            raise again(self.outcome)
        return self.outcome

    def follow(self, first: PendingPublish) -> None:
        """End as `first` does: this is the same batch again."""
        first._followers.append(self)

    def resolve(self, outcome: Stored | HootError) -> None:
        """The end. The batch is let go of; whoever waits is woken."""
        assert self.outcome is None, "a publish ends once"
        self.outcome = outcome
        self.batch = b""
        if self._done is not None:
            self._done.set()
        if self._followers:
            same = msgspec.structs.replace(outcome, duplicate=True) if isinstance(outcome, Stored) else outcome
            for follower in self._followers:
                follower.resolve(same)
