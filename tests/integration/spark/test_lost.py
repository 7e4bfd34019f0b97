"""What retention drops between the planning and the reading is an error, unless `failOnDataLoss` is false.

Without a session: Spark only carries what the readers plan to those who read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from delivery import Client, NewMessage, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import InvalidRequest
from delivery.spark.options import ReadOptions, read_options
from delivery.spark.reading import MessagesLost
from delivery.spark.source import HootReader
from delivery.spark.stream import HootStreamReader
from tests.integration.embedded import eventually
from tests.integration.engine import Engine, hosted

pytestmark = [pytest.mark.integration, pytest.mark.spark]

COUNT, BODY = 3000, b"x" * 1000
MORE_BYTES = 8 << 20
"""What the queue keeps at first; then less than it holds."""


@pytest.fixture(scope="module")
def trimming(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("trimming")
    with hosted(zookeeper, folder, "--set", "retention_interval_seconds=0.1") as started:
        yield started


@pytest.fixture
def client(trimming: Engine) -> Iterator[Client]:
    with connect(trimming.address) as connected:
        yield connected


def filled(client: Client, name: str) -> str:
    queue = client.create_queue(name, retention_bytes=MORE_BYTES)
    for _ in range(0, COUNT, 100):
        queue.put_many([NewMessage(BODY)] * 100)
    return name


def trim(client: Client, running: Engine, name: str) -> None:
    """Drop some messages; the host, which keeps what came last in its memory for a while, begins anew."""
    before = client.queue(name).bounds(0).messages
    client.update_queue(name, retention_bytes=1 << 20)
    eventually(lambda: client.queue(name).bounds(0).messages < before, "retention drops messages")
    running.host.kill()
    running.host.start()


def options(running: Engine, queue: str, others: dict[str, str], *, stream: bool = False) -> ReadOptions:
    return read_options({"queue": queue, "zookeeper": running.address, **others}, stream=stream)


def rows(reader: Any, tasks: list[InputPartition]) -> int:
    return sum(part.num_rows for task in tasks for part in reader.read(task))


@pytest.mark.parametrize("chosen", [{"topics": "*"}, {"isolation": "committed"}])
def test_one_that_chooses_among_them_fails_as_well(client: Client, trimming: Engine, chosen: dict[str, str]) -> None:
    queue = filled(client, "choosing-" + "".join(chosen))
    readers = [HootReader(options(trimming, queue, {"failOnDataLoss": word} | chosen)) for word in ("true", "false")]
    planned = [reader.partitions() for reader in readers]
    assert rows(readers[0], planned[0]) == COUNT
    trim(client, trimming, queue)
    with pytest.raises(MessagesLost, match="vanished before they were read"):
        rows(readers[0], planned[0])
    assert 0 < rows(readers[1], planned[1]) < COUNT


def test_a_batch_whose_messages_are_dropped_before_they_are_read_fails(client: Client, trimming: Engine) -> None:
    queue = filled(client, "batch")
    readers = [HootReader(options(trimming, queue, {"failOnDataLoss": word})) for word in ("true", "false")]
    planned = [reader.partitions() for reader in readers]
    first = planned[0][0].span[2] + 1  # type: ignore[attr-defined]
    trim(client, trimming, queue)
    with pytest.raises(MessagesLost, match="vanished before they were read"):
        rows(readers[0], planned[0])
    assert 0 < rows(readers[1], planned[1]) < COUNT
    begins = {"startingOffsets": f'{{"batch": {{"0": {first}}}}}'}
    with pytest.raises(InvalidRequest, match="holds nothing before id"):
        HootReader(options(trimming, queue, begins)).partitions()
    lenient = HootReader(options(trimming, queue, begins | {"failOnDataLoss": "false"}))
    assert 0 < rows(lenient, lenient.partitions()) < COUNT


def test_a_stream_that_limits_hold_back_tells_what_vanished_before_it(client: Client, trimming: Engine) -> None:
    queue = filled(client, "stream")
    found = []
    for word in ("true", "false"):
        given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "200", "failOnDataLoss": word}
        reader = HootStreamReader(options(trimming, queue, given, stream=True))
        begin = reader.initialOffset()
        found.append((reader, reader.latestOffset(begin, reader.getDefaultReadLimit())))
    trim(client, trimming, queue)
    (strict, at), (lenient, place) = found
    with pytest.raises(MessagesLost, match="vanished before the stream got to them"):
        strict.latestOffset(at, strict.getDefaultReadLimit())
    later = lenient.latestOffset(place, lenient.getDefaultReadLimit())
    assert rows(lenient, lenient.partitions(place, later)) == 200
    for reader in (strict, lenient):
        reader.stop()
