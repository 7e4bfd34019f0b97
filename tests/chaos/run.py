"""One chaos run: everything is started, struck, healed, left to settle, and read; what comes out is a Story."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from base64 import b64decode
from pathlib import Path

import msgspec

from delivery.batch import headers_in
from delivery.client import connect
from delivery.errors import HootError
from delivery.ids import MessageId
from delivery.rpc.blocking import BlockingConnection
from tests.chaos.checks import checkpoints_at_end
from tests.chaos.cluster import BATCHING, BUSIEST, CHURN, DIRECT, IMPATIENT, QUEUE, SUBSCRIPTIONS, Cluster, Shape
from tests.chaos.gauging import Gauging
from tests.chaos.history import fields, seen
from tests.chaos.intruding import Intruder
from tests.chaos.nemesis import Nemesis, Say
from tests.chaos.plan import Step, plan
from tests.chaos.story import Place, Row, Story, Written, load
from tests.chaos.watcher import Watcher
from tests.integration.embedded import NEVER, ROOT, eventually
from tests.integration.host_reads import request

SETTLE_SECONDS = 60.0
_LAST_PUTS_SECONDS = 3.0
_PROGRESS_SECONDS = 5.0


class Growing:
    """The lines that were added to a file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def lines(self) -> list[str]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            grown = file.read()
        whole = grown[: grown.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.decode().splitlines()


class Progress:
    """Counts what the processes write down, and says it every few seconds."""

    def __init__(self, cluster: Cluster, say: Say) -> None:
        self._cluster, self._say = cluster, say
        self._files: dict[Path, Growing] = {}
        self._counts = {"stored": 0, "refused": 0, "unknown": 0, "call": 0}
        self._before = dict(self._counts)
        self._at = time.monotonic()
        self.called: dict[str, set[Place]] = {one.name: set() for one in SUBSCRIPTIONS}

    def look(self) -> None:
        """Read on."""
        for path in self._cluster.histories.iterdir():
            subscription = path.name.removeprefix("subscriber-")
            for line in self._files.setdefault(path, Growing(path)).lines():
                words = line.split(" ", 4)
                if words[0] in self._counts:
                    self._counts[words[0]] += 1
                if words[0] == "call":
                    self.called[subscription].add((int(words[2]), int(words[3])))

    def tell(self) -> None:
        """Say the rates, if it is time."""
        now = time.monotonic()
        if now < self._at + _PROGRESS_SECONDS:
            return
        self.look()
        counts, seconds = self._counts, now - self._at
        rates = {name: (count - self._before[name]) / seconds for name, count in counts.items()}
        self._say(
            f"    {rates['stored']:.0f} stored/s, {rates['call']:.0f} callbacks/s; in all {counts['stored']} stored,"
            f" {counts['refused']} refused, {counts['unknown']} unknown, {counts['call']} callbacks"
        )
        self._before, self._at = dict(self._counts), now


class Run:
    """A run in a folder; `go` gives its Story."""

    def __init__(self, folder: Path, shape: Shape, say: Say) -> None:
        self.cluster, self._say = Cluster(folder, shape), say
        self.problems: list[str] = []

    def schedule(self, seed: int, seconds: float, only: tuple[str, ...] = ()) -> list[Step]:
        """What will go wrong."""
        cluster = self.cluster
        targets = {
            "host": [*cluster.host_ports, *[BUSIEST] * len(cluster.host_ports)],
            "subscriber": [one.name for one in SUBSCRIPTIONS],
            "publisher": [BATCHING, IMPATIENT, DIRECT],
        }
        return plan(seed, seconds, cluster.shape.session_seconds, targets, only)

    def go(self, steps: list[Step]) -> Story:
        """Everything, and the end of it."""
        cluster = self.cluster
        with cluster.run():
            nemesis, progress = Nemesis(cluster, self._say), Progress(cluster, self._say)
            self._begin()
            with Watcher(cluster):
                with Gauging(cluster), Intruder(cluster):
                    nemesis.run(steps, progress.tell)
                    self._say("the faults are over")
                    self._end_publishing(nemesis, progress)
                scan = self._scan()
                self._say(f"{len(scan)} messages are stored")
                self._wait_delivered(scan, nemesis, progress)
                self._wait_tail(scan)
                story = self._wait_checkpoints(scan)
                self._wait_verdicts()
                story.command_scan = self._command_scan()
            self._check_owners()
            story.written, story.leftovers = self._written(), self._leftovers()
            story.problems = [*self.problems, *nemesis.problems]
        return story

    def _begin(self) -> None:
        cluster = self.cluster
        for child in cluster.subscribers.values():
            child.start()
        eventually(
            lambda: len(cluster.catalog.subscriptions(QUEUE)) == len(SUBSCRIPTIONS), "all subscriptions are there", 60
        )
        assert cluster.tail is not None
        for child in (cluster.tail, *cluster.publishers.values()):
            child.start()

    def _end_publishing(self, nemesis: Nemesis, progress: Progress) -> None:
        cluster = self.cluster
        for node in cluster.ensemble.nodes:
            cluster.ensemble.start(node)
        cluster.ensemble.wait(everybody=True)
        until = time.monotonic() + _LAST_PUTS_SECONDS
        while time.monotonic() < until or not all(child.alive for child in cluster.publishers.values()):
            nemesis.revive()
            progress.tell()
            NEVER.wait(0.1)
        for name, child in cluster.publishers.items():
            nemesis.retire(child)
            if not child.stop():
                self.problems.append(f"the publisher {name} did not end: status {child.exit_status}")

    def _wait_delivered(self, scan: list[Row], nemesis: Nemesis, progress: Progress) -> None:
        begun = time.monotonic()
        wanted = {one.name: {row.place for row in scan if one.wants(row.partition, row.topic)} for one in SUBSCRIPTIONS}
        while True:
            progress.look()
            missing = {name: len(places - progress.called[name]) for name, places in wanted.items()}
            if not any(missing.values()):
                self._say(f"everything was delivered {time.monotonic() - begun:.1f} s after the end of publishing")
                return
            if time.monotonic() > begun + SETTLE_SECONDS:
                self.problems.append(f"not settled after {SETTLE_SECONDS:g} s; missing: {missing}")
                return
            nemesis.revive()
            NEVER.wait(0.2)

    def _wait_tail(self, scan: list[Row]) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        file, count = Growing(self.cluster.history("tail")), 0
        while (count := count + len(file.lines())) < len(scan) and time.monotonic() < deadline:
            NEVER.wait(0.2)

    def _wait_checkpoints(self, scan: list[Row]) -> Story:
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            shape = self.cluster.shape
            story = load(self.cluster.histories, SUBSCRIPTIONS, shape.window_messages, shape.partitions)
            story.scan = scan
            if not checkpoints_at_end(story) or time.monotonic() > deadline:
                return story
            NEVER.wait(1.0)

    def _wait_verdicts(self) -> None:
        """Whatever happened, nothing is to be the matter with any subscription any more."""
        deadline, wrong = time.monotonic() + SETTLE_SECONDS, {"": "nobody was asked"}
        with connect(self.cluster.address) as client:
            while wrong and time.monotonic() < deadline:
                infos = [client.subscription_info(QUEUE, one.name) for one in SUBSCRIPTIONS]
                told = {info.subscription: info.worst.verdict for info in infos if info.worst is not None}
                wrong = {name: f"{one.name}: {one.text}" for name, one in told.items() if one.level != "fine"}
                NEVER.wait(0.5 if wrong else 0)
        if wrong:
            self.problems.append(f"verdicts {SETTLE_SECONDS:g} s after everything was delivered: {wrong}")

    def _scan(self) -> list[Row]:
        with connect(self.cluster.address) as client, client.queue(QUEUE).scanner(timeout=SETTLE_SECONDS) as scanner:
            return [Row(*fields(message)) for message in scanner]

    def _command_scan(self) -> list[Row]:
        done = subprocess.run(
            [sys.executable, "-m", "delivery.cli", "scan", QUEUE, "--json", "--zookeeper", self.cluster.address],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, timeout=300, check=False,
        )  # fmt: skip
        if done.returncode:
            self.problems.append(f"hoot scan ended with status {done.returncode}")
        return [_printed(line) for line in done.stdout.splitlines()]

    def _check_owners(self) -> None:
        live = {record.host: record for record in self.cluster.live_hosts().values()}
        owners = self.cluster.catalog.owners(QUEUE)
        for partition in range(self.cluster.shape.partitions):
            owner = owners.get(partition)
            if owner is None or owner.host not in live or live[owner.host].session != owner.session:
                self.problems.append(f"partition {partition} has no living owner: {owner}")

    def _written(self) -> list[Written]:
        """All batches of all partitions, each read from its owner."""
        found: list[Written] = []
        live = {record.host: record for record in self.cluster.live_hosts().values()}
        for partition, owner in self.cluster.catalog.owners(QUEUE).items():
            if (record := live.get(owner.host)) is None:
                continue  # told by _check_owners
            try:
                with BlockingConnection(record.address, record.port) as connection:
                    found += _batches(connection, partition)
            except HootError as error:
                self.problems.append(f"partition {partition} cannot be read: {error!r}")
        return found

    def _leftovers(self) -> list[str]:
        """Queues and subscriptions that no program of the run made."""
        with connect(self.cluster.address) as client:
            queues = client.queues()
        names = {name for name in self.cluster.catalog.subscriptions(QUEUE) if not name.startswith(CHURN.name)}
        strangers = sorted(names - {one.name for one in SUBSCRIPTIONS})
        return [f"queue {name}" for name in queues if name != QUEUE] + [f"subscription {name}" for name in strangers]


def _batches(connection: BlockingConnection, partition: int) -> list[Written]:
    found: list[Written] = []
    after = -1
    reply = connection.call("read", request(partition=partition))
    while reply.position > after:
        after = reply.position
        found += [
            Written(partition, one.base_id, one.last_id, one.epoch) for _, one in headers_in(bytes(reply.batches))
        ]
        reply = connection.call("read", request(after, partition=partition))
    return found


class _Printed(msgspec.Struct):
    partition: int
    id: str
    topic: str | None
    body: str | dict[str, str]


def _printed(line: bytes) -> Row:
    found = msgspec.json.decode(line, type=_Printed)
    body = found.body.encode() if isinstance(found.body, str) else b64decode(found.body["base64"])
    return Row(found.partition, MessageId.parse(found.id), found.topic or "-", *seen(body))
