"""This host among others, without ZooKeeper and sockets: the hosts that are there, and what they are asked to take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import trio

from delivery.cluster.hosts.peers import Peers
from delivery.cluster.hosts.table import HostTable
from delivery.cluster.sharing.giving import Giving
from delivery.cluster.sharing.mending import Mending
from delivery.cluster.sharing.news import News
from delivery.cluster.sharing.placing import Placing
from delivery.cluster.sharing.takeover import Takeovers
from delivery.errors import HootError
from delivery.metastore.records import HostRecord
from tests.hosting import ME, Scene, ScriptedCluster, queue_record


class Watches:
    """The watch on the folder of hosts; `hint` fires it."""

    def __init__(self) -> None:
        self.hint: Callable[[], None] = lambda: None

    def watch_children(self, path: str, hint: Callable[[], None]) -> None:
        assert path == "/hoot/hosts"
        self.hint = hint
        hint()


class ScriptedPeers:
    """What other hosts were asked to take, and what they say."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int]] = []
        self.refuse: HootError | None = None
        self.told: list[tuple[str, str, tuple[int, ...], str]] = []
        """Which host was told which partitions are free, and who could not have them."""

    async def take_partition(self, host: HostRecord, queue: str, partition: int, seconds: float) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append((host.host, queue, partition))
        if self.refuse is not None:
            raise self.refuse

    async def tell_freed(self, host: HostRecord, queue: str, partitions: Sequence[int], unable: str) -> None:
        await trio.lowlevel.checkpoint()
        self.told.append((host.host, queue, tuple(partitions), unable))


class Company:
    """A scene with other hosts: all parts of sharing over it."""

    def __init__(
        self, *others: HostRecord, cluster: ScriptedCluster | None = None, sweep_seconds: float = 30.0
    ) -> None:
        self.scene = Scene(cluster)
        self.cluster = self.scene.cluster
        self.cluster.live = {host.host: host for host in others}
        self.watches, self.peers = Watches(), ScriptedPeers()
        directory = cast("Any", self.scene.directory)
        self.hosts = HostTable(self.watches, directory, ME, 30.0)
        peers = cast("Peers", self.peers)
        self.placing = Placing(self.hosts, peers, 1000)
        self.scene.ownership.placing = self.placing
        self.takeovers = Takeovers(
            self.scene.ownership, self.hosts, directory, sweep_seconds=sweep_seconds, partitions_max=1000
        )
        self.news = News(self.hosts, self.peers, self.takeovers)
        self.scene.ownership.unable = self.news.unable
        self.mending = Mending(directory, self.takeovers, self.news)
        self.flushed: list[int] = []
        self.giving = Giving(
            self.scene.ownership, directory, self.scene.store, self.hosts, self.placing,
            mending=self.mending, news=self.news, flush=self._flush,
        )  # fmt: skip

    async def _flush(self, queue: str, partition: int) -> None:
        """Notes how many owner's records there were at each flush of checkpoints."""
        await trio.lowlevel.checkpoint()
        self.flushed.append(self.cluster.claims)

    def leave(self, host: str) -> None:
        """A host's session ends."""
        del self.cluster.live[host]
        self.watches.hint()


def wide(partitions: int = 20) -> ScriptedCluster:
    """A cluster whose only queue has many partitions."""
    return ScriptedCluster(queue_record(partitions=partitions))


def other(name: str, session: int, partitions: int = 0, *, draining: bool = False) -> HostRecord:
    return HostRecord(name, "10.0.0.2", 7000 + session, None, session, "1", 0, partitions, 0.0, 0.0, draining)


def together(company: Company, story: Callable[[Company], Awaitable[None]], seconds: float = 20.0) -> None:
    """Run a story with everything running; it must end within `seconds`."""

    async def run() -> None:
        with trio.fail_after(seconds):
            async with trio.open_nursery() as nursery:
                scene = company.scene
                sharing = (company.hosts, company.takeovers, company.news, company.mending, company.giving)
                for part in (scene.ownership, scene.publisher, *sharing):
                    await nursery.start(part.run)
                await story(company)
                nursery.cancel_scope.cancel()

    trio.run(run)
