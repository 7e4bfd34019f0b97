"""Finding out which invalid transactions can be forgotten, partition by partition; see `transactions.forgetting`."""

from __future__ import annotations

from collections.abc import Iterator

from delivery import wall
from delivery.client.calls import Calls, partition_info
from delivery.errors import UnknownQueue
from delivery.metastore.catalog import Catalog
from delivery.transactions.forgetting import forgettable_before


class Forgetting:
    """Over one catalog and the owners of partitions. Blocks. For one thread at a time."""

    def __init__(self, catalog: Catalog, calls: Calls) -> None:
        self._catalog, self._calls = catalog, calls
        self._holding: tuple[str, int] | None = None
        """The partition that had the oldest message when this was found out last."""

    def before_ms(self, oldest_ms: int) -> int:
        """The time before which transactions began that can be forgotten; 0 where not even one of `oldest_ms` can.

        Partitions that nobody owns are taken by a host for it. Raises what keeps it from being found out.
        """
        now = wall.ms()
        found = forgettable_before((), now)
        for place in self._places():
            first = self._first_id(*place)
            if (before := forgettable_before([first], now)) < found:
                found, self._holding = before, place
            if found <= oldest_ms:
                return 0
        return found

    def _places(self) -> Iterator[tuple[str, int]]:
        """Partitions that may hold messages of transactions, the one first that may settle it at once."""
        if self._holding is not None:
            yield self._holding
        for record in self._catalog.queue_records():
            if record.takes_transactions:
                yield from ((record.name, partition) for partition in range(record.settings.partitions))

    def _first_id(self, queue: str, partition: int) -> int:
        try:
            return int(partition_info(self._calls.call, queue, partition).firstId)
        except UnknownQueue:
            return 0
