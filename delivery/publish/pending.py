"""A publish on its way, and how it ended."""

from __future__ import annotations

import msgspec

from delivery.errors import HootError
from delivery.model import Durability
from delivery.rpc.promise import Promise


class Stored(msgspec.Struct, frozen=True):
    """The ids of a stored batch, `base_id … base_id + count - 1`, and what the acknowledgement means."""

    base_id: int
    count: int
    durability: Durability
    duplicate: bool = False
    """This sequence had been published before; the ids are those of the first time."""


class PendingPublish(Promise[Stored]):
    """One batch from its arrival until its outcome: Stored, the error that refused it, or UnknownOutcome."""

    __slots__ = ("after", "aside", "batch", "generation", "partition", "queue", "size")

    def __init__(
        self, queue: str, partition: int, batch: bytes, *, generation: str = "", aside: bool = False,
        after: int | None = None,
    ) -> None:  # fmt: skip
        """`aside` is for batches of the engine's own (see `model.ASIDE`); without a `generation` any queue is meant.

        `after` is for a batch that is copied from another queue and keeps its ids: the last id that must be there.
        """
        super().__init__()
        self.aside, self.generation, self.after = aside, generation, after
        self.queue, self.partition, self.batch = queue, partition, batch
        self.size = len(batch)

    def follow(self, first: PendingPublish) -> None:
        """End as `first` does: this is the same batch again."""
        first.then(lambda outcome: self.give(_repeated(outcome)))

    def give(self, outcome: Stored | HootError) -> None:
        """The end. The batch is let go of."""
        self.batch = b""
        super().give(outcome)


def _repeated(outcome: Stored | HootError) -> Stored | HootError:
    return msgspec.structs.replace(outcome, duplicate=True) if isinstance(outcome, Stored) else outcome
