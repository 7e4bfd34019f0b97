"""Looks at the memory, the handles and the queues of all processes of a run, in a thread, once a second."""

from __future__ import annotations

import contextlib
import re
import urllib.request
from pathlib import Path
from typing import Final

from tests.chaos.children import Child
from tests.chaos.cluster import Cluster
from tests.chaos.history import History
from tests.integration.background import Background
from tests.integration.hostile import memory_bytes

EVERY_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 0.5
_QUEUES: Final = re.compile(
    r"^hoot_(tail_cache_bytes|publish_pending_bytes|unacknowledged_messages)(?:\{.*\})? (\S+)$", re.MULTILINE
)


class Gauging(Background):
    """A context manager around the time to look."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._history = History(cluster.history("gauges"))

    def work(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            for child in self._cluster.children():
                if child.alive:
                    self._look(child)
            for name, record in self._cluster.live_hosts().items():
                if record.http_port is not None:
                    self._ask(name, record.http_port)

    def _look(self, child: Child) -> None:
        """Nothing is noted of one that ends meanwhile."""
        with contextlib.suppress(OSError, KeyError):
            handles = len(list(Path(f"/proc/{child.pid}/fd").iterdir()))
            self._history.note("gauge", child.name, "memory_bytes", memory_bytes(child.pid))
            self._history.note("gauge", child.name, "handles", handles)

    def _ask(self, name: str, port: int) -> None:
        """Nothing is noted of one that is stopped or gone."""
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_ANSWER_SECONDS) as answer:
                said = answer.read().decode()
            for what, value in _QUEUES.findall(said):
                self._history.note("gauge", name, what, float(value))
