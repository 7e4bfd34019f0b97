"""Each job of `hoot spark` on a real standalone cluster does what it says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset as ds
import pytest

from delivery import Client, Message, NewMessage, connect
from delivery.local import LocalEngine
from subscriber import Recorder, Subscriber
from tests.integration.embedded import eventually
from tests.integration.spark.cluster import SHORT_LIVED, Cluster
from tests.integration.spark.commands import run_all

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(3600)]

COUNT, KEYS = 600, 20
SECONDS = 2400.0
Content = Counter[tuple[bytes, bytes | None, str]]


class Told(NamedTuple):
    """What there is after all jobs have run, and what each of them said."""

    folder: Path
    client: Client
    stored: list[Message]
    said: dict[str, Any]


@pytest.fixture
def told(tmp_path: Path, standalone: tuple[LocalEngine, Cluster]) -> Iterator[Told]:
    running, spark = standalone
    with connect(running.address) as client:
        stored = publish(client, running.address, tmp_path / "deliveries")
        jobs = {
            "export": ["orders", f"{tmp_path}/out", "--format", "json"],
            "import": [f"{tmp_path}/out", "copy", "--format", "json", "--keep-partitions"],
            "replay": ["orders", "again", "--sql", "select * from messages where topic = 't1'", "--origin"],
            "compact": ["orders", "--into-folder", f"{tmp_path}/newest"],
            "archive": ["orders", "--to", f"{tmp_path}/archive"],
            "audit": ["orders", f"{tmp_path}/audit", "--records", f"{tmp_path}/deliveries"],
        }
        commands = [["spark", job, *arguments, "--json"] for job, arguments in jobs.items()]
        given = {"HOOT_ZOOKEEPER": running.address, "HOOT_SPARK_MASTER": spark.master, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = run_all(commands, SECONDS, **SHORT_LIVED, **given)
        assert [one.stderr for one in done if one.status] == []
        said = {job: json.loads(one.stdout) for job, one in zip(jobs, done, strict=True)}
        yield Told(tmp_path, client, stored, said)


def publish(client: Client, address: str, records: Path) -> list[Message]:
    """Messages that a subscriber hears, and records."""
    for name in ("orders", "copy", "again"):
        client.create_queue(name, partitions=2)
    orders, heard = client.queue("orders"), list[Message]()
    orders.put_many([
        NewMessage(b"body-%d" % n, key=b"k%d" % (n % KEYS), topic=f"t{n % 3}", headers={"n": b"%d" % n})
        for n in range(COUNT)
    ])  # fmt: skip
    subscriber = Subscriber("billing", zookeeper=address)
    subscription = subscriber.subscribe("orders", start="earliest")
    subscription.listener(heard.append)
    with Recorder(records, "billing") as recorder:
        subscription.batch_listener(recorder)
        subscriber.start()
        eventually(lambda: len(heard) >= COUNT, "all messages are heard")
        eventually(lambda: client.subscription_info("orders", "billing").lag == 0, "all are acknowledged")
        subscriber.stop()
    return list(orders.scanner())


def content(messages: list[Message]) -> Content:
    return Counter((one.body, one.key, one.topic) for one in messages)


def test_each_job_does_on_a_cluster_what_it_says(told: Told) -> None:
    exported_and_imported(told)
    replayed(told)
    compacted(told)
    archived(told)
    audited(told)


def exported_and_imported(told: Told) -> None:
    assert told.said["export"]["messages"] == told.said["import"]["messages"] == COUNT
    copied = list(told.client.queue("copy").scanner())
    assert content(copied) == content(told.stored)
    for number in range(2):
        in_order = [one.body for one in copied if one.partition == number]
        assert in_order == [one.body for one in told.stored if one.partition == number], "each partition in its order"


def replayed(told: Told) -> None:
    chosen = [one for one in told.stored if one.topic == "t1"]
    again = list(told.client.queue("again").scanner())
    assert told.said["replay"]["messages"] == len(chosen)
    assert content(again) == content(chosen)
    origins = {one.headers["hoot-origin"].decode() for one in again}
    assert origins == {f"orders/{one.partition}/{one.id}" for one in chosen}


def compacted(told: Told) -> None:
    rows = ds.dataset(told.folder / "newest", partitioning="hive").to_table().to_pylist()
    assert told.said["compact"]["kept"] == KEYS
    assert {(row["key"], row["value"]) for row in rows} == {
        (one.key, one.body) for one in {one.key: one for one in told.stored}.values()
    }


def archived(told: Told) -> None:
    assert sum(one["messages"] for one in told.said["archive"]["partitions"]) == COUNT
    table = ds.dataset(told.folder / "archive", partitioning="hive").to_table(columns=["partition", "offset", "value"])
    rows = [(row["partition"], row["offset"], row["value"]) for row in table.to_pylist()]
    assert sorted(rows) == sorted((one.partition, one.number, one.body) for one in told.stored)
    info = told.client.queue_info("orders")
    assert sum(file.messages for one in info.partitions for file in one.archived) == COUNT


def audited(told: Told) -> None:
    counts = told.said["audit"]["subscriptions"]["billing"]
    assert {name: counts[name] for name in ("published", "acknowledged", "delivered", "missing", "stray")} == {
        "published": COUNT, "acknowledged": COUNT, "delivered": COUNT, "missing": 0, "stray": 0,
    }  # fmt: skip
    assert "billing" in (told.folder / "audit" / "report.html").read_text()
