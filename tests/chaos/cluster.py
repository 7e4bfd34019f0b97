"""All that runs in a chaos run: the ensemble, the hosts, who publishes and who listens, and the proxy between them.

    host n      -> ZooKeeper      127.0.0.1n   legs `host-n.zookeeper-m`
    publishers  -> host n         127.0.0.2    legs `host-n.clients`
    hosts       -> subscriber     127.0.0.3    legs `<subscriber>`

Publishers, subscribers and the watching test itself have their own direct way to ZooKeeper. Hosts share a data folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from delivery.client import connect
from delivery.errors import HootError
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.records import HostRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.chaos import listening, publishing, role, tailing
from tests.chaos.children import Child, Keeper, serve, set_clock
from tests.chaos.ensemble import Ensemble
from tests.chaos.ports import new_port
from tests.chaos.proxy import Faults, Proxy
from tests.integration.embedded import eventually

QUEUE = "orders"
BUSIEST = "busiest"
"""In place of a host's name: the one that owns most partitions when it is struck."""
FOR_PUBLISHERS, FOR_HOSTS = "127.0.0.2", "127.0.0.3"
LOOPBACK = "127.0.0.1"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How large a run is, and the settings that its invariants need to know."""

    hosts: int = 3
    partitions: int = 6
    session_seconds: float = 4.0
    window_messages: int = 1000
    rate: float = 150.0
    """Puts a second of each batching publisher."""


MIB = 1 << 20
HOST_SETTINGS = {
    "tail_cache_bytes": 8 * MIB, "publish_bytes_max": 16 * MIB, "window_bytes": MIB // 2, "buffer_bytes": MIB // 4,
}  # fmt: skip
"""Of each host, besides `window_messages`: so small that a leak would be seen (see limits)."""


class Listens(msgspec.Struct, frozen=True):
    """One subscription."""

    name: str
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] | None = None
    pause: float = 0.0
    hiccup: float = 0.0
    """See listening.Orders."""

    def wants(self, partition: int, topic: str) -> bool:
        """Whether a message is for it."""
        return (not self.topics or topic in self.topics) and (self.partitions is None or partition in self.partitions)


SUBSCRIPTIONS = (
    Listens("whole", hiccup=0.5),
    Listens("filtered", topics=("a",)),
    Listens("evens", partitions=(0, 2, 4), pause=0.004),
)
CHURN = Listens("churn")
BATCHING, IMPATIENT, DIRECT = "batching", "impatient", "direct"


class Cluster:
    """The processes of one run, by name. `run` starts and ends them."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.folder, self.shape = folder, shape
        self.histories = folder / "histories"
        self.logs = folder / "logs"
        for path in (self.histories, self.logs):
            path.mkdir(parents=True, exist_ok=True)
        self.ensemble = Ensemble(folder)
        self.proxy = Proxy()
        self._keeper = Keeper()
        self.host_ports = {f"host-{number}": new_port() for number in range(1, shape.hosts + 1)}
        self.subscriber_ports = {one.name: new_port() for one in (*SUBSCRIPTIONS, CHURN)}
        self.hosts: dict[str, Child] = {}
        self.publishers: dict[str, Child] = {}
        self.subscribers: dict[str, Child] = {}
        self.tail: Child | None = None
        self.churn: Child | None = None
        self._catalog: Catalog | None = None

    @property
    def address(self) -> str:
        """Of ZooKeeper, by the direct way."""
        return self.ensemble.address

    @property
    def catalog(self) -> Catalog:
        """What ZooKeeper holds, by the direct way."""
        assert self._catalog is not None
        return self._catalog

    def children(self) -> list[Child]:
        """All but ZooKeeper."""
        others = [one for one in (self.tail, self.churn) if one is not None]
        return [*self.hosts.values(), *self.publishers.values(), *self.subscribers.values(), *others]

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Everything is up inside, and nothing is left after."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._keeper)
            stack.enter_context(self.proxy)
            stack.enter_context(self.ensemble)
            stack.callback(self._close)
            self._make_hosts()
            for host in self.hosts.values():
                host.start()
            self._catalog = open_catalog(stack.enter_context(ZooKeeperClient(self.address, deadline=2.0)))
            eventually(lambda: len(self.live_hosts()) == len(self.hosts), "all hosts are registered", 60)
            with connect(self.address) as client:
                client.create_queue(QUEUE, partitions=self.shape.partitions)
            self._make_clients()
            yield

    def step_clock(self, host: str, seconds: float) -> None:
        """From now on the wall clock of a host is off by so much."""
        set_clock(self._clock(host), seconds)

    def _clock(self, host: str) -> Path:
        return self.folder / f"{host}.clock"

    def disturb(self, leg: str, faults: Faults) -> None:
        """Set the faults of all legs whose name begins so."""
        for name in self.proxy.legs:
            if name.startswith(leg):
                self.proxy.set(name, faults)

    def live_hosts(self) -> dict[str, HostRecord]:
        """The registered hosts by our names; empty when ZooKeeper does not answer."""
        names = {port: name for name, port in self.host_ports.items()}
        with contextlib.suppress(HootError):
            return {names[record.port]: record for record in self.catalog.hosts()}
        return {}

    def owned(self) -> dict[str, set[int]]:
        """The partitions of each host; none when ZooKeeper does not answer."""
        found: dict[str, set[int]] = {name: set() for name in self.host_ports}
        with contextlib.suppress(HootError):
            names = {record.host: name for name, record in self.live_hosts().items()}
            for partition, owner in (self.catalog.owners(QUEUE) if names else {}).items():
                if owner.host in names:
                    found[names[owner.host]].add(partition)
        return found

    def history(self, name: str) -> Path:
        """The file of a publisher, a subscriber, the tail, the watcher or the nemesis."""
        return self.histories / name

    def _make_hosts(self) -> None:
        chosen = {"window_messages": self.shape.window_messages, **HOST_SETTINGS}
        settings = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
        for number, (name, port) in enumerate(self.host_ports.items()):
            own = f"127.0.0.1{number + 1}"
            for node in self.ensemble.nodes:
                self.proxy.add(f"{name}.zookeeper-{node.number}", own, (LOOPBACK, node.client_port))
            self.proxy.add(f"{name}.clients", FOR_PUBLISHERS, (LOOPBACK, port))
            self.step_clock(name, 0.0)
            zookeeper = ",".join(f"{own}:{node.client_port}" for node in self.ensemble.nodes)
            command = serve(
                zookeeper, self.folder / "data", port, self.shape.session_seconds,
                "--grace", "5s", *settings,
            )  # fmt: skip
            self.hosts[name] = self._child(name, command, HOOT_CHAOS_CLOCK=str(self._clock(name)))

    def _make_clients(self) -> None:
        detour = f"{FOR_PUBLISHERS}:{','.join(map(str, self.host_ports.values()))}"
        rate = self.shape.rate
        for name, each, timeout in ((BATCHING, rate, 20.0), (IMPATIENT, rate, 1.5), (DIRECT, rate / 3, 10.0)):
            orders = partial(self._publishes, name, each, timeout)
            self.publishers[name] = self._child(name, orders, HOOT_CHAOS_DETOUR=detour)
        for one in SUBSCRIPTIONS:
            self.subscribers[one.name] = self._listener(one)
        self.churn = self._listener(CHURN)
        tail = role.arguments(tailing.Orders(self.address, QUEUE, str(self.history("tail"))))
        self.tail = self._child("tail", tail, HOOT_CHAOS_DETOUR=detour)

    def _publishes(self, name: str, rate: float, timeout: float, incarnation: int) -> list[str]:
        file = self.history(f"publisher-{name}.{incarnation}")
        return role.arguments(publishing.Orders(
            self.address, QUEUE, f"{name}.{incarnation}", str(file), rate, timeout, direct=name == DIRECT,
        ))  # fmt: skip

    def _listener(self, one: Listens) -> Child:
        port = self.subscriber_ports[one.name]
        self.proxy.add(one.name, FOR_HOSTS, (LOOPBACK, port))
        orders = listening.Orders(
            self.address, QUEUE, one.name, str(self.history(f"subscriber-{one.name}")), port, FOR_HOSTS,
            list(one.topics), None if one.partitions is None else list(one.partitions), one.pause, one.hiccup,
            churn=one is CHURN,
        )  # fmt: skip
        return self._child(one.name, role.arguments(orders))

    def _child(self, name: str, arguments: list[str] | Callable[[int], list[str]], **environment: str) -> Child:
        each = arguments if callable(arguments) else lambda _: arguments
        return Child(name, self._keeper, self.logs / f"{name}.log", each, **environment)

    def _close(self) -> None:
        for child in self.children():
            child.close()
