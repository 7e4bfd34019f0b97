"""How batches from outside come to be stored: what is of a transaction is asked for first.

Programs in other languages put messages of transactions into any queue. It is marked before the first is stored: only
of marked ones is it known how long what an invalid transaction has left there is to be skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from delivery.api.writers import Writers
from delivery.cluster.queues import QueueTable
from delivery.publish.copied import store_copied
from delivery.publish.pending import PendingPublish
from delivery.publish.permits import Permit
from delivery.publish.publisher import Publisher


class Publishing:
    """A host's publisher and what it knows of transactions. For the trio thread."""

    def __init__(
        self, publisher: Publisher, writers: Writers, queues: QueueTable, mark: Callable[[str], object]
    ) -> None:  # fmt: skip
        """`mark` notes, in a thread, that a queue may hold messages of transactions (Catalog.mark_transactional)."""
        self._publisher, self._writers, self._queues, self._mark = publisher, writers, queues, mark

    def begin(self, queue: str, partition: int, batch: bytes, generation: str = "") -> PendingPublish:
        """See Publisher.begin. Raises as Writers.permit."""
        permit = self._writers.permit(batch)
        if permit is not None:
            permit = partial(self._marked, queue, permit)
        return self._publisher.begin(queue, partition, batch, generation=generation, permit=permit)

    async def _marked(self, queue: str, permit: Permit) -> None:
        """As `permit`, in a queue that is known to hold messages of transactions."""
        if not (await self._queues.get(queue)).takes_transactions:
            await trio.to_thread.run_sync(self._mark, queue)
        await permit()

    async def copied(self, queue: str, partition: int, after: int, batches: bytes, generation: str) -> int:
        """See `store_copied`."""
        return await store_copied(self._publisher, queue, partition, after, batches, generation)
