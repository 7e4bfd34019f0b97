"""What is asked of the region hosts: before anything is read which partitions there are and what they hold."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec

from delivery.client.calls import CALL_SECONDS, Calls, count_messages, partition_info
from delivery.client.forgetting import Forgetting
from delivery.client.hosts import Owners
from delivery.client.managing import Manager, Managers
from delivery.errors import HootError, InvalidRequest, UnknownQueue
from delivery.messaging.transactions import read_snapshot
from delivery.metastore.catalog import Catalog
from delivery.metastore.live import Address
from delivery.metastore.records import QueueRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import Isolation, check_partition
from delivery.rpc.pool import Pool
from delivery.spark.late import LateCatalog
from delivery.spark.options import ReadOptions
from delivery.spark.ranges import Held, Place, Span, begin, divided, end, pieces
from delivery.spark.tables import check_tables

ASKED_AT_ONCE: Final = 8
LOCATED_AT_ONCE: Final = 1000
"""Ids that are asked for: what hosts answer at most."""
PATIENCE_SECONDS: Final = 120.0
"""What is under way waits so long for a host or ZooKeeper that is away; what begins does not."""
PAUSE_SECONDS: Final = 0.5
_NOTHING: Final[Mapping[Place, int]] = {}
_NOBODY: Final[Mapping[Place, Address]] = {}

T = TypeVar("T")
R = TypeVar("R")


class Engine:
    """Region hosts as a reader or writer sees them. Blocking; for one thread, `publish` apart."""

    def __init__(self, catalog: Callable[[], Catalog], calls: Calls, manager: Calls, patience: float) -> None:
        """`calls` go to owners, those of `manager` to the host that manages transactions."""
        self._opened, self._calls, self._manager = catalog, calls, manager
        self._seconds = max(CALL_SECONDS, patience)

    @property
    def catalog(self) -> Catalog:
        """What ZooKeeper knows. Raises MetadataUnavailable."""
        return self._opened()

    @property
    def transactions(self) -> Manager:
        """The transaction service."""
        return Manager(self._manager, Forgetting(self.catalog, self._calls).before_ms)

    def places(self, options: ReadOptions) -> list[Place]:
        """The partitions that the options choose. Raises UnknownQueue, UnknownPartition, MetadataUnavailable."""
        names: Iterable[str] = options.names
        if options.pattern:
            wanted = re.compile(options.pattern)
            names = sorted(name for name in self.catalog.queues() if wanted.fullmatch(name))
        found = []
        for name in names:
            count = self.catalog.queue(name).settings.partitions
            chosen = options.assigned.get(name, range(count))
            found += [(name, check_partition(number, count, name)) for number in chosen]
        return found

    def held(
        self, places: Iterable[Place], isolation: Isolation | None = None, known: Mapping[Place, int] = _NOTHING
    ) -> dict[Place, Held]:  # fmt: skip
        """What each partition holds; for who asks for what is committed up to the first message in progress.

        All up to `known` was read before.
        """
        found = self._all_held(places)
        view = self.view(isolation)  # last: whatever is stored by now, and in progress, had begun before
        if view is None or not read_snapshot(view).in_progress:
            return found

        def ask(place: Place) -> int:
            return int(self.call(*place, "decidedUpTo", *place, known.get(place, 0), found[place].last_id, view))

        return {place: msgspec.structs.replace(found[place], last_id=last) for place, last in for_each(found, ask)}

    def view(self, isolation: Isolation | None) -> bytes | None:
        """What is committed now, for who asks for that alone."""
        if isolation != "committed":
            return None
        return self.transactions.view()

    def _all_held(self, places: Iterable[Place]) -> dict[Place, Held]:
        def ask(place: Place) -> Held:
            info = partition_info(self.call, *place)
            return Held(info.firstId, info.lastId, info.messages, info.bytes)

        return dict(for_each(places, ask))

    def counted(self, spans: Sequence[Span], *, empty: bool = False) -> list[Span]:
        """The spans with their numbers of messages; those without any only if `empty` ones are wanted as well."""

        def ask(span: Span) -> int:
            return count_messages(self.call, span.queue, span.partition, span.after, span.until)

        asked = [span for span in spans if span.after < span.until]
        return [msgspec.structs.replace(span, messages=count) for span, count in for_each(asked, ask) if count or empty]

    def located(self, span: Span, counts: Sequence[int]) -> list[int]:
        """The ids up to which the span has so many messages."""
        place = (span.queue, span.partition)
        return [
            number
            for at in range(0, len(counts), LOCATED_AT_ONCE)
            for number in self.call(
                *place, "locateMessages", *place, span.after, span.until, counts[at : at + LOCATED_AT_ONCE]
            )
        ]

    def queue(self, name: str) -> QueueRecord:
        """A queue. Raises UnknownQueue, MetadataUnavailable."""
        return self.catalog.queue(name)

    def publish(self, queue: QueueRecord, partition: int, batch: bytes) -> None:
        """Have a batch stored that its producer and sequence keep from being stored twice. From any thread.

        Raises what the owner refuses it with; after PATIENCE_SECONDS what kept it from being stored.
        """
        place = (queue.name, partition)
        self._calls.call(*place, "publish", *place, batch, queue.generation, timeout=PATIENCE_SECONDS)

    def owner(self, place: Place) -> Address | None:
        """Who was last asked about a partition, if anybody was."""
        return self._calls.known(*place)

    def call(self, queue: str, partition: int, method: str, *args: object) -> Any:
        """A call of the partition's owner. Raises what it refuses with, NoHost, HostUnreachable."""
        return self._calls.call(queue, partition, method, *args, timeout=self._seconds)

    def tasks(self, spans: Sequence[Span], tasks_min: int, *, empty: bool = False) -> list[Span]:
        """The spans, large ones divided; `empty`: see `counted`."""
        counted = self.counted(spans, empty=empty)
        todo = list(zip(counted, pieces(counted, tasks_min), strict=True))
        return [
            part
            for (span, counts), ids in for_each(todo, lambda one: self.located(*one))
            for part in divided(span, ids, counts)
        ]


