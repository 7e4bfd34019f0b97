"""For the tests of single faults: hosts on a ZooKeeper that is there, each behind a proxy, with a trap and a clock."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Self

from delivery.client import Client, Queue, connect
from delivery.errors import HootError, UnknownSubscription
from delivery.ids import MessageId
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.records import OwnerInfo
from delivery.rpc.blocking import BlockingConnection
from subscriber import Message, Subscriber
from tests.chaos.children import Child, Keeper, serve, set_clock
from tests.chaos.ports import new_port
from tests.chaos.proxy import HEALTHY, Faults, Proxy
from tests.integration.background import Background
from tests.integration.embedded import NEVER, eventually

QUEUE = "orders"
SESSION_SECONDS = 3.0
TAKEOVER_SECONDS = SESSION_SECONDS + 5.0
"""Within which another host must have the partition of one that is gone (row 1 of the fault table)."""
PUT_SECONDS = 40.0
"""The timeout of puts while faults are on: none of those tried here may make one fail."""
LOOPBACK, FOR_CLIENTS = "127.0.0.1", "127.0.0.4"


class Host:
    """One `hoot serve`; its ways to ZooKeeper and from clients lead through the proxy."""

    def __init__(self, stage: Stage, name: str, own: str, settings: tuple[str, ...]) -> None:
        self.name, self._stage = name, stage
        self.port = new_port()
        self.trap = stage.folder / f"{name}.trap"
        self._clock = stage.folder / f"{name}.clock"
        self.step_clock(0.0)
        address, _, folder = stage.zookeeper.partition("/")
        port = int(address.rpartition(":")[2])
        self.zookeeper_leg = stage.proxy.add(f"{name}.zookeeper", own, (LOOPBACK, port))
        stage.proxy.add(f"{name}.clients", FOR_CLIENTS, (LOOPBACK, self.port))
        options = [word for setting in settings for word in ("--set", setting)]
        command = serve(f"{own}:{port}/{folder}", stage.folder / "data", self.port, SESSION_SECONDS, *options)
        self.process = Child(
            name, stage.keeper, stage.folder / f"{name}.log", lambda _: command,
            HOOT_CHAOS_CLOCK=str(self._clock), HOOT_CHAOS_TRAP=str(self.trap),
        )  # fmt: skip

    @property
    def id(self) -> str | None:
        """As it is registered now; None when it is not."""
        return next((one.host for one in self._stage.catalog.hosts() if one.port == self.port), None)

    def start(self) -> Self:
        """Start it, or start it again, and wait until it is registered anew."""
        before = self.id
        self.process.start()
        eventually(lambda: self.id not in (None, before), f"{self.name} is registered", 30)
        return self

    def set_trap(self, action: str, moment: str) -> None:
        """At its next write (see shim/sitecustomize.py)."""
        draft = self.trap.with_suffix(".draft")
        draft.write_text(f"{action} {moment}")
        draft.rename(self.trap)

    def step_clock(self, seconds: float) -> None:
        """From now on its wall clock is off by so much."""
        set_clock(self._clock, seconds)

    def stop_clock(self) -> int:
        """From now on its wall clock stands; at these milliseconds since 1970."""
        now_ms = time.time_ns() // 1_000_000
        set_clock(self._clock, 0.0, stands_at_ns=now_ms * 1_000_000)
        return now_ms

    def disturb(self, side: str, faults: Faults = HEALTHY) -> None:
        """Set the faults of its way to `zookeeper` or from `clients`."""
        self._stage.proxy.set(f"{self.name}.{side}", faults)

    def connect(self, *, through_proxy: bool = False) -> BlockingConnection:
        """A connection to this very host."""
        return BlockingConnection(FOR_CLIENTS if through_proxy else LOOPBACK, self.port, call_deadline=3.0)


class Stage:
    """Hosts that share a folder, and a queue of one partition; a context manager."""

    def __init__(self, folder: Path, zookeeper: str, catalog: Catalog) -> None:
        self.folder, self.zookeeper, self.catalog = folder, zookeeper, catalog
        self.proxy, self.keeper = Proxy(), Keeper()
        self.hosts: list[Host] = []
        self._stack = contextlib.ExitStack()

    def host(self, *settings: str) -> Host:
        """One more, running."""
        number = len(self.hosts) + 1
        host = Host(self, f"host-{number}", f"127.0.0.2{number}", settings)
        self._stack.callback(host.process.close)
        self.hosts.append(host)
        return host.start()

    def owner(self) -> OwnerInfo:
        """Of partition 0."""
        record, _ = self.catalog.partition(QUEUE, 0)
        assert record is not None
        return record

    def owns(self, host: Host) -> bool:
        """Whether that is said to be this host."""
        with contextlib.suppress(HootError):
            return host.id is not None and self.owner().host == host.id
        return False

    def position(self, subscription: str) -> int:
        """The checkpoint of partition 0; 0 before there is one."""
        with contextlib.suppress(UnknownSubscription):
            state = self.catalog.states(QUEUE, subscription).get(0)
            return 0 if state is None else state.position
        return 0

    def queue(self) -> Queue:
        """A queue of one partition, made by the first call."""
        client = self.client()
        return client.queue(QUEUE) if QUEUE in client.queues() else client.create_queue(QUEUE, partitions=1)

    def client(self) -> Client:
        """Connected, and closed at the end."""
        return self._stack.enter_context(connect(self.zookeeper))

    def listen(self, advertise: str = LOOPBACK, port: int = 0) -> Listened:
        """A subscriber to the queue, attached."""
        return self._stack.enter_context(Listened(self, advertise, port))

    def __enter__(self) -> Self:
        self._stack.enter_context(self.keeper)
        self._stack.enter_context(self.proxy)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Listened:
    """A subscriber of this process, and what it was called with."""

    def __init__(self, stage: Stage, advertise: str, port: int) -> None:
        self.messages: list[Message] = []
        self.took: list[float] = []
        """Of each callback the seconds since its message's id was given."""
        self.gate = threading.Event()
        self.gate.set()
        self._subscriber = Subscriber("listener", zookeeper=stage.zookeeper, advertise=advertise, port=port)
        self._subscriber.subscribe(QUEUE, start="earliest", listener=self._called)

    def _called(self, message: Message) -> None:
        self.took.append(time.time() - MessageId(message.number).timestamp_ms / 1000)
        self.messages.append(message)
        self.gate.wait(60)

    @property
    def ids(self) -> list[int]:
        """Of all callbacks, in order."""
        return [message.number for message in list(self.messages)]

    def has_all(self, ids: Iterable[int]) -> None:
        """Wait until all of them were called back."""
        wanted = set(ids)
        eventually(lambda: wanted <= set(self.ids), f"{len(wanted)} messages at the callback", 30)

    def check(self, stored: list[int]) -> int:
        """Wait until all was called back; assert that no callback skips a message, and give how many came again.

        By a rewind the next one may be an earlier one.
        """
        self.has_all(stored)
        place = {number: order for order, number in enumerate(stored)}
        for before, after in pairwise(self.ids):
            assert place[after] <= place[before] + 1, f"{after} came after {before}"
        return sum(times - 1 for times in Counter(self.ids).values())

    def __enter__(self) -> Self:
        self._subscriber.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._subscriber.stop()


class Publishing(Background):
    """Puts one message after another until the block ends; the ids are then `stored`, in order."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue
        self.stored: list[int] = []

    def more(self, count: int, seconds: float = 30.0) -> None:
        """Wait until that many more are stored."""
        least = len(self.stored) + count
        eventually(lambda: len(self.stored) >= least or self.error is not None, f"{count} more are stored", seconds)
        assert self.error is None, self.error

    def work(self) -> None:
        while not self._stop.is_set():
            self.stored.append(int(self._queue.put(b"%d" % len(self.stored), timeout=PUT_SECONDS).id))
            NEVER.wait(0.005)


def scanned(queue: Queue) -> list[Message]:
    """All messages that are stored now."""
    with queue.scanner() as scanner:
        return list(scanner)


def scanned_ids(queue: Queue) -> list[int]:
    """Theirs."""
    return [message.number for message in scanned(queue)]
