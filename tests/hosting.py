"""A partition's publish side without ZooKeeper: a scripted cluster, a store that can be made to fail, and batches."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from delivery.batch import Row, encode, open_batch
from delivery.cluster.ownership import Ownership
from delivery.errors import BadVersion, CorruptRecord, HootError, MetadataUnavailable, UnknownQueue
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.partitions import NEVER_OWNED, Claim, Seen, next_owner
from delivery.metastore.records import HostRecord, QueueRecord
from delivery.metrics import Metrics
from delivery.model import QueueSettings
from delivery.publish.lane import CommitLane
from delivery.publish.pending import PendingPublish
from delivery.publish.publisher import Publisher
from delivery.storage.base import Append, PartitionKey, PartitionState
from delivery.storage.memory import MemoryDisk, MemoryStore
from delivery.storage.tail import TailCache

ME, OTHER = "this-host", "other-host"
NOBODY: Seen = (None, NEVER_OWNED)


def batch(*bodies: bytes, partition: int = 0, producer: int = 0, sequence: int = 0, topic: str = "") -> bytes:
    """A batch as a publisher sends it."""
    rows: list[Row] = [(body, None, topic, b"") for body in bodies]
    return encode(rows, partition, producer, sequence)


def queue_record(name: str = "orders", generation: str = "g1", **settings: object) -> QueueRecord:
    return QueueRecord(name, generation, 0, QueueSettings(**settings))  # type: ignore[arg-type]


class ScriptedCluster:
    """ZooKeeper's side of ownership: the queues, the owners, the live hosts and this host's session."""

    def __init__(self, *queues: QueueRecord) -> None:
        self.records = {record.name: record for record in queues or (queue_record(),)}
        self.owners: dict[tuple[str, int], tuple[OwnerInfo, int]] = {}
        self.live = {OTHER: HostRecord(OTHER, "10.0.0.2", 7000, None, 22, "1", 0)}
        self.claims = self.reads = 0
        self.silent = False
        """ZooKeeper does not answer."""
        self.current_session = 11
        self.gate: threading.Event | None = None
        """While there is one that is not set, claims wait for it in their thread."""
        self.corrupt: list[CorruptRecord] = []
        self.look: Callable[[], None] | None = None
        """How this host learns of a queue made anew, when it is asked for a generation that it does not know."""
        self.gone: set[str] = set()
        """Hosts that are registered and dead."""

    def answer(self) -> None:
        if self.silent:
            raise MetadataUnavailable("no answer")

    async def get(self, name: str, generation: str = "") -> QueueRecord:
        if name not in self.records:
            raise UnknownQueue(f"there is no queue {name!r}")
        if generation not in ("", self.records[name].generation) and self.look is not None:
            self.look()
        if generation not in ("", self.records[name].generation):
            raise UnknownQueue(f"another queue has the name {name!r}")
        return self.records[name]


class ScriptedMember:
    """This host, as long as its session is there."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster
        self.host = ME

    @property
    def session(self) -> int:
        if not self._cluster.current_session:
            raise MetadataUnavailable("no session")
        return self._cluster.current_session

    def is_gone(self, other: HostRecord) -> bool:
        return other.host in self._cluster.gone


