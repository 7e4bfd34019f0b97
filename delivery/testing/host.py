"""The region host of the engine in a test: the real supervisor, deliveries and checkpoints over metadata in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from delivery.batch import encode
from delivery.config import HostConfig, software_version
from delivery.dispatch.background import Background
from delivery.dispatch.checkpoints import CheckpointKeeper
from delivery.dispatch.deadletters import DeadLetter, headers_of
from delivery.dispatch.delivery import Tools
from delivery.dispatch.lines import Lines
from delivery.dispatch.plan import Attached
from delivery.dispatch.supervisor import Supervisor
from delivery.dispatch.taking import StateTaker
from delivery.dispatch.watch import Place, SubscriptionWatch
from delivery.errors import UnknownQueue
from delivery.metastore.catalog import Catalog
from delivery.metastore.policy import dead_letter_queue
from delivery.metastore.records import HostRecord, QueueRecord
from delivery.model import BODY_BYTES_LIMIT, QueueSettings, encode_headers
from delivery.testing.partitions import LocalPartitions
from delivery.testing.wire import Wire
from delivery.testing.znodes import MemorySession

_DAY: Final = 86_400.0
CONFIG: Final = HostConfig(reconcile_seconds=_DAY)
"""Watches in memory lose nothing, so that looking again without a hint is only work."""


class LocalLetters:
    """Stores dead letters in the engine."""

    def __init__(self, catalog: Catalog, partitions: LocalPartitions) -> None:
        self._catalog, self._partitions = catalog, partitions

    async def store(self, letters: Sequence[DeadLetter]) -> None:
        """See DeadLetters.store."""
        for letter in letters:
            message = letter.message
            queue = dead_letter_queue(message.queue, letter.subscription)
            row = (message.body, message.key, message.topic, encode_headers(headers_of(letter)))
            batch = encode([row], 0)
            try:
                self._partitions.publish(queue, 0, batch)
            except UnknownQueue:
                self._catalog.create_queue(queue, QueueSettings(body_bytes_max=BODY_BYTES_LIMIT))
                self._partitions.publish(queue, 0, batch)


class ExactWatch(SubscriptionWatch):
    """What is attached, with pauses that are as long as the policy says: without jitter."""

    def _attached(self, queues: dict[str, QueueRecord], names: Mapping[Place, Sequence[str]]) -> Iterable[Attached]:
        for one in super()._attached(queues, names):
            retry = msgspec.structs.replace(one.subscription.retry, jitter=0)
            exact = msgspec.structs.replace(one.subscription, retry=retry)
            yield msgspec.structs.replace(one, subscription=exact)


class NoCounters:
    """The engine in a test has no metrics."""

    def pushed(self, queue: str, subscription: str, messages: int, size: int) -> None:
        """See dispatch.sender.Counters."""

    def acknowledged(self, queue: str, subscription: str, messages: int) -> None:
        """See dispatch.sender.Counters."""

    def failed(self, queue: str, subscription: str) -> None:
        """See dispatch.sender.Counters."""


class LocalHost:
    """Delivers as long as `run` runs. Made in the loop."""

    def __init__(self, session: MemorySession, catalog: Catalog, partitions: LocalPartitions, wire: Wire) -> None:
        self._catalog, self._session = catalog, session
        self.keeper = CheckpointKeeper(catalog, CONFIG, lambda _queue, _partition: None)
        taker = StateTaker(catalog, lambda _queue, _partition: None)
        letters = LocalLetters(catalog, partitions)
        tools = Tools(partitions, self.keeper, taker, NoCounters(), CONFIG, letters, Lines(wire.connect, Background()))
        self._supervisor = Supervisor(ExactWatch(session, catalog), self.keeper, tools, CONFIG)

    async def run(self, now_ms: int) -> None:
        """Serve until cancelled."""
        record = HostRecord("test-engine", "test-engine", 1, None, self._session.session_id, software_version(), now_ms)
        self._catalog.register_host(record)
        await self._supervisor.run()
