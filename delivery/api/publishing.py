"""How batches from outside come to be stored: what is of a transaction is asked for first."""

from __future__ import annotations

from delivery.api.writers import Writers
from delivery.publish.copied import store_copied
from delivery.publish.pending import PendingPublish
from delivery.publish.publisher import Publisher


class Publishing:
    """A host's publisher and what it knows of transactions. For the trio thread."""

    def __init__(self, publisher: Publisher, writers: Writers) -> None:
        self._publisher, self._writers = publisher, writers

    def begin(self, queue: str, partition: int, batch: bytes, generation: str = "") -> PendingPublish:
        """See Publisher.begin. Raises as Writers.permit."""
        permit = self._writers.permit(batch)
        return self._publisher.begin(queue, partition, batch, generation=generation, permit=permit)

    async def copied(self, queue: str, partition: int, after: int, batches: bytes, generation: str) -> int:
        """See `store_copied`."""
        return await store_copied(self._publisher, queue, partition, after, batches, generation)
