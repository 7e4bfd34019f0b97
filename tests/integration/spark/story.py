"""A stream on a real standalone cluster: its driver, flights that are published, what a plain loop counts of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import count, islice
from pathlib import Path
from random import Random

from delivery import Client, NewMessage
from delivery.demo import flights
from delivery.errors import HootError
from delivery.local import LocalEngine
from tests.integration.embedded import ROOT, descendants, eventually
from tests.integration.spark.cluster import SHORT_LIVED, Cluster
from tests.integration.spark.counter import HOUR_SECONDS

QUEUE, PARTITIONS = "flights", 3
EVENTS = 2100
"""Between two kills: flights of two or three days, fewer than are waited for."""
JITTER_SECONDS = 600
FAR_SECONDS = 10 * 24 * 3600
SECONDS = 600.0
_YEAR = re.compile(r"\d{4}(?=-\d\d-)")


def year_after_year() -> Iterator[tuple[str, int, int, bytes]]:
    """Carrier, scheduled departure in seconds, delay and the whole record of each flight in the file, for ever."""
    file = flights.load()
    for lap in count():
        later = partial(_YEAR.sub, partial(_year_later, lap), count=1)
        for one in file:
            at = int(datetime.fromisoformat(later(one.event_time)).timestamp())
            yield one.carrier, at, one.delay or 0, later(one.body.decode()).encode()


def _year_later(years: int, found: re.Match[str]) -> str:
    return str(int(found[0]) + years)


class Story:
    """A driver on a cluster, flights that are published, and what a plain loop has counted of them."""

    def __init__(self, folder: Path, spark: Cluster, running: LocalEngine, client: Client) -> None:
        self.folder, self.spark, self.running, self.client = folder, spark, running, client
        self._random, self._flights, self._last = Random(7), year_after_year(), 0
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
        """More flights, out of order by up to some minutes."""
        made = list(islice(self._flights, EVENTS))
        for carrier, at, delay, _ in made:
            hour = at // HOUR_SECONDS * HOUR_SECONDS
            self.events[hour, carrier] += 1
            self.delays[hour, carrier] += delay
        self._last = made[-1][1]
        made.sort(key=lambda one: one[1] + self._random.randint(0, JITTER_SECONDS))
        queue = self.client.queue(QUEUE)
        for at in range(0, EVENTS, 300):
            queue.put_many([NewMessage(body, topic=carrier) for carrier, _, _, body in made[at : at + 300]])

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
        """What the stream has counted. A flight of the far future, which ends all hours, is not in it."""
        last = datetime.fromtimestamp(self._last + FAR_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = json.dumps({"carrier": "none", "time_hour": last, "minute": 0, "dep_delay": 0}).encode()
        for number in range(PARTITIONS):
            self.client.queue(QUEUE).put(body, partition=number)
        (self.folder / "end").touch()
        assert self.driver.wait(SECONDS) == 0, (self.folder / "driver.log").read_text()[-3000:]
        rows = json.loads((self.folder / "counts.json").read_text())
        assert len({(hour, carrier) for hour, carrier, *_ in rows}) == len(rows), "no hour is counted twice"
        return {(hour, carrier): (events, delays) for hour, carrier, events, delays in rows}