class ScriptedDirectory:
    """The owners' records."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster

    def partition(self, queue: str, partition: int) -> Seen:
        self._cluster.reads += 1
        self._cluster.answer()
        return self._cluster.owners.get((queue, partition), NOBODY)

    def partitions(self, places: Sequence[tuple[str, int]]) -> list[Seen | CorruptRecord]:
        return [self.partition(*place) for place in places]

    def readable_hosts(self) -> tuple[list[HostRecord], list[CorruptRecord]]:
        me = HostRecord(ME, "10.0.0.1", 7000, None, self._cluster.current_session, "1", 0)
        return [me, *self._cluster.live.values()], list(self._cluster.corrupt)

    def claim(self, queue: str, partition: int, host: str, session: int, expected_version: int) -> OwnerInfo:
        current, version = self._cluster.owners.get((queue, partition), NOBODY)
        if version != expected_version:
            raise BadVersion("somebody was faster")
        claim = Claim(queue, partition, next_owner(current, host, session), version)
        if (error := self.claim_many([claim])[0]) is not None:
            raise error
        return claim.owner

    def claim_many(self, claims: Sequence[Claim]) -> list[HootError | None]:
        if claims and self._cluster.gate is not None:
            assert self._cluster.gate.wait(10)
        if claims:
            self._cluster.answer()
        return [self._claim(claim) for claim in claims]

    def _claim(self, claim: Claim) -> HootError | None:
        self._cluster.claims += 1
        place = (claim.queue, claim.partition)
        if self._cluster.owners.get(place, NOBODY)[1] != claim.version:
            return BadVersion("somebody was faster")
        self._cluster.owners[place] = (claim.owner, claim.version + 1)
        return None

    def release(self, queue: str, partition: int, epoch: int, version: int) -> None:
        if self._cluster.owners[queue, partition][1] != version:
            raise BadVersion("somebody was faster")
        self._cluster.owners[queue, partition] = (OwnerInfo("", 0, epoch), version + 1)

    def host(self, host: str) -> HostRecord | None:
        return self._cluster.live.get(host)


class FaultyStore(MemoryStore):
    """A MemoryStore that fails, or waits, when it is told to; it remembers how it was called."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        super().__init__(disk)
        self.groups: list[int] = []
        self.fail: HootError | None = None
        self.fail_open: HootError | None = None
        self.opening = threading.Event()
        """Partitions are opened when it is set; `slow` limits that to one of them."""
        self.opening.set()
        self.slow: int | None = None
        self.gate: threading.Event | None = None
        self.busy = False
        """Nothing can be done at once."""
        self.released: list[str] = []
        self.deleted: list[str] = []

    def open(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> PartitionState:
        if self.fail_open is not None:
            raise self.fail_open
        if self.slow in (None, key.partition):
            assert self.opening.wait(10)
        return super().open(key, epoch, settings)

    def append(self, group: Sequence[Append]) -> list[HootError | None]:
        if self.gate is not None:
            assert self.gate.wait(10)
        self.groups.append(len(group))
        if self.fail is not None:
            return [self.fail] * len(group)
        return super().append(group)

    def append_at_once(self, item: Append, /) -> list[HootError | None] | None:
        return None if self.busy or self.gate is not None else self.append([item])

    def release(self, key: PartitionKey) -> None:
        self.released.append(str(key))
        super().release(key)

    def delete(self, queue: str, generation: str) -> None:
        self.deleted.append(f"{queue}~{generation}")
        super().delete(queue, generation)


class Scene:
    """A publisher and what it stands on, running inside `play`."""

    def __init__(
        self, cluster: ScriptedCluster | None = None, store: FaultyStore | None = None, lane: CommitLane | None = None
    ) -> None:  # fmt: skip
        self.cluster = cluster or ScriptedCluster()
        self.store = store or FaultyStore()
        self.tail = TailCache(1 << 20)
        self.metrics = Metrics()
        self.now_ms = 1_700_000_000_000
        self.directory = ScriptedDirectory(self.cluster)
        self.ownership = Ownership(
            self.directory, self.store, self.tail, ScriptedMember(self.cluster), self.cluster, 1.0
        )
        self.publisher = Publisher(
            self.ownership, self.store, self.tail, self.metrics, commit_bytes=1 << 20, pending_bytes_max=1 << 20,
            now_ms=lambda: self.now_ms, lane=lane,
        )  # fmt: skip

    async def publish(self, *bodies: bytes, partition: int = 0, producer: int = 0, sequence: int = 0) -> object:
        """The outcome of one batch, an error as a value."""
        made = batch(*bodies, partition=partition, producer=producer, sequence=sequence)
        try:
            return await self.publisher.begin("orders", partition, made).wait()
        except HootError as error:
            return error


def play(story: Callable[[Scene], Awaitable[None]], scene: Scene | None = None, seconds: float = 20.0) -> None:
    """Run a story with its publisher and ownership running; it must end within `seconds`."""

    async def run() -> None:
        stage = scene or Scene()
        with trio.fail_after(seconds):
            async with trio.open_nursery() as nursery:
                await nursery.start(stage.ownership.run)
                await nursery.start(stage.publisher.run)
                await story(stage)
                nursery.cancel_scope.cancel()

    trio.run(run)


async def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until the condition holds."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 (of whatever makes it true, nothing tells)
            await trio.sleep(0.005)


async def pass_by(seconds: float) -> None:
    """Let that time of a MockClock pass between what goes on now and what is due then; returns when both are done.

    A clock that jumps by itself does so, too, while a thread has not been given its turn for a while. Threads are those
    of the default limiter.
    """
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    await all_done()
    clock.jump(seconds)
    await all_done()


async def all_done() -> None:
    """Wait until all tasks wait, and none for a thread."""
    threads = trio.to_thread.current_default_thread_limiter()
    await wait_all_tasks_blocked()
    while threads.borrowed_tokens:
        await wait_all_tasks_blocked(0.005)


async def outcome(pending: PendingPublish) -> object:
    """How it ended, an error as a value."""
    with contextlib.suppress(HootError):
        await pending.wait()
    return pending.outcome


async def bodies_in(scene: Scene, partition: int = 0) -> list[bytes]:
    """Everything a reader finds, through the tail cache and the store alike."""
    owned = await scene.ownership.acquire("orders", partition)
    found: list[bytes] = []
    after = 0
    while (chunk := await owned.read(after, 1)) is not None:
        found += open_batch(chunk.data).bodies()
        after = chunk.last_id
    return found
