"""Notes what ZooKeeper says of checkpoints and owners while a run goes on, in a thread with its own way to it."""

from __future__ import annotations

from delivery.errors import HootError
from tests.chaos.cluster import QUEUE, SUBSCRIPTIONS, Cluster
from tests.chaos.history import History, now_us
from tests.integration.background import Background

EVERY_SECONDS = 0.25


class Watcher(Background):
    """A context manager around the time to watch."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._history = History(cluster.history("watcher"))
        self._noted: dict[tuple[str, int], object] = {}

    def work(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            try:
                self._look()
            except HootError:
                continue  # ZooKeeper is away; that is the nemesis's work

    def _look(self) -> None:
        """Read everything once and note what has changed. Raises HootError."""
        catalog = self._cluster.catalog
        for partition, owner in catalog.owners(QUEUE).items():
            if self._noted.get(("", partition)) != owner:
                self._noted["", partition] = owner
                self._history.note("owner", partition, owner.epoch, owner.host or "-")
        for one in SUBSCRIPTIONS:
            states = catalog.states(QUEUE, one.name)
            at = now_us()
            for partition, state in states.items():
                if self._noted.get((one.name, partition)) != state:
                    self._noted[one.name, partition] = state
                    self._history.note("checkpoint", one.name, partition, state.position, state.epoch, at=at)
