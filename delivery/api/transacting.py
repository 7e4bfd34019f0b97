"""All that a host has of the transaction service, put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio
from starlette.routing import Route

from delivery.api.rest.routes import Answered
from delivery.api.rest.transactions import TransactionRoutes
from delivery.api.transactions import AnyHost, TransactionCalls, WithTransactions
from delivery.client.calls import Calls
from delivery.client.managing import Managers
from delivery.cluster.claims import Member
from delivery.cluster.seat import Seat
from delivery.cluster.transacting import Transacting
from delivery.messaging.transactions import Snapshot, read_snapshot
from delivery.metastore.catalog import Catalog
from delivery.metrics import Metrics
from delivery.publish.publisher import Publisher
from delivery.rpc.pool import Pool
from delivery.rpc.server import Handler

LOOK_SECONDS: Final = 10.0
"""How long the one who manages transactions is sought for a view."""
_GAUGES: Final = (
    ("transactions", "In progress, on the host that manages them"), ("transactions_invalid", "Until they are pruned")
)  # fmt: skip


class TransactionService:
    """`run` owns the managing and the connections to other hosts."""

    def __init__(self, catalog: Catalog, member: Member, publisher: Publisher, metrics: Metrics) -> None:
        self._transacting = Transacting(Seat(catalog, member))
        self._calls = TransactionCalls(self._transacting, publisher)
        self._pool = Pool()
        self._any_host = AnyHost(self._calls, Calls(Managers(catalog), self._pool))
        for place, (name, text) in enumerate(_GAUGES):
            metrics.watch(name, text, lambda place=place: self._transacting.counts()[place])  # type: ignore[misc]

    def handler(self, rest: Handler) -> Handler:
        """A handler of RegionHost that leaves all other calls to `rest`."""
        return WithTransactions(rest, self._calls)

    async def changed(self, unfinished: Sequence[int], seconds: float) -> Snapshot:
        """See Transacting.changed, from whichever host manages. Raises NoHost and what else keeps it from answering."""
        asked = (unfinished, round(seconds * 1000))
        return read_snapshot(await self._any_host.call("transactionSnapshot", *asked, seconds=LOOK_SECONDS))

    def routes(self, answered: Answered) -> Sequence[Route]:
        """The paths over HTTP; see TransactionRoutes."""
        return TransactionRoutes(self._any_host, answered).routes()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See Transacting."""
        try:
            await self._transacting.run(task_status=task_status)
        finally:
            self._pool.close()
