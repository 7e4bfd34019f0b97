"""Notes what ZooKeeper says of checkpoints and owners while a run goes on, in a thread with its own way to it."""

from __future__ import annotations

import threading
from typing import Self

from delivery.errors import HootError
from tests.chaos.cluster import QUEUE, SUBSCRIPTIONS, Cluster
from tests.chaos.history import History, now_us

EVERY_SECONDS = 0.25


class Watcher:
    """A context manager around the time to watch."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._history = History(cluster.history("watcher"))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._noted: dict[tuple[str, int], object] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def look(self) -> None:
        """Read everything once and note what has changed. Raises HootError."""
        catalog = self._cluster.catalog
        for partition, owner in catalog.owners(QUEUE).items():
            if self._noted.get(("", partition)) != owner:
                self._noted["", partition] = owner
                self._history.note("owner", partition, owner.epoch, owner.host or "-")
        for one in SUBSCRIPTIONS:
            checkpoints = catalog.checkpoints(QUEUE, one.name)
            at = now_us()
            for partition, checkpoint in checkpoints.items():
                if self._noted.get((one.name, partition)) != checkpoint:
                    self._noted[one.name, partition] = checkpoint
                    self._history.note("checkpoint", one.name, partition, checkpoint.id, checkpoint.epoch, at=at)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            try:
                self.look()
            except HootError:
                continue  # ZooKeeper is away; that is the nemesis's work
