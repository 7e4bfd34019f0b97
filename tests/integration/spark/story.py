"""A stream on a real standalone cluster: its driver, events that are published, what a plain loop counts of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import msgspec

from delivery import Client, NewMessage
from delivery.errors import HootError
from delivery.local import LocalEngine
from tests.integration.embedded import ROOT, descendants, eventually
from tests.integration.spark.cluster import SHORT_LIVED, Cluster
from tests.integration.spark.counter import HOUR_SECONDS

QUEUE, PARTITIONS = "flights", 3
EVENTS = 2100
"""Between two kills."""
BEGIN, STEP = 1_700_000_000, 7
"""Event time in seconds, and how far it goes on from one event to the next."""
SECONDS = 600.0


class Event(msgspec.Struct):
    carrier: str
    at: int
    delay: int


class Story:
    """A driver on a cluster, events that are published, and what a plain loop has counted of them."""

    def __init__(self, folder: Path, spark: Cluster, running: LocalEngine, client: Client) -> None:
        self.folder, self.spark, self.running, self.client = folder, spark, running, client
        self._random, self._at = Random(7), BEGIN
        self.events, self.delays = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
        self.driver = self.start_driver()

    def start_driver(self) -> subprocess.Popen[bytes]:
        """Start it, or start it anew with its checkpoint."""
        arguments = [str(self.folder), self.running.address, QUEUE, self.spark.master]
        with (self.folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.integration.spark.counter", *arguments], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=ROOT, env={**os.environ, **SHORT_LIVED, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip

    def kill_driver(self) -> None:
        """With its JVM, and the Python beside that."""
        for pid in (*descendants(self.driver.pid), self.driver.pid):
            os.kill(pid, signal.SIGKILL)
        self.driver.wait()

    def publish(self) -> None:
        """More events, out of order by up to some minutes."""
        made = [self._event() for _ in range(EVENTS)]
        for event in made:
            hour = event.at // HOUR_SECONDS * HOUR_SECONDS
            self.events[hour, event.carrier] += 1
            self.delays[hour, event.carrier] += event.delay
        queue = self.client.queue(QUEUE)
        for at in range(0, EVENTS, 300):
            queue.put_many([NewMessage(msgspec.json.encode(one), topic=one.carrier) for one in made[at : at + 300]])

    def _event(self) -> Event:
        self._at += STEP
        random = self._random
        return Event(random.choice(["AA", "B6", "UA"]), self._at - random.randint(0, 600), random.randint(-10, 90))

    def lag(self) -> int | None:
        """Of the stream's subscription; None while nobody can tell."""
        assert self.driver.poll() is None, (self.folder / "driver.log").read_text()[-3000:]
        try:
            return self.client.subscription_info(QUEUE, "count").lag
        except HootError:
            return None

    def under_way(self) -> None:
        """Wait until some of the last events are read, and not all."""
        eventually(lambda: 0 < (self.lag() or 0) < EVENTS, "the stream reads the events", SECONDS)

    def caught_up(self) -> None:
        """Wait until all events are read."""
        eventually(lambda: self.lag() == 0, "the stream has read the events", SECONDS)

    def finish(self) -> dict[tuple[int, str], tuple[int, int]]:
        """What the stream has counted. An event of the far future, which ends all hours, is not in it."""
        last = Event("none", self._at + 100 * HOUR_SECONDS, 0)
        for number in range(PARTITIONS):
            self.client.queue(QUEUE).put(msgspec.json.encode(last), partition=number)
        (self.folder / "end").touch()
        assert self.driver.wait(SECONDS) == 0, (self.folder / "driver.log").read_text()[-3000:]
        rows = json.loads((self.folder / "counts.json").read_text())
        assert len({(hour, carrier) for hour, carrier, *_ in rows}) == len(rows), "no hour is counted twice"
        return {(hour, carrier): (events, delays) for hour, carrier, events, delays in rows}
