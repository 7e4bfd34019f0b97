"""The source and the sink over Spark Connect: a server that has Hoot, and a client that has neither it nor a Java."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery import Message, NewMessage, connect
from delivery.model import partition_of
from tests.integration.engine import Engine
from tests.integration.spark.connect_server import Client, connect_server

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

JOB = (
    "a job needs a Spark session with a driver of its own (local[N], spark://HOST:PORT, yarn, k8s://…), not one of"
    " Spark Connect"
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("connect")
    with connect_server(folder / "server") as remote:
        made = Client(remote, folder / "client")
        try:
            yield made
        finally:
            made.stop()


def at(running: Engine, **options: str) -> dict[str, str]:
    return {"zookeeper": running.address, **options}


def stored(running: Engine, queue: str) -> list[Message]:
    with connect(running.address) as client:
        return list(client.queue(queue).scanner())


def test_a_batch_reads_every_message_and_with_conditions_those_that_meet_them(running: Engine, client: Client) -> None:
    with connect(running.address) as publisher:
        publisher.create_queue("remote-rows", partitions=2).put_many([
            NewMessage(
                b"body-%d" % n, topic=f"t{n % 3}", key=b"k%d" % n if n % 2 else None, partition=n % 2,
                headers={"n": b"%d" % (n % 10)} if n % 5 else None,
            )
            for n in range(400)
        ])  # fmt: skip
    expected = {
        (one.partition, one.number): [one.topic, one.key and one.key.decode(), one.body.decode(), len(one.headers)]
        for one in stored(running, "remote-rows")
    }
    rows = client.do("read", options=at(running, queue="remote-rows"), where="true")
    assert {(partition, number): rest for partition, number, *rest in rows} == expected
    assert len(rows) == 400

    ids = sorted(number for partition, number in expected if partition == 1)
    where = f"partition = 1 and offset >= {ids[51]} and topic in ('t0', 't1')"
    chosen = {place for place, one in expected.items() if place[0] == 1 and place[1] >= ids[51] and one[0] != "t2"}
    pushed = client.do("read", options=at(running, queue="remote-rows", pushFilters="true"), where=where)
    assert {(partition, number) for partition, number, *_ in pushed} == chosen
    there = client.do("read", options=at(running, queue="remote-rows", filter="n = '3'", topics="t1"), where="true")
    assert Counter(row[4] for row in there) == Counter(f"body-{n}" for n in range(400) if n % 10 == 3 and n % 3 == 1)


def test_a_stream_reads_what_there_is_and_goes_on_behind_it(running: Engine, client: Client, tmp_path: Path) -> None:
    options = at(running, queue="remote-flow", subscription="remote", startingOffsets="earliest")
    sent = []
    with connect(running.address) as publisher:
        queue = publisher.create_queue("remote-flow", partitions=3)
        for count in (500, 30):
            sent += queue.put_many([NewMessage(b"x")] * count)
            rows = client.do("read_stream", options=options | {"maxOffsetsPerTrigger": "200"}, folder=str(tmp_path))
            assert sorted(map(tuple, rows)) == sorted((one.partition, int(one.id)) for one in sent)
            assert publisher.subscription_info("remote-flow", "remote").lag == 0


def test_a_batch_under_one_write_id_is_stored_once(running: Engine, client: Client) -> None:
    with connect(running.address) as publisher:
        publisher.create_queue("remote-written", partitions=2)
    for identity in ("first", "first", "second"):
        client.do("write", count=1000, options=at(running, queue="remote-written", writeId=identity))
    found = stored(running, "remote-written")
    assert Counter(one.body for one in found) == {b"body-%d" % n: 2 for n in range(1000)}
    for one in found:
        assert one.key == b"k%d" % (int(one.body[5:]) % 9)
        assert one.partition == partition_of(one.key, 2)


def test_a_stream_stores_each_file_once_though_its_last_micro_batch_runs_again(
    running: Engine, client: Client, tmp_path: Path
) -> None:
    with connect(running.address) as publisher:
        publisher.create_queue("remote-streamed", partitions=2)
    (tmp_path / "in").mkdir()
    sent, commits = list[bytes](), tmp_path / "state" / "commits"
    for number in range(3):
        names = [f"{number}-{row}" for row in range(300)]
        lines = [f'{{"value": "{name}", "key": "k"}}' for name in names]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines))
        sent += [name.encode() for name in names]
        client.do("write_stream", folder=str(tmp_path), options=at(running, queue="remote-streamed"))
    # As after a crash between the last micro-batch's rows and its entry in the commit log.
    for path in [*commits.glob("2"), *commits.glob(".2.*")]:
        path.unlink()
    client.do("write_stream", folder=str(tmp_path), options=at(running, queue="remote-streamed"))
    assert (commits / "2").exists()
    assert Counter(one.body for one in stored(running, "remote-streamed")) == Counter(sent)


def test_what_cannot_be_is_one_clear_error_and_a_job_asks_for_a_driver_of_its_own(
    running: Engine, client: Client, tmp_path: Path
) -> None:
    with connect(running.address) as publisher:
        publisher.create_queue("remote-bad").put(b"x")
    bad = at(running, queue="remote-bad")
    said = client.refused("read", options=bad | {"startingofset": "earliest"}, where="true")
    assert "did you mean 'startingOffsets'" in said
    assert "there is no queue 'nosuch'" in client.refused("read", options=at(running, queue="nosuch"), where="true")
    said = client.refused("write", count=1, options=bad | {"writeid2": "x"})
    assert "did you mean 'writeId'" in said
    assert "nosuch" in client.refused("write", count=1, options=at(running, queue="nosuch"))
    assert len(stored(running, "remote-bad")) == 1
    for name in ("archive", "export"):
        folder = tmp_path / name
        said = client.do("job", zookeeper=running.address, queue="remote-bad", folder=str(folder), name=name)
        assert said == ["invalid_request", JOB]
        assert not folder.exists()
