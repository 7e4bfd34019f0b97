"""What was archived and then dropped by retention is read by everybody as before: scanners, subscribers, Spark."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from delivery import Client, NewMessage, Queue, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.spark.planning import engine
from delivery.storage.archive.names import path_of
from subscriber import Subscriber
from tests.integration.embedded import ROOT, eventually
from tests.integration.engine import hosted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

BODY = b"x" * 1000
Ids = set[tuple[int, int]]
"""Partitions and ids."""
MANY = 3_200
"""Of these bodies: more than what the retention keeps of two partitions."""
TRIMMED = 5 << 19


class Trimming(NamedTuple):
    """An engine whose retention looks all the time."""

    address: str
    logs: Path

    def has_trimmed(self, queue: str, size: int) -> bool:
        """Whether the logs of a queue are smaller than that."""
        with contextlib.suppress(FileNotFoundError):  # one of them goes at this moment
            return sum(path.stat().st_size for path in self.logs.glob(f"{queue}~*/*/*.log")) < size
        return False


@pytest.fixture(scope="module")
def trimming(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trimming]:
    folder = tmp_path_factory.mktemp("trimming")
    with hosted(zookeeper, folder, "--set", "retention_interval_seconds=0.1") as started:
        yield Trimming(started.address, folder / "data" / "queues")


KEPT = {"partitions": 2, "archive_first": True, "retention_bytes": 1 << 20}
"""Settings of a queue that keeps no more than it must."""


def publish(queue: Queue, count: int = MANY) -> Ids:
    """Fill a queue, a few batches at a time; where each message is."""
    stored = set()
    for at in range(0, count, 200):
        messages = [
            NewMessage(BODY, key=b"k%d" % (number % 50), topic=f"t{number % 3}", headers={"n": b"%d" % number})
            for number in range(at, at + 200)
        ]
        stored |= {(one.partition, int(one.id)) for one in queue.put_many(messages)}
    return stored


def scanned(client: Client, queue: str) -> Counter[tuple[int, int]]:
    with client.queue(queue).scanner() as scanner:
        return Counter((message.partition, message.number) for message in scanner)


def heard(zookeeper: str, queue: str, name: str, count: int) -> Ids:
    """What a subscription gets until it has got so many different messages."""
    got: Ids = set()
    subscriber = Subscriber(name, zookeeper=zookeeper)
    subscriber.subscribe(queue, listener=lambda message: got.add((message.partition, message.number)))
    with subscriber:
        eventually(lambda: len(got) >= count, f"{name} gets {count} messages")
    return got


def test_scanners_subscribers_replays_and_spark_read_across_the_border(
    trimming: Trimming, spark: SparkSession, tmp_path: Path
) -> None:
    from delivery.spark.jobs.archive import archive

    with connect(trimming.address) as client:
        queue = client.create_queue("kept", **KEPT)
        stored = publish(queue)
        client.create_subscription("kept", "behind", start="earliest")
        assert not trimming.has_trimmed("kept", MANY * len(BODY)), "nothing goes before it is archived"
        done = archive(spark, trimming.address, "kept", tmp_path / "archive")
        assert sum(one.messages for one in done) == len(stored)
        eventually(lambda: trimming.has_trimmed("kept", TRIMMED), "retention drops what is archived")
        later = {(one.partition, int(one.id)) for one in queue.put_many([NewMessage(b"new")] * 10)}

        assert scanned(client, "kept") == Counter(stored | later)
        rows = spark.read.format("hoot").option("queue", "kept").option("zookeeper", trimming.address).load()
        found = Counter((row.partition, row.offset) for row in rows.select("partition", "offset").collect())
        assert found == Counter(stored | later)
        files = spark.read.parquet(str(tmp_path / "archive")).select("partition", "offset").collect()
        assert Counter((row.partition, row.offset) for row in files) == Counter(stored)
        info = client.queue_info("kept")
        assert sum(one.messages for one in info.partitions) == len(stored | later)

        client.replay("kept", "behind", "again", start="earliest", speed="max")
        assert heard(trimming.address, "kept", "behind", len(stored | later)) == stored | later
        assert heard(trimming.address, "kept", "again", len(stored | later)) == stored | later


def start_archiver(engine: Trimming, queue: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.integration.spark.archiver", engine.address, queue, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/date=*/*/*.parquet") if not path.name.startswith("."))


def test_whenever_the_driver_is_killed_everything_is_archived_once(trimming: Trimming, tmp_path: Path) -> None:
    random, folder = Random(7), tmp_path / "archive"
    with connect(trimming.address) as client:
        queue = client.create_queue("killed", **KEPT)
        stored = publish(queue, 4_000)
        for _ in range(2):
            before, driver = visible(folder), start_archiver(trimming, "killed", folder)

            def is_at_work(driver: subprocess.Popen[bytes] = driver, before: Sequence[Path] = before) -> bool:
                return driver.poll() is not None or visible(folder) != before

            eventually(is_at_work, "the job adds files")
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(random.uniform(0, 0.2))
            driver.kill()
            driver.wait()
        assert start_archiver(trimming, "killed", folder).wait(60) == 0
        eventually(lambda: trimming.has_trimmed("killed", TRIMMED), "retention drops what is archived")
        assert scanned(client, "killed") == Counter(stored)
    with engine(trimming.address) as hosts:
        generation = hosts.queue("killed").generation
        recorded = [
            path_of(folder, "killed", generation, partition, one)
            for partition in range(2)
            for one in hosts.catalog.archived("killed", partition)
        ]
    assert visible(folder) == sorted(recorded)
