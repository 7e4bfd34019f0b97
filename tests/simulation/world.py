"""The world of one run: a ZooKeeper, a disk, a network, and the hosts, subscribers and publishers on it.

All of its size and shape comes from the seed: one or two partitions, two or three hosts, one or two subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
import trio

from delivery.client.hosts import Owners
from delivery.metastore.catalog import Catalog
from delivery.metastore.groups import Kind
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import QueueRecord, SubscriptionRecord
from delivery.metastore.tables.zookeeper import ZooKeeperMetaStore
from delivery.model import QueueSettings
from delivery.storage.base import PartitionKey
from tests.simulation.disk import Disk
from tests.simulation.hbase import HBaseDisk
from tests.simulation.host import SESSION_SECONDS, SimulatedHost
from tests.simulation.kernel import Kernel
from tests.simulation.machine import Machine
from tests.simulation.network import Network
from tests.simulation.operator import Desk, SimulatedOperator
from tests.simulation.publisher import QUEUE, SimulatedPublisher
from tests.simulation.subscriber import Script, SimulatedSubscriber
from tests.simulation.zookeeper import ZooKeeperServer
from tests.znodes import FakeZNodes

GENERATION: Final = "g1"
RETRY: Final = RetryPolicy(first_seconds=0.2)
BY_KEY_FROM: Final = 1_000_000
"""Seeds from here on have subscriptions with order="key", all messages without one: each is its own."""
GROUPS_FROM: Final = 2_000_000
"""Seeds from here on have several subscribers for each subscription, which come while messages flow."""
KEY_SHARED_FROM: Final = 3_000_000
"""Seeds from here on have several, too, who share each partition by key."""
REPLAYS_FROM: Final = 4_000_000
"""Seeds from here on have an operator who seeks, takes snapshots and goes back to them, replays and promotes."""
HBASE_FROM: Final = 5_000_000
"""Seeds from here on have the messages in HBase."""
BY_HAND_FROM: Final = 6_000_000
"""Seeds from here on have subscribers that acknowledge by hand, with a limit, and not all of it."""
RESTART_SECONDS: Final = 1.5
WORK_SECONDS: Final = 5.5


class World:
    """Everything that is simulated."""

    def __init__(self, seed: int) -> None:
        self.kernel = kernel = Kernel(seed)
        self.server = ZooKeeperServer(kernel, SESSION_SECONDS)
        self.network = Network(kernel)
        self.disk = HBaseDisk(kernel) if HBASE_FROM <= seed < BY_HAND_FROM else Disk(kernel)
        self.partitions = 1 + kernel.chance(0.4)
        self.by_key = BY_KEY_FROM <= seed < GROUPS_FROM
        operated = REPLAYS_FROM <= seed < HBASE_FROM
        kind: Kind = "exclusive"
        self._members = [""]
        if GROUPS_FROM <= seed < REPLAYS_FROM:
            kind = "failover" if kernel.chance(0.2) else "shared"
            kind = "key_shared" if seed >= KEY_SHARED_FROM else kind
            self.by_key = kernel.chance(0.3)
            self._members = ["a", "b", "c"][: 2 + kernel.chance(0.5)]
        by_hand = seed >= BY_HAND_FROM
        if operated or by_hand:
            self.by_key = kernel.chance(0.3)
        retry = msgspec.structs.replace(RETRY, order="key") if self.by_key else RETRY
        if by_hand:
            retry = msgspec.structs.replace(retry, ack_timeout_seconds=0.5, longest_seconds=1)
        self.subscriptions = [
            SubscriptionRecord(
                name=name, queue=QUEUE, generation=GENERATION, created_ms=1,
                starts=dict.fromkeys(range(self.partitions), 0), all_partitions=True, topics=topics, retry=retry,
                kind=kind,
            )
            for name, topics in (("all", ()), ("reds", ("red",)))[: 1 + kernel.chance(0.4)]
        ]  # fmt: skip
        slow = 0.5 if len(self._members) > 1 else 0.03  # else nothing would be under way when a partition moves
        self.in_any_order = self.by_key or by_hand or kind == "key_shared"
        self.script = Script(failing=0.08 if self.by_key else 0.01, dying=0.003, slow=slow, by_hand=by_hand)
        zk = FakeZNodes(self.server.tree)
        self.queue = QueueRecord(QUEUE, GENERATION, 0, QueueSettings(partitions=self.partitions))
        self.catalog = Catalog(zk, ZooKeeperMetaStore(zk, zk))
        self._lay_out()
        self.hosts: list[SimulatedHost] = []
        self.subscribers: list[SimulatedSubscriber] = []
        owners = Owners(self.catalog, kernel.random)
        self.publishers = [
            SimulatedPublisher(kernel, f"publisher{n}", self.network, owners, self.queue)
            for n in range(1 + kernel.chance(0.5))
        ]
        self.desk = Desk(kernel, self._attach, self._retire, WORK_SECONDS) if operated else None
        self.operators: list[SimulatedOperator] = []
        self.retired: set[str] = set()
        """Shadows that were promoted."""
        self._nursery: trio.Nursery | None = None
        self._machines = 0

    def _lay_out(self) -> None:
        """What ZooKeeper holds at the beginning."""
        self.catalog.ensure_layout()
        self.catalog.managers.queues.create_queue(self.queue)
        for record in self.subscriptions:
            self.catalog.create_subscription(record)

    def key(self, partition: int) -> PartitionKey:
        """A partition's name on the disk."""
        return PartitionKey(QUEUE, GENERATION, partition)

    async def run(self, until: Callable[[], bool]) -> None:
        """Start everything, and end everything as soon as `until` says so, which is asked from WORK_SECONDS on."""
        over = trio.Event()
        async with trio.open_nursery() as self._nursery:
            for publisher in self.publishers:
                publisher.start()
            for slot in range(2 + self.kernel.chance(0.3)):
                self._start_host(slot)
            for record in self.subscriptions:
                self._start_members(record)
            if self.desk is not None:
                self._start_operator(self.desk)
            self.kernel.later(WORK_SECONDS, partial(self._look, until, over))
            try:
                await over.wait()
            finally:
                for machine in list(self.machines()):
                    machine.crash()
                self._nursery.cancel_scope.cancel()

    def machines(self) -> Iterator[Machine]:
        """All that live now."""
        yield from self.hosts
        yield from self.subscribers
        yield from self.publishers
        yield from self.operators

    def _look(self, until: Callable[[], bool], over: trio.Event) -> None:
        if until():
            over.set()
        else:
            self.kernel.later(0.1, partial(self._look, until, over))

    def _start_host(self, slot: int) -> None:
        self._machines += 1
        host = SimulatedHost(self.kernel, f"host{slot}.{self._machines}", 7000 + slot, self.network, self.server)
        self._start(host, self.hosts, host.run, self.disk, partial(self._start_host, slot))

    def _start_operator(self, desk: Desk) -> None:
        self._machines += 1
        operator = SimulatedOperator(self.kernel, f"operator.{self._machines}", self.network, self.server, desk)
        self._start(operator, self.operators, operator.run, desk, partial(self._start_operator, desk))

    def _attach(self, record: SubscriptionRecord) -> None:
        """A subscriber for a shadow, unless there was one."""
        if record.name not in {one.name for one in self.subscriptions}:
            self.subscriptions.append(record)
            self._start_subscriber(record, "")

    def _retire(self, name: str) -> None:
        """What was promoted has no subscriber any more."""
        self.retired.add(name)
        for subscriber in self.subscribers:
            if subscriber.name.partition(".")[0] == name:
                self.kernel.later(0.0, subscriber.crash)  # not in the strand of the operator

    def _start_members(self, record: SubscriptionRecord) -> None:
        first, *others = self._members
        self._start_subscriber(record, first)
        for member in others:
            comes = partial(self._start_subscriber, record, member)
            self.kernel.later(self.kernel.between(0.0, WORK_SECONDS - 0.5), comes)

    def _start_subscriber(self, record: SubscriptionRecord, member: str) -> None:
        if record.name in self.retired:
            return
        self._machines += 1
        name, port = f"{record.name}.{self._machines}", 9000 + self._machines
        subscriber = SimulatedSubscriber(self.kernel, name, port, self.network, self.server, self.script, member=member)
        again = partial(self._start_subscriber, record, member)
        self._start(subscriber, self.subscribers, subscriber.run, record, again)

    def _start(self, machine: Any, group: list[Any], run: Any, what: object, again: Callable[[], None]) -> None:
        """A machine, and another one in its place some time after its end."""
        group.append(machine)

        def over() -> None:
            group.remove(machine)
            self.kernel.note("over", machine.name)
            self.kernel.later(self.kernel.between(0.05, RESTART_SECONDS), restart)

        def restart() -> None:
            assert self._nursery is not None
            if not self._nursery.cancel_scope.cancel_called:
                again()

        machine.on_crash.append(over)
        assert self._nursery is not None
        self._nursery.start_soon(run, what)
