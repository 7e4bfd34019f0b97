"""Jobs of `hoot spark` that carry messages: into files and back, into other queues, and compacted; each once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delivery import NewMessage, connect
from delivery.errors import InvalidRequest
from delivery.ids import ID_MAX
from delivery.messaging.marks import header
from delivery.model import Message, partition_of
from delivery.spark.jobs import cleaning
from delivery.spark.jobs.choosing import Chosen, with_end
from delivery.spark.jobs.compacting import Into, compact
from delivery.spark.jobs.exporting import export_queue, import_files
from delivery.spark.jobs.files import Bodies, Files, Form
from delivery.spark.jobs.replaying import Wishes, replay
from delivery.spark.jobs.running import JobFailed, spread
from delivery.spark.ranges import Span
from tests.integration.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

NASTY = ["", " a ", 'say "so"', "a,b\nc\r\nd", "\\", "ü€😀", "null", "x" * 200]
SENT = [
    NewMessage(
        text.encode(), key=f"k{n}".encode() if n % 2 else None, topic="a" if n % 3 else "", partition=n % 3,
        headers={"h": text.encode(), "e": b""} if n % 4 else None,
    )
    for n, text in enumerate(NASTY * 3)
]  # fmt: skip


def stored(running: Engine, queue: str) -> list[Message]:
    with connect(running.address) as client:
        return list(client.queue(queue).scanner())


def fill(running: Engine, queue: str, messages: list[NewMessage], partitions: int = 3) -> Chosen:
    """A queue with these messages, in this order within a partition."""
    with connect(running.address) as client:
        client.create_queue(queue, partitions=partitions).put_many(messages)
    return Chosen(zookeeper=running.address, queue=queue)


def empty(running: Engine, queue: str, partitions: int = 3) -> str:
    with connect(running.address) as client:
        client.create_queue(queue, partitions=partitions)
    return queue


def said(messages: list[Message]) -> list[tuple[int, bytes, bytes | None, str, dict[str, bytes]]]:
    """Per partition in order, all that a publisher said."""
    found = [(one.partition, one.body, one.key, one.topic, one.headers) for one in messages]
    return sorted(found, key=lambda one: one[0])


def test_executors_look_for_what_invalid_transactions_have_left(running: Engine, spark: SparkSession) -> None:
    with connect(running.address) as client:
        client.create_queue("unclean", partitions=2)
        client.queue("unclean").put(b"left", partition=1, headers=header(pointer := client.transaction().pointer))
        look = cleaning.looking(running.address, frozenset([pointer, 17]))
        spans = [Span("unclean", partition, 0, ID_MAX) for partition in range(2)]
        assert spread(spark, look, spans, list[int]) == [[], [pointer]]
        client.transactions.invalidate(pointer)
    found = cleaning.clean(None, running.address)
    assert found is not None
    assert found.young >= 1
    assert found.ended == 0


@pytest.mark.parametrize(("form", "bodies"), [("parquet", "base64"), ("json", "base64"), ("csv", "text")])
def test_what_is_exported_is_imported_again_as_it_was_in_its_order_and_once(
    running: Engine, spark: SparkSession, tmp_path: Path, form: Form, bodies: Bodies
) -> None:
    raw = [] if bodies == "text" else [NewMessage(b"\xff\x00\xfe", key=b"\xff", partition=1, headers={"b": b"\x80"})]
    chosen = fill(running, f"out-{form}-{bodies}", [*SENT, *raw])
    files = Files(str(tmp_path / "files"), form, bodies)
    done = export_queue(spark, chosen, files)
    assert done.messages == len(SENT) + len(raw)
    with pytest.raises(InvalidRequest, match="is there already"):
        export_queue(spark, chosen, files)
    back = empty(running, f"back-{form}-{bodies}")
    for _ in range(2 if form == "parquet" else 1):
        told = import_files(spark, files, running.address, back, where="keep")
        assert told.messages == done.messages
    assert said(stored(running, back)) == said(stored(running, chosen.queue))


def test_bytes_that_are_no_text_are_an_error_of_an_export_as_text(
    running: Engine, spark: SparkSession, tmp_path: Path
) -> None:
    chosen = fill(running, "bytes", [NewMessage(b"\xff\x00")])
    with pytest.raises(InvalidRequest, match="base64"):
        export_queue(spark, chosen, Files(str(tmp_path / "files"), "json", "text"))


def test_files_of_others_keep_the_order_of_their_lines_and_broken_ones_store_nothing(
    running: Engine, spark: SparkSession, tmp_path: Path
) -> None:
    queue = empty(running, "others", partitions=2)
    (tmp_path / "a.csv").write_text("key,value\n" + "".join(f"k{n % 5},a{n:03}\n" for n in range(300)))
    for folder in ("here", "here", "elsewhere", "and/more", "again"):
        (tmp_path / folder).mkdir(exist_ok=True, parents=True)
        shutil.copy(tmp_path / "a.csv", tmp_path / folder)
        import_files(spark, Files(str(tmp_path / folder / "a.csv"), "csv"), running.address, queue)
    found = stored(running, queue)
    assert sorted(one.body.decode() for one in found) == [f"a{n:03}" for n in range(300)]
    for key in {one.key for one in found}:
        mine = [one for one in found if one.key == key]
        assert key is not None
        assert {one.partition for one in mine} == {partition_of(key, 2)}
        assert [one.body for one in mine] == sorted(one.body for one in mine)
    (tmp_path / "b.json").write_text('{"value": "fine"}\n{"value": \n')
    (tmp_path / "c.json").write_text('{"value": "x"}\n{"value": "x", "key_base64": "%%%"}\n{"key": "x"}\n')
    (tmp_path / "e.csv").write_text('value,headers,partition\nx,"[{",\nx,[],\nx,,seven\n')
    (tmp_path / "f.json").write_text('{"key": "x"}\n')
    (tmp_path / "d.csv").write_text("vale\nx\n")
    (tmp_path / "g.json").write_text('{"value": "x", "partition": 2000000000, "offset": 1}\n')
    (tmp_path / "h.json").write_text('{"value": "x", "partition": -1, "offset": 1}\n')
    broken: list[tuple[str, Form, str]] = [
        ("b.json", "json", "1 of 2 lines"), ("c.json", "json", "1 of 3 lines.*%%%"), ("d.csv", "csv", "mean 'value'"),
        ("e.csv", "csv", "2 of 3 lines"), ("f.json", "json", "1 of 1 rows have no value"), ("none", "csv", "none"),
        ("g.json", "json", "names 2000000000"), ("h.json", "json", "names -1"),
    ]  # fmt: skip
    for name, form, says in broken:
        with pytest.raises(InvalidRequest, match=says):
            import_files(spark, Files(str(tmp_path / name), form), running.address, queue)
    assert len(stored(running, queue)) == 300


def test_what_has_nothing_in_another_column_is_another_import(
    running: Engine, spark: SparkSession, tmp_path: Path
) -> None:
    queue = empty(running, "holes", partitions=1)
    rows = [
        '"key": "a"', '"topic": "a"', '"headers": [{"key": "a"}, {"key": "b", "value": "c"}]',
        '"headers": [{"key": "a", "value": "b"}, {"key": "c"}]',
    ]  # fmt: skip
    identities = set()
    for row in rows:
        (tmp_path / "x.json").write_text(f'{{"value": "x", {row}}}\n')
        identities.add(import_files(spark, Files(str(tmp_path / "x.json"), "json"), running.address, queue).identity)
    assert len(identities) == len(rows)
    found = {(one.key, one.topic, *one.headers.items()) for one in stored(running, queue)}
    assert found == {
        (b"a", ""), (None, "a"), (None, "", ("a", b""), ("b", b"c")), (None, "", ("a", b"b"), ("c", b"")),
    }  # fmt: skip


def test_a_replay_stores_each_message_once_in_the_order_of_its_partition(running: Engine, spark: SparkSession) -> None:
    chosen = with_end(fill(running, "source", SENT))
    target, fewer = empty(running, "replayed"), empty(running, "fewer", partitions=1)
    assert replay(spark, chosen, target, dry_run=True).messages == len(SENT)
    assert stored(running, target) == []
    for wishes in (Wishes(), Wishes(), Wishes(partitions="keep")):
        assert replay(spark, chosen, target, wishes).messages == len(SENT)
        with connect(running.address) as client:
            client.queue("source").put(b"later")
    assert said(stored(running, target)) == said([one for one in stored(running, "source") if one.body != b"later"])
    query = "select * except (topic), concat('new-', topic) as topic from messages where topic = 'a'"
    for _ in range(2):
        replay(spark, chosen, fewer, Wishes(sql=query, rate=200.0, origin=True))
    found = stored(running, fewer)
    source = {f"source/{one.partition}/{one.id}": one for one in stored(running, "source") if one.topic == "a"}
    origins = [one.headers["hoot-origin"].decode() for one in found]
    assert sorted(origins) == sorted(source)
    keyed = [one for one in origins if source[one].key is not None]
    assert keyed == sorted(keyed, key=lambda one: (source[one].number, source[one].partition))
    assert all(one.topic == "new-a" and one.body == source[at].body for one, at in zip(found, origins, strict=True))


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("select value from messages", "partition and offset"), ("select * from nosuch", "nosuch"), ("selec", "selec"),
        ("select *, 1 as size from messages", "no column 'size'"),
        ("select offset, partition, 7 as value from messages", "column value is int"),
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_stored_is_one_error(
    running: Engine, spark: SparkSession, query: str, says: str
) -> None:
    with connect(running.address) as client:
        for name in {"refusing-a", "refusing-b"} - set(client.queues()):
            client.create_queue(name)
    chosen = Chosen(zookeeper=running.address, queue="refusing-a")
    with pytest.raises((InvalidRequest, JobFailed), match=says) as told:
        replay(spark, chosen, "refusing-b", Wishes(sql=query))
    assert "\n" not in told.value.message


def test_an_aggregate_is_stored_once_though_its_rows_have_no_order(running: Engine, spark: SparkSession) -> None:
    chosen = with_end(fill(running, "counted", SENT))
    target = empty(running, "counts")
    query = "select topic as key, cast(count(*) as string) as value from messages group by topic"
    for _ in range(2):
        replay(spark, chosen, target, Wishes(sql=query, unordered=True))
    assert {(one.key, one.body) for one in stored(running, target)} == {(b"", b"8"), (b"a", b"16")}
    assert len(stored(running, target)) == 2


def test_compacting_keeps_the_newest_of_each_key_and_an_empty_body_deletes_its_key(
    running: Engine, spark: SparkSession, tmp_path: Path
) -> None:
    messages = [NewMessage(b"%d" % n, key=b"k%d" % (n % 7)) for n in range(100)]
    messages += [NewMessage(b"", key=b"k3"), NewMessage(b"alone"), NewMessage(b"")]
    chosen = with_end(fill(running, "states", messages))
    target, folder = empty(running, "compacted"), str(tmp_path / "table")
    done = compact(spark, chosen, Into(folder=folder))
    assert (done.messages, done.kept, done.deleted) == (103, 8, 1)
    for _ in range(2):
        compact(spark, chosen, Into(queue=target))
    latest = {b"k%d" % (n % 7): b"%d" % n for n in range(100)}
    del latest[b"k3"]
    table = spark.read.parquet(folder).collect()
    assert {bytes(row.key): bytes(row.value) for row in table if row.key is not None} == latest
    found = stored(running, target)
    assert {one.key: one.body for one in found if one.key is not None} == latest
    assert sorted(one.body for one in found if one.key is None) == [b"", b"alone"]
    assert len(found) == 8
    assert compact(spark, chosen, Into(queue=target), keep_empty=True, dry_run=True).deleted == 0
