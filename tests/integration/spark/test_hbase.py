"""Executors that read the tables of a real HBase themselves: the rows that region hosts give, and no others."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from delivery import Client, Message, NewMessage, connect
from delivery.hbase import Tables, parse_gateways
from delivery.local import LocalEngine
from delivery.model import QueueSettings
from delivery.spark.options import read_options
from delivery.spark.ranges import Span
from delivery.spark.source import HootReader
from delivery.spark.tables import pieces
from delivery.storage.hbase import HBaseStore, keys
from tests.integration.engine import engine
from tests.stores import KEY, batch, batches_of, store_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.hbase, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

BODY = b"x" * 3000
COUNT = 3000
"""Of these bodies: more than is asked of a table at once, in each of two partitions."""
Row = tuple[int, int, bytes, bytes | None, str, tuple[tuple[str, bytes], ...]]


class Site(NamedTuple):
    """An engine that stores in HBase."""

    running: LocalEngine
    client: Client
    past: dict[str, str]
    """The options that have executors read the tables."""

    @property
    def through(self) -> dict[str, str]:
        """Those that do not."""
        return {"zookeeper": self.running.address}

    def read(self, spark: SparkSession, **options: str) -> tuple[list[Row], list[Row]]:
        """The rows of queue `orders` past the region hosts, and through them."""
        reader = spark.read.format("hoot").option("queue", "orders")
        past, through = (reader.options(**options, **these).load() for these in (self.past, self.through))
        return found(past), found(through)


@pytest.fixture(params=["rows", "batches"])
def site(request: pytest.FixtureRequest, tmp_path: Path, hbase_gateways: str) -> Iterator[Site]:
    prefix = f"s{secrets.token_hex(6)}"
    settings = (f"hbase_prefix={prefix}", f"hbase_layout={request.param}")
    named = [part for setting in settings for part in ("--set", setting)]
    with (
        engine(tmp_path, "--store", "hbase", "--hbase-thrift", hbase_gateways, *named) as running,
        connect(running.address) as client,
    ):
        client.create_queue("orders", partitions=2)
        yield Site(running, client, {"zookeeper": running.address, "hbase": hbase_gateways, "hbasePrefix": prefix})


def publish(client: Client, count: int) -> None:
    """Of all kinds: with and without keys, headers and topics."""
    client.queue("orders").put_many([
        NewMessage(
            b"%d " % n + BODY, key=b"k%d" % (n % 7) if n % 2 else None, topic=("", "tea", "food")[n % 3],
            headers={"n": b"%d" % (n % 5)} if n % 4 else None, partition=n % 2,
        )
        for n in range(count)
    ])  # fmt: skip


def found(rows: DataFrame) -> list[Row]:
    return sorted(
        (
            row.partition, row.offset, bytes(row.value), None if row.key is None else bytes(row.key), row.topic,
            tuple((one.key, bytes(one.value)) for one in row.headers),
        )
        for row in rows.collect()
    )  # fmt: skip


def stored(client: Client) -> list[Row]:
    def row(one: Message) -> Row:
        return one.partition, one.number, one.body, one.key, one.topic, tuple(one.headers.items())

    return sorted(map(row, client.queue("orders").scanner()))


def read_by(reader: HootReader, tasks: Any) -> list[int]:
    return sorted(number for task in tasks for part in reader.read(task) for number in part["offset"].to_pylist())


def test_executors_read_from_the_tables_what_region_hosts_give(site: Site, spark: SparkSession, tmp_path: Path) -> None:
    client = site.client
    publish(client, COUNT)
    site.running.host.kill()
    site.running.host.start()
    publish(client, 500)  # under another epoch
    everything = stored(client)
    assert len(everything) == COUNT + 500
    ids = [one[1] for one in everything if one[0] == 1]
    edges = {name: f'{{"orders": {{"1": {at}}}}}' for name, at in
             (("startingOffsets", ids[100]), ("endingOffsets", ids[-100]))}  # fmt: skip
    asked: list[dict[str, str]] = [
        {}, {"minPartitions": "7"}, {"topics": "te*"}, {"filter": "n = '3'"}, edges, {"includeHeaders": "true"},
    ]  # fmt: skip
    counts = []
    for options in asked:
        past, through = site.read(spark, **options)
        assert past == through
        assert set(past) <= set(everything)
        counts.append(len(past))
    assert counts[0] == counts[1] == counts[5] == COUNT + 500
    assert counts[4] == COUNT + 500 - 200
    assert 0 < counts[2] < counts[0]
    assert 0 < counts[3] < counts[0]
    streamed = tmp_path / "streamed"
    rows = spark.readStream.format("hoot").option("queue", "orders").options(**site.past)
    writer = rows.option("startingOffsets", "earliest").load().writeStream.format("parquet")
    writer = writer.option("path", str(streamed)).option("checkpointLocation", str(tmp_path / "state"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert query.exception() is None
    assert found(spark.read.parquet(str(streamed))) == everything


def test_no_host_is_needed_to_read_and_nothing_that_came_after_the_plan_is_read(site: Site) -> None:
    publish(site.client, COUNT)
    before = stored(site.client)
    reader = HootReader(read_options({"queue": "orders", **site.past}))
    tasks = reader.partitions()
    publish(site.client, 50)
    assert len(stored(site.client)) == len(before) + 50
    site.running.host.kill()
    assert read_by(reader, tasks) == sorted(one[1] for one in before)


def test_a_prefix_that_is_not_the_hosts_is_one_error_in_the_driver(site: Site, spark: SparkSession) -> None:
    publish(site.client, 10)
    reader = spark.read.format("hoot").option("queue", "orders").options(**site.past)
    with pytest.raises(Exception, match="has no table other"):
        reader.option("hbasePrefix", "other").load().count()


@pytest.mark.parametrize("layout", ["rows", "batches"])
def test_what_an_owner_wrote_when_another_had_sealed_is_not_read(hbase_gateways: str, layout: Any) -> None:
    prefix = f"s{secrets.token_hex(6)}"

    def opened(epoch: int) -> HBaseStore:
        store = HBaseStore(Tables(parse_gateways(hbase_gateways)), prefix=prefix, layout=layout)
        store.open(KEY, epoch, QueueSettings())
        return store

    with (
        closing(opened(1)) as old,
        closing(opened(2)) as new,
        closing(Tables(parse_gateways(hbase_gateways))) as tables,
    ):
        assert old.append([batch(20, [b"late"])]) != [None], "it is fenced"
        store_all(new, [batch(10, [b"first"], epoch=2), batch(30, [b"last"], epoch=2)])
        table = keys.table_name(prefix, KEY.queue, KEY.generation)
        written = tables.scan(table, b"", b"\xff", [b"message", b"batch"])
        assert any(b"late" in cell for _, cells in written for cell in cells.values()), "but its row is in the table"
        options = read_options({"queue": KEY.queue, "hbase": hbase_gateways, "hbasePrefix": prefix})
        sent = b"".join(data for data, _ in pieces(tables, options, KEY.generation, Span(KEY.queue, 3, 0, 30), 1 << 20))
        assert sent == b"".join(batches_of(new))
