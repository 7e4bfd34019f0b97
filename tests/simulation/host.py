"""A region host of the simulation: the real parts, put together as in delivery.app, on one simulated machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, cast

import trio

from delivery.api.reading import Reading
from delivery.cluster.hosts.membership import Membership
from delivery.cluster.ownership import Ownership
from delivery.cluster.queues import QueueTable
from delivery.cluster.sharing.sharing import Sharing
from delivery.config import HostConfig
from delivery.dispatch.background import Background
from delivery.dispatch.checkpoints import CheckpointKeeper
from delivery.dispatch.delivery import Tools
from delivery.dispatch.lines import Lines
from delivery.dispatch.supervisor import Supervisor
from delivery.dispatch.taking import StateTaker
from delivery.dispatch.watch import SubscriptionWatch
from delivery.errors import HootError, StorageUnavailable
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.records import HostRecord
from delivery.metrics import Metrics
from delivery.publish.lane import Answers, Settle, append_all
from delivery.publish.pending import PendingPublish
from delivery.publish.publisher import Publisher
from delivery.storage.base import Append, MessageStore
from delivery.storage.tail import TailCache
from tests.dispatch import KeptLetters
from tests.simulation.connection import SimulatedConnection
from tests.simulation.disk import Disk
from tests.simulation.kernel import Kernel
from tests.simulation.machine import Crashed, Machine, here
from tests.simulation.network import Network
from tests.simulation.session import SimulatedSession
from tests.simulation.zookeeper import ZooKeeperServer

SESSION_SECONDS: Final = 2.0
CONFIG: Final = HostConfig(
    session_timeout_seconds=SESSION_SECONDS, reconcile_seconds=4.0, reopen_seconds=0.3, window_messages=16,
    buffer_messages=6, push_bytes=400, hello_seconds=1.0, reconnect_delay_seconds=0.05,
    reconnect_delay_max_seconds=0.5, checkpoint_batch=8, grace_seconds=1.0, rebalance_seconds=3.0,
)  # fmt: skip
TAIL_BYTES: Final = 1500
"""So little that a subscription which is behind has to read the store."""

_METRICS: Final = Metrics()
"""Nobody looks at them here, and to make one takes longer than to start a host."""


class SimulatedHost(Machine):
    """One process of a host: a new one has a new name, and knows nothing of the one before."""

    def __init__(self, kernel: Kernel, name: str, port: int, network: Network, server: ZooKeeperServer) -> None:
        super().__init__(kernel, name)
        self.network = network
        self.address = (name, port)
        self.session = SimulatedSession(self, server, reset_chance=0.004, deadline=1.5)
        self.stopping = trio.Event()
        self.sharing: Sharing | None = None
        """None until it serves."""
        self._publisher: Publisher | None = None
        self._reading: Reading | None = None
        self._calls: trio.Nursery | None = None

    async def run(self, disk: Disk) -> None:
        """Be a host until crashed, or until it cannot start."""
        here.set(self)
        self.kernel.note("start", self.name)
        try:
            with self.scope:
                await self._serve(disk.store(self))
        except* Crashed:
            pass
        except* HootError as group:
            self.kernel.note("gives up", self.name, *(str(error)[:80] for error in group.exceptions))
        self.crash()

    async def _serve(self, store: MessageStore) -> None:
        session = cast("Any", self.session)
        catalog = open_catalog(session)
        record = HostRecord(self.name, *self.address, None, 0, "1", self.wall_ms())
        tail = TailCache(TAIL_BYTES)
        membership = Membership(session, catalog, record, CONFIG.reconcile_seconds)
        queues = QueueTable(catalog, store.queues)
        ownership = Ownership(catalog, store, tail, membership, queues, CONFIG.reopen_seconds)
        keeper = CheckpointKeeper(catalog, CONFIG, ownership.doubt)
        sharing = Sharing(ownership, membership, session, catalog, store, CONFIG, flush=keeper.flush_partition)
        membership.on_lost(ownership.lose_all)
        queues.on_change(ownership.queue_changed)
        publisher = Publisher(
            ownership, store, tail, _METRICS, commit_bytes=2000, pending_bytes_max=20_000, now_ms=self.wall_ms,
            lane=StrandLane(self, store),
        )  # fmt: skip
        supervisor = _supervisor(session, catalog, keeper, sharing, StateTaker(catalog, ownership.doubt))
        self.session.start()
        await trio.to_thread.run_sync(catalog.ensure_layout)
        async with trio.open_nursery() as base:
            for part in (queues, ownership, publisher, membership, sharing):
                await base.start(part.run)
            self._publisher, self.sharing, self._reading = publisher, sharing, Reading(ownership)
            try:
                await self._serve_until_stopped(supervisor)
            finally:
                self._calls = None
            base.cancel_scope.cancel()

    async def _serve_until_stopped(self, supervisor: Supervisor) -> None:
        async with trio.open_nursery() as self._calls:
            await self._calls.start(supervisor.run)
            self.network.listen(self.address, self, self)
            await self.stopping.wait()
            self.kernel.note("stopping", self.name)
            await self._drain(supervisor)
            self._calls.cancel_scope.cancel()

    async def _drain(self, supervisor: Supervisor) -> None:
        assert self.sharing is not None
        assert self._publisher is not None
        await self.sharing.leave(CONFIG.grace_seconds)
        with trio.move_on_after(CONFIG.grace_seconds):
            async with trio.open_nursery() as draining:
                draining.start_soon(self._publisher.drain)
                draining.start_soon(supervisor.drain, CONFIG.grace_seconds)

    @property
    def serving(self) -> bool:
        """Whether it has started, and not ended."""
        return self._calls is not None

    def call(self, method: str, *arguments: Any, reply: Callable[[object], None]) -> None:
        """Take a call of another host from the network."""
        assert self.sharing is not None
        assert self._reading is not None
        calls: dict[str, Callable[..., Awaitable[object]]] = {
            "takePartition": self.sharing.take, "partitionsFreed": self.sharing.freed,
            "partitionInfo": self._reading.info, "countMessages": self._reading.count,
        }  # fmt: skip
        self._begin_call(partial(calls[method], *arguments), reply)

    def operate(self, work: Callable[[], Awaitable[object]]) -> None:
        """Take a call of an operator's, who does not care how it ends."""
        self.act(partial(self._begin_call, work, lambda _: None))

    def _begin_call(self, work: Callable[[], Awaitable[object]], reply: Callable[[object], None]) -> None:
        if self._calls is not None:
            self._calls.start_soon(_answer, work, reply)

    def begin(self, queue: str, partition: int, batch: bytes, generation: str) -> PendingPublish:
        """Take a publish from the network."""
        assert self._publisher is not None
        self.kernel.note("accept", self.name, partition)
        return self._publisher.begin(queue, partition, batch, generation=generation)


