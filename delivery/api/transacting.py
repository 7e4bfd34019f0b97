"""All that a host has of the transaction service, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio
from starlette.routing import Route

from delivery import hop
from delivery.api.rest.routes import Answered
from delivery.api.rest.transactions import TransactionRoutes
from delivery.api.transactions import AnyHost, TransactionCalls, WithTransactions
from delivery.api.writers import Writers
from delivery.client.calls import Calls
from delivery.client.forgetting import Forgetting
from delivery.client.hosts import Owners
from delivery.client.managing import Managers
from delivery.cluster.claims import Member
from delivery.cluster.forgetting import Forgetter
from delivery.cluster.seat import Seat
from delivery.cluster.transacting import Transacting
from delivery.messaging.transactions import Snapshot, read_snapshot
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import HostRecord
from delivery.metrics import Metrics
from delivery.publish.publisher import Publisher
from delivery.rpc.pool import Pool
from delivery.rpc.server import Handler

LOOK_SECONDS: Final = 10.0
"""How long the one who manages transactions is sought for a view."""
_GAUGES: Final = (
    ("transactions", "In progress, on the host that manages them"), ("transactions_invalid", "Until they are pruned")
)  # fmt: skip
_TAKE_SECONDS: Final = 5.0


class TransactionService:
    """`run` owns the managing and the connections to other hosts."""

    def __init__(
        self, catalog: Catalog, member: Member, publisher: Publisher, metrics: Metrics, *,
        successor: Callable[[], HostRecord | None], foreign: bool,
    ) -> None:  # fmt: skip
        """`successor`: see Transacting; `foreign`: see Writers."""
        self._pool = Pool()
        self._elsewhere = Calls(Managers(catalog), self._pool)
        self._transacting = Transacting(Seat(catalog, member), successor, self._have_taken)
        self._calls = TransactionCalls(self._transacting, publisher, self._check_undo)
        forgetting = Forgetting(catalog, Calls(Owners(catalog), self._pool))
        self._forgetter = Forgetter(self._transacting, forgetting.before_ms)
        self._any_host = AnyHost(self._calls, self._elsewhere)
        self.writers = Writers(self._calls, self._elsewhere, foreign=foreign)
        """Which transactions may write."""
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

    async def leave(self) -> None:
        """See Transacting."""
        await self._transacting.leave()

    async def _check_undo(self, pointer: int) -> None:
        await self.writers.check_undo(pointer)

    async def _have_taken(self, host: HostRecord) -> None:
        """Any question makes a host take what it is named for."""
        await hop.run_sync(partial(self._elsewhere.ask, host, "mayWrite", [], timeout=_TAKE_SECONDS))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See Transacting."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._forgetter.run)
                await self._transacting.run(task_status=task_status)
        finally:
            self._pool.close()