@contextmanager
def engine(zookeeper: str, patience: float = 0.0, known: Mapping[Place, Address] = _NOBODY) -> Iterator[Engine]:
    """An engine for as long as the context lasts; `patience` is for a ZooKeeper, and hosts, that are away.

    Who knows owners of partitions gives them along: ZooKeeper is asked then when one of them is not the owner any more.
    Raises MetadataUnavailable.
    """
    catalog, pool = LateCatalog(lambda: patiently(lambda: _session(zookeeper), patience)), Pool()
    owners = Owners(catalog)
    for place, address in known.items():
        owners.learn(*place, address)
    try:
        if not known:
            catalog.get()
        yield Engine(catalog.get, Calls(owners, pool), Calls(Managers(catalog), pool), patience)
    finally:
        pool.close()
        catalog.close()


def _session(zookeeper: str) -> ZooKeeperClient:
    session = ZooKeeperClient(zookeeper)
    session.start()
    return session


def patiently(attempt: Callable[[], T], seconds: float) -> T:
    """What `attempt` gives, tried again for so long while it raises what may go away; its last error then."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except HootError as error:
            if not error.retryable or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_SECONDS)


def plan(engine: Engine, options: ReadOptions) -> list[Span]:
    """What a batch reads: each partition between its edges, as it is now."""
    places = engine.places(options)
    if not places and options.pattern:
        raise UnknownQueue(f"no queue's name is matched by {options.pattern!r}")
    check_named(options, places)
    check_short_cut(engine, options)
    held = engine.held(places, options.isolation)
    strict = options.fail_on_loss
    return [
        Span(*place, begin(options.start, place, one, strict=strict), end(options.end, place, one, strict=strict))
        for place, one in held.items()
    ]


def check_short_cut(engine: Engine, options: ReadOptions) -> None:
    """Raises InvalidRequest where tables are to be read that are not there, ConfigError, StorageUnavailable."""
    if options.hbase:
        names = {queue for queue, _ in engine.places(options)}
        check_tables(options, [engine.queue(name) for name in sorted(names)])


def check_named(options: ReadOptions, places: Iterable[Place]) -> None:
    """Raises InvalidRequest for offsets of partitions that are not read: they are a mistake."""
    there = set(places)
    for edge in (options.start, options.end):
        for queue, numbers in edge.each.items():
            for number in numbers:
                if (queue, number) not in there:
                    raise InvalidRequest(f"an offset names {queue}/{number}, which the read does not include")


def for_each(asked: Iterable[T], ask: Callable[[T], R]) -> list[tuple[T, R]]:
    """Each with its answer, several asked at once; the first error is raised."""
    todo = list(asked)
    with ThreadPoolExecutor(ASKED_AT_ONCE) as threads:
        return list(zip(todo, threads.map(ask, todo), strict=True))


def stream_begin(options: ReadOptions, held: Mapping[Place, Held]) -> dict[Place, int]:
    """Where a new stream begins. Raises InvalidRequest as `check_named` and `begin`."""
    check_named(options, held)
    return {place: begin(options.start, place, one, strict=options.fail_on_loss) for place, one in held.items()}