class StrandLane:
    """The way into the store, as a strand."""

    def __init__(self, machine: Machine, store: MessageStore) -> None:
        self._machine, self._store = machine, store
        self._settle: Settle | None = None

    def open(self, settle: Settle) -> None:
        """See CommitLane.open."""
        self._settle = settle

    def put(self, group: Sequence[Append]) -> None:
        """See CommitLane.put."""

        def settled(outcome: Any) -> None:
            assert self._settle is not None
            gone: Answers = [StorageUnavailable("the host is no more")] * len(group)
            self._settle(outcome.unwrap() if self._machine.alive else gone, 0.0)

        self._machine.start_strand(lambda: append_all(self._store, group), settled)

    def at_once(self, _: Append, /) -> None:
        """See CommitLane.at_once: a disk that takes its time is the harder case."""

    def close(self) -> None:
        """See CommitLane.close."""


async def _answer(work: Callable[[], Awaitable[object]], reply: Callable[[object], None]) -> None:
    try:
        reply(await work())
    except HootError as error:
        reply(error)


def _supervisor(
    session: Any, catalog: Catalog, keeper: CheckpointKeeper, sharing: Sharing, taker: StateTaker
) -> Supervisor:  # fmt: skip
    lines = Lines(cast("Any", SimulatedConnection.open), Background())
    tools = Tools(sharing.takeovers, keeper, taker, _METRICS, CONFIG, KeptLetters(), lines)
    return Supervisor(SubscriptionWatch(session, catalog), keeper, tools, CONFIG)
