"""The region host put together: what it is made of, in which order that starts, and in which order it stops.

Start: settings, data folder, ZooKeeper and its layout, the ports, the registration, the servers, the workers. Stop: no
new calls, no new scans; what is out is answered or its grace is over; checkpoints; the session, whose end removes the
registration; the store. Whatever fails on the way in undoes what was done before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import trio

from delivery.api.connections import Connections
from delivery.api.exposing import Exposing
from delivery.api.http import make_app
from delivery.api.observing import Deliveries
from delivery.api.plain import PlainCalls
from delivery.api.publishing import Publishing
from delivery.api.reading import Reading
from delivery.api.rest.administration import Administration
from delivery.api.rest.bodies import Bodies
from delivery.api.rest.exchange import Exchange
from delivery.api.rest.forwarding import Forwarder
from delivery.api.rest.routes import TopicRoutes
from delivery.api.scanners import ScannerTable
from delivery.api.subscribing import SubscribingCalls
from delivery.api.thrift import ThriftApi, limits_of
from delivery.api.transacting import TransactionService
from delivery.api.visibility import Visibility
from delivery.client.deadletters import DeadLetterStore
from delivery.cluster.hosts.membership import Membership
from delivery.cluster.ownership import Ownership
from delivery.cluster.partition import OwnedPartition
from delivery.cluster.queues import QueueTable
from delivery.cluster.retention import Retention
from delivery.cluster.sealing import Sealing
from delivery.cluster.sharing.sharing import Sharing
from delivery.config import HostConfig
from delivery.dispatch.background import Background
from delivery.dispatch.backlogs import Backlogs
from delivery.dispatch.checkpoints import CheckpointKeeper
from delivery.dispatch.delivery import Tools
from delivery.dispatch.lines import Lines
from delivery.dispatch.supervisor import Supervisor
from delivery.dispatch.taking import StateTaker
from delivery.dispatch.watch import SubscriptionWatch
from delivery.errors import HootError
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import HostRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.metrics import Lag, Metrics, QueueBacklog
from delivery.publish.publisher import Publisher
from delivery.rpc import pinned
from delivery.rpc.server import ThriftServer
from delivery.storage.archive.store import ArchivedStore
from delivery.storage.base import Chunk
from delivery.storage.tail import TailCache

log = logging.getLogger(__name__)

_LAST_REPLIES_SECONDS: Final = 1.0
"""After everything was stored or refused, for the replies to get out."""

_SWEEP_SECONDS: Final = 3600.0
"""Between two looks at what the MetaStore keeps of removed entries."""


class Host:
    """All parts of a region host. `run` owns their tasks."""

    def __init__(
        self, config: HostConfig, record: HostRecord, store: ArchivedStore, zookeeper: ZooKeeperClient,
        catalog: Catalog, listeners: list[trio.SocketListener],
    ) -> None:  # fmt: skip
        self._config, self._record, self._zookeeper, self._catalog = config, record, zookeeper, catalog
        self.metrics = Metrics()
        tail = TailCache(config.tail_cache_bytes)
        self._membership = Membership(zookeeper, catalog, record, config.reconcile_seconds)
        self._queues = QueueTable(catalog, store.queues)
        self.ownership = Ownership(catalog, store, tail, self._membership, self._queues, config.reopen_seconds)
        self._keeper = CheckpointKeeper(catalog, config, self.ownership.doubt)
        self._sharing = Sharing(
            self.ownership, self._membership, zookeeper, catalog, store, config, flush=self._keeper.flush_partition
        )
        self._membership.on_lost(self.ownership.lose_all)
        self._queues.on_change(self.ownership.queue_changed)
        self._publisher = Publisher(
            self.ownership, store, tail, self.metrics, commit_bytes=config.commit_bytes,
            pending_bytes_max=config.publish_bytes_max,
        )  # fmt: skip
        self._retention = Retention(
            self.ownership, store, config.retention_interval_seconds, self.metrics.trimmed, store.refresh
        )
        self._sealing = Sealing(catalog)
        self.ownership.on_taken(self._sealing.taken)
        self._retention.on_dropped(self._sealing.trimmed)
        self._transactions = TransactionService(
            catalog, self._membership, self._publisher, self.metrics, successor=self._sharing.successor,
            foreign=config.foreign_transactions,
        )  # fmt: skip
        self._scanners = ScannerTable(config.scanner_idle_seconds, config.scanned_partitions_max)
        publishing = Publishing(self._publisher, self._transactions.writers, self._queues, catalog.mark_transactional)
        plain = PlainCalls(publishing, self._queues, self._scanners, self._read)
        self._backlogs = Backlogs(self.ownership, catalog, lambda: self._supervisor.deliveries)
        self.ownership.on_taken(self._backlogs.taken)
        self._queues.on_change(self._backlogs.queue_changed)
        self._subscribing = SubscribingCalls(catalog, self._membership, config.networks)
        self._deliveries = Deliveries(lambda: self._supervisor.deliveries, self.ownership, zookeeper)
        reading = Reading(self.ownership)
        self._visibility = Visibility(self._transactions.changed, reading.ledgers)
        api = ThriftApi(
            publishing, reading, plain, self._queues, catalog, self._sharing,
            subscribing=self._subscribing, deliveries=self._deliveries,
        )  # fmt: skip
        self._server = ThriftServer(listeners, "RegionHost", self._transactions.handler(api), limits_of(config))
        self._http = self._make_http(catalog)
        self._letters = DeadLetterStore(catalog)
        self._supervisor = self._make_supervisor(zookeeper, catalog)
        self._stopping = False
        self._watch(tail)

    def _make_http(self, catalog: Catalog) -> Connections:
        self._topics = TopicRoutes(
            Administration(catalog, self._queues),
            Exchange(
                self._publisher, self.ownership, self._queues, self._transactions.writers,
                messages_max=self._config.poll_messages_max,
            ),
            Forwarder(self._record.host, self._sharing.hosts.other_at), Bodies(self._config.publish_bytes_max),
            self._config.waiting_polls_max,
        )  # fmt: skip
        exposing = Exposing(self._deliveries, self.metrics.registry)
        make = partial(make_app, self.metrics, self.not_ready, exposing.refresh)
        app = self._topics.app(make, self._transactions.routes)
        return Connections(app, self._config.http_connections_max)

    def _make_supervisor(self, zookeeper: ZooKeeperClient, catalog: Catalog) -> Supervisor:
        taker = StateTaker(catalog, self.ownership.doubt)
        lines = Lines(partial(pinned.connect, self._config.networks), Background())
        tools = Tools(
            self._sharing.takeovers, self._keeper, taker, self.metrics, self._config, self._letters, lines,
            self._visibility,
        )  # fmt: skip
        return Supervisor(SubscriptionWatch(zookeeper, catalog), self._keeper, tools, self._config)

    def _watch(self, tail: TailCache) -> None:
        counters = self._server.counters
        gauges: list[tuple[str, str, Callable[[], float]]] = [
            ("connections", "Thrift connections open now", lambda: counters.connections),
            ("http_connections", "HTTP connections open now", lambda: len(self._http)),
            ("waiting_polls", "Polls over HTTP that wait for a message", lambda: len(self._topics.waits)),
            (
                "hosts",
                "Region hosts that live as far as this one knows, itself included",
                lambda: len(self._sharing.hosts.all),
            ),
            ("owned_partitions", "Partitions that this host owns", lambda: len(self.ownership)),
            ("tail_cache_bytes", "Bytes of the newest batches in memory", lambda: tail.bytes),
            ("publish_pending_bytes", "Bytes received and not stored yet", lambda: self._publisher.pending_bytes),
            ("open_scanners", "Scanners of plain clients", lambda: len(self._scanners)),
            ("leased_listeners", "Listeners that this host holds under a lease", lambda: len(self._subscribing.leases)),
            ("workers", "Partitions of subscriptions being served", self._workers),
        ]
        for name, text, value in gauges:
            self.metrics.watch(name, text, value)
        self.metrics.watch_lag(self._lags)
        self.metrics.watch_backlogs(lambda: map(_backlog, self._backlogs))

    async def run(
        self, http: list[trio.SocketListener], stop: trio.Event, task_status: trio.TaskStatus[HostRecord]
    ) -> None:
        """Start everything, report started, serve until `stop`, and stop in order."""
        async with trio.open_nursery() as base:
            parts = (
                self._queues, self.ownership, self._publisher, self._membership, self._sharing, self._retention,
                self._sealing, self._subscribing, self._transactions, self._backlogs,
            )  # fmt: skip
            for part in parts:
                await base.start(part.run)
            base.start_soon(self._expire_scanners)
            base.start_soon(self._sweep)
            base.start_soon(self._visibility.run)
            async with trio.open_nursery() as serving:
                if http:
                    await serving.start(self._http.serve, http)
                await serving.start(self._supervisor.run)
                served = trio.Event()
                await serving.start(self._serve, served)
                task_status.started(self._record)
                await stop.wait()
                await self._drain(served)
                serving.cancel_scope.cancel()
            base.cancel_scope.cancel()
        self._letters.close()

    async def _serve(self, served: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._server.run)
            task_status.started()
        served.set()

    async def _drain(self, served: trio.Event) -> None:
        """Give to other hosts what they take; then take nothing new, and give what is under way its grace."""
        self._stopping = True
        self._topics.waits.end()
        await self._sharing.leave(self._config.grace_seconds)
        with trio.move_on_after(self._config.grace_seconds):
            await self._transactions.leave()
        log.info(
            "host %s stops: no new calls; %d deliveries drain", self._record.host, len(self._supervisor.deliveries)
        )
        self._server.stop_accepting()
        with trio.move_on_after(self._config.grace_seconds + _LAST_REPLIES_SECONDS):
            async with trio.open_nursery() as draining:
                draining.start_soon(self._publisher.drain)
                draining.start_soon(self._supervisor.drain, self._config.grace_seconds)
        with trio.move_on_after(_LAST_REPLIES_SECONDS):
            await served.wait()

    async def _expire_scanners(self) -> None:
        """Opening and using scanners closes idle ones by the way; this is for when nobody does either."""
        while True:
            await trio.sleep(self._config.scanner_idle_seconds)
            self._scanners.expire(trio.current_time())

    async def _sweep(self) -> None:
        """Whatever host comes to it first does it for all."""
        while True:
            try:
                if gone := await trio.to_thread.run_sync(self._catalog.sweep, abandon_on_cancel=True):
                    log.info("%d entries of the metadata that were removed are deleted for good", gone)
            except HootError as error:
                log.warning("what was removed of the metadata cannot be deleted for good: %s", error)
            await trio.sleep(_SWEEP_SECONDS)

    def not_ready(self) -> list[str]:
        """Why this host cannot do its work now, a line each."""
        reasons = ["the host is stopping"] if self._stopping else []
        if self._zookeeper.state != "steady":
            reasons.append(f"the ZooKeeper session is {self._zookeeper.state}")
        elif not self._membership.serving:
            reasons.append("the host is not registered in ZooKeeper")
        return reasons + self.ownership.troubles

    async def _read(self, queue: str, partition: int, after: int, bytes_max: int) -> Chunk | None:
        owned = await self.ownership.acquire(queue, partition)
        return await owned.read(after, bytes_max)

    def _workers(self) -> float:
        return sum(len(delivery.workers) for delivery in self._supervisor.deliveries)

    def _lags(self) -> Iterator[Lag]:
        marks = {(owned.key.queue, owned.key.partition): owned.watermark for owned in self.ownership}
        for delivery in self._supervisor.deliveries:
            for worker in delivery.workers.values():
                stream = worker.stream
                watermark = marks.get((stream.queue, stream.partition), 0)
                behind = max(0, (watermark >> 15) - (worker.position >> 15)) / 1000 if worker.position else 0.0
                yield Lag(stream.queue, stream.subscription, behind, worker.unacknowledged)


def _backlog(owned: OwnedPartition) -> QueueBacklog:
    amount = owned.backlog.amount
    full = owned.backlog.is_full(owned.settings)
    return QueueBacklog(owned.key.queue, amount.messages, amount.bytes, full)
