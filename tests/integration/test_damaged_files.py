"""What a host does about the files that it finds: an unfinished write is cut, damage stops its partition alone."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from delivery import Client, Queue, connect
from delivery.batch import peek
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import CorruptRecord
from tests.integration.cli.running import Hoot
from tests.integration.embedded import eventually
from tests.integration.engine import (
    Engine,
    RecordingSubscriber,
    by_partition,
    check_checkpoints,
    check_delivered,
    hosted,
)
from tests.saving import is_saved
from tests.strategies import stamped

pytestmark = pytest.mark.integration

QUEUE = "orders"
PARTITIONS = 2


class Site(NamedTuple):
    """An engine with a queue, and a subscriber of it that writes down what it hears."""

    running: Engine
    client: Client
    queue: Queue
    subscriber: RecordingSubscriber
    folder: Path

    def publish(self, *partitions: int, count: int = 200, size: int = 0) -> dict[int, list[int]]:
        """Messages that were acknowledged, by partition."""
        bodies = [b"%d" % number + bytes(size) for number in range(count)]
        return {partition: self.put(bodies, partition) for partition in partitions}

    def put(self, bodies: list[bytes], partition: int) -> list[int]:
        with self.queue.publisher(batch_bytes=8 * 1024) as publisher:
            receipts = [publisher.put(body, partition=partition) for body in bodies]
        return by_partition([receipt.result(60) for receipt in receipts])[partition]

    def hears(self, *published: dict[int, list[int]]) -> None:
        """Everything that was published reaches the callback, in order."""
        known = {number: [each for one in published for each in one.get(number, ())] for number in range(PARTITIONS)}
        expected = sum(map(len, known.values()))
        eventually(lambda: self.subscriber.distinct() == expected, f"{expected} messages are heard", 60)
        check_delivered(known, self.subscriber.ids())
        check_checkpoints(self.running.address, QUEUE, "recorder", known, self.subscriber.ids())

    def scans(self, partition: int) -> list[int]:
        with self.queue.partition_scanner(partition) as scanner:
            return [message.number for message in scanner]

    def segments(self, partition: int) -> list[Path]:
        """The files with a partition's batches, oldest first."""
        [place] = (self.folder / "data" / "queues").glob(f"{QUEUE}~*/{partition:05}")
        return sorted(place.glob("*.log"))

    def saved(self) -> None:
        eventually(lambda: is_saved(self.client, QUEUE, "recorder"), "what is acknowledged is written down")

    def not_ready(self) -> str:
        """Why the host says that it cannot do its work; nothing when it can."""
        host = max(self.client.hosts(), key=lambda one: one.started_ms)  # a killed one stays for as long as its session
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{host.http_port}/readyz", timeout=30):
                return ""
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()


@contextmanager
def site(zookeeper: EmbeddedZooKeeper, folder: Path) -> Iterator[Site]:
    with hosted(zookeeper, folder, "--segment-size", "64KiB") as running, connect(running.address) as client:
        queue = client.create_queue(QUEUE, partitions=PARTITIONS)
        subscriber = RecordingSubscriber(running, QUEUE, folder)
        subscriber.start()
        try:
            yield Site(running, client, queue, subscriber, folder)
        finally:
            subscriber.kill()


def unfinished(segment: Path, last_id: int) -> bytes:
    """The first half of what its owner would write next."""
    epoch = int(segment.name.partition("-")[0])
    _, data = stamped([(b"never acknowledged", None, "", b"")] * 50, last_id + 1, epoch=epoch)
    return data[: len(data) // 2]


def without_reserve(segment: Path) -> bytes:
    """Its batches, without the zeros that are reserved behind them while it is open."""
    raw, at = segment.read_bytes(), 0
    while raw[at : at + 1] not in (b"", b"\0"):
        header = peek(raw, at)
        assert header is not None
        at += header.length
    return raw[:at]


def test_a_torn_tail_is_cut_and_everything_acknowledged_is_there(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with site(zookeeper, tmp_path) as found:
        before = found.publish(0, 1)
        found.hears(before)
        found.running.host.kill()
        segment = found.segments(0)[-1]
        whole = without_reserve(segment)
        torn = unfinished(segment, before[0][-1])
        segment.write_bytes(whole + torn)
        found.running.host.start()
        after = found.publish(0, 1)
        found.hears(before, after)
        assert found.scans(0) == before[0] + after[0]
        assert f"cut {len(torn)} bytes of an unfinished write" in (tmp_path / "host.log").read_text()
        assert segment.read_bytes() == whole
        assert found.not_ready() == ""


def open_segment(segments: list[Path]) -> Path:
    return segments[-1]


def closed_segment(segments: list[Path]) -> Path:
    assert len(segments) > 2
    return segments[0]


@pytest.mark.parametrize("which", [open_segment, closed_segment])
def test_a_truncated_segment_stops_its_partition_loudly_until_it_is_whole_and_no_other(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, which: Callable[[list[Path]], Path]
) -> None:
    with site(zookeeper, tmp_path) as found:
        rounds = [
            found.publish(0, 1, size=1000) for _ in range(3)
        ]  # a segment each at least, whatever is stored at once
        before = {number: [each for one in rounds for each in one[number]] for number in (0, 1)}
        found.hears(before)
        found.saved()
        found.running.host.kill()
        segment = which(found.segments(0))
        whole = without_reserve(segment)
        segment.write_bytes(whole[:-10])
        found.running.host.start()
        with pytest.raises(CorruptRecord, match=segment.name) as caught:
            found.queue.put(b"refused", partition=0, timeout=20)
        assert not caught.value.retryable
        assert str(len(whole)) in caught.value.message, "how long it was, and is"
        told = Hoot(found.running.address).refused("publish", QUEUE, "refused", "--partition", "0")
        assert told["error"] == "corrupt_record"
        with pytest.raises(CorruptRecord):
            found.scans(0)
        assert segment.name in found.not_ready()
        other = found.publish(1)
        found.hears(before, other)
        [there, _] = found.client.subscription_info(QUEUE, "recorder").partitions
        assert there.position == before[0][-1], "its position stays"
        assert segment.read_bytes() == whole[:-10], "nobody has touched it"
        hoot = Hoot(found.running.address)
        stored = hoot.json("queue", "info", QUEUE)["stored"]
        assert [one["messages"] for one in stored] == [None, len(before[1] + other[1])], "the other is told of"
        assert segment.name in stored[0]["trouble"]
        assert re.search(rf"^partition 0: .*{segment.name}", hoot("queue", "info", QUEUE).stderr, re.MULTILINE)
        [listed] = hoot.json("subscription", "list")
        assert segment.name in listed["verdict"]["text"]

        segment.write_bytes(whole)
        eventually(lambda: found.not_ready() == "", "it is served again, by itself", 60)
        after = found.publish(0, 1)
        found.hears(before, other, after)
        assert found.scans(0) == before[0] + after[0]
