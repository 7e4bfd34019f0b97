"""An engine on an HBase of two region servers, to which one thing after the other happens while messages flow.

Nothing that was acknowledged is lost, the order holds, the host's memory stays bounded, and delivery goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery import Client, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import HootError
from delivery.hbase import Tables
from delivery.ids import MessageId
from delivery.storage.hbase import keys
from tests.hbase.server import HBase
from tests.integration.embedded import eventually
from tests.integration.engine import RecordingSubscriber, check_delivered, hosted
from tests.integration.verdicts import judged

pytestmark = [pytest.mark.hbase, pytest.mark.slow]
PARTITIONS = 4
SECONDS = 150.0
HOST_MIB_MAX = 600
BODY = b"x" * 1000


class Publishing:
    """A thread that publishes as fast as the host takes it, and writes down what was acknowledged."""

    def __init__(self, client: Client) -> None:
        self.stored: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.count = 0
        self._publisher = client.queue("orders").publisher()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def more(self, messages: int) -> None:
        """Return when so many more were acknowledged."""
        wanted = self.count + messages
        eventually(lambda: self.count >= wanted, f"{messages} more messages are acknowledged", SECONDS)

    def end(self) -> None:
        self._ending.set()
        self._thread.join(SECONDS)
        with contextlib.suppress(HootError):  # of a message that was given up, as its receipt says
            self._publisher.close()

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            receipts = []
            for _ in range(200):
                number += 1
                receipts.append(self._publisher.put(BODY, partition=number % PARTITIONS))
            for receipt in receipts:
                try:
                    found = receipt.result()
                except HootError:
                    continue  # given up: it may be stored or not
                self._note(found.partition, found.id)

    def _note(self, partition: int, number: MessageId) -> None:
        self.stored[partition].append(int(number))
        self.count += 1


class Stage:
    """All that runs."""

    def __init__(
        self, hbase: HBase, host_pid: int, client: Client, publishing: Publishing, subscriber: RecordingSubscriber
    ) -> None:  # fmt: skip
        self.hbase, self._host_pid, self._client = hbase, host_pid, client
        self.publishing, self._subscriber = publishing, subscriber

    def goes_on(self) -> None:
        """Messages are acknowledged and delivered, of what is published from now on."""
        heard = self._subscriber.distinct()
        self.publishing.more(400)
        eventually(lambda: self._subscriber.distinct() >= heard + 400, "400 more are delivered", SECONDS)
        assert self.host_mib() < HOST_MIB_MAX

    def host_mib(self) -> int:
        """The most memory that the host had."""
        status = Path(f"/proc/{self._host_pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) >> 10

    def check(self) -> None:
        """Everything that was acknowledged is delivered, in order."""
        stored = self.publishing.stored

        def missing() -> int:
            heard = self._subscriber.ids()
            return sum(len(set(ids) - set(heard.get(partition, ()))) for partition, ids in stored.items())

        eventually(lambda: missing() == 0, "all that was acknowledged is delivered", SECONDS)
        check_delivered(stored, self._subscriber.ids())
        assert judged(self._client, "orders", "recorder", "idle").lag == 0


@pytest.fixture
def stage(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Stage]:
    """Everything running; at the end nothing is missing."""
    with HBase(tmp_path / "hbase", region_servers=2) as hbase:
        options = ("--store", "hbase", "--hbase-thrift", hbase.thrift, "--set", "hbase_call_seconds=20")
        with hosted(zookeeper, tmp_path, *options) as running, connect(running.address) as client:
            client.create_queue("orders", partitions=PARTITIONS)
            subscriber = RecordingSubscriber(running, "orders", tmp_path)
            subscriber.start()
            publishing = Publishing(client)
            found = Stage(hbase, running.host.pid, client, publishing, subscriber)
            try:
                found.goes_on()
                yield found
                publishing.end()
                found.check()
            finally:
                publishing.end()
                subscriber.kill()


def stand_still(seconds: float) -> None:
    threading.Event().wait(seconds)


def region_server(stage: Stage) -> None:
    """Killed, and another one started in its place."""
    stage.hbase.processes["region-0"].kill()
    stage.goes_on()
    stage.hbase.processes["region-0"].start()


def gateway(stage: Stage) -> None:
    """The gateway that is asked is killed; then it is back, and the other one is."""
    for killed in ("thrift-0", "thrift-1"):
        stage.hbase.processes[killed].kill()
        stage.goes_on()
        stage.hbase.processes[killed].start()
        stage.hbase.wait_ready()


def regions(stage: Stage) -> None:
    """The queue's only region is split, within a partition, and both go to the other server."""
    tables = Tables(stage.hbase.gateways)
    try:
        (table,) = [name for name in tables.names() if name.endswith(".orders")]
    finally:
        tables.close()
    stage.hbase.scatter(table, keys.from_id(1, stage.publishing.stored[1][-1]))


def pause(stage: Stage) -> None:
    """All of HBase stands still, for less than its sessions last, and goes on."""
    programs = stage.hbase.processes.values()
    for program in programs:
        program.signal(signal.SIGSTOP)
    stand_still(3)
    for program in programs:
        program.signal(signal.SIGCONT)


def everything(stage: Stage, seconds: float = 25.0) -> None:
    """All of HBase stands still, for longer than a call may take and its sessions last, and has to be started anew."""
    programs = stage.hbase.processes.values()
    for program in programs:
        program.signal(signal.SIGSTOP)
    stand_still(seconds)
    for program in programs:
        program.kill()
    for program in programs:
        program.start()
    stage.hbase.wait_ready()


def zookeeper_of_hbase(stage: Stage) -> None:
    """HBase's ZooKeeper stands still, for less than the sessions of its servers last."""
    assert stage.hbase.zookeeper is not None
    assert stage.hbase.zookeeper.pid is not None
    os.kill(stage.hbase.zookeeper.pid, signal.SIGSTOP)
    stand_still(2)
    os.kill(stage.hbase.zookeeper.pid, signal.SIGCONT)


def test_one_thing_after_the_other_happens_to_hbase_and_nothing_is_lost(stage: Stage) -> None:
    for happens in (zookeeper_of_hbase, pause, everything, region_server, gateway, regions):
        happens(stage)
        stage.goes_on()


@pytest.mark.nightly
def test_an_hbase_that_is_away_for_a_minute_is_gone_on_with(stage: Stage) -> None:
    everything(stage, 60.0)
    stage.goes_on()
