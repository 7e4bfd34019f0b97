"""An audit against a real queue: what is planted among the records is found, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delivery import NewMessage, connect, wall
from delivery.errors import InvalidRequest, UnknownSubscription
from delivery.model import Message
from delivery.spark.jobs.audit.auditing import Wanted, audit
from delivery.spark.jobs.audit.counts import classes
from delivery.spark.jobs.choosing import Chosen
from subscriber import Recorder
from tests.integration.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


def stored(running: Engine) -> list[Message]:
    """80 messages, half of them of topic a; subscriptions all and some, which have acknowledged 60 of them."""
    with connect(running.address) as client:
        queue = client.create_queue("audited", partitions=2)
        for name, topics in (("all", None), ("some", ["a"])):
            client.create_subscription("audited", name, start="earliest", topics=topics)
        queue.put_many([NewMessage(b"x", topic="ab"[n % 2], partition=n % 2 if n < 40 else 0) for n in range(60)])
        for name in ("all", "some"):
            client.seek("audited", name, "latest")
        queue.put_many([NewMessage(b"x", topic="ab"[n % 2], partition=1) for n in range(20)])
        return list(queue.scanner())


def record(folder: Path, name: str, messages: list[Message], later_ms: int = 5) -> None:
    """As a listener that had each message so long after it was published."""
    with Recorder(folder, name) as recorder:
        for one in messages:
            before = wall.use(lambda at=one.id.timestamp_ms: (at + later_ms) / 1000)  # type: ignore[misc]
            try:
                recorder([one])
            finally:
                wall.use(before)


def test_what_is_missing_late_or_delivered_twice_is_found(running: Engine, spark: SparkSession, tmp_path: Path) -> None:
    messages = stored(running)
    waiting = [one for one in messages if one.partition == 1][20:]
    acknowledged = [one for one in messages if one not in waiting]
    lost, late, twice, stray = acknowledged[7:9], acknowledged[10:13], acknowledged[20:24], waiting[0]
    fine = [one for one in acknowledged if one not in [*lost, *late]]
    record(tmp_path / "records", "all", [*fine, *twice])
    record(tmp_path / "records", "all", late, later_ms=90_000)
    record(tmp_path / "records", "all", waiting[:2])
    record(tmp_path / "records", "other", lost)
    (tmp_path / "records" / "torn.deliveries.json").write_text('{"queue": "audited", "subscr')
    gone = Message(stray.number - 1, b"", "", None, 1, "audited")
    record(tmp_path / "records", "all", [gone])
    chosen = Chosen(zookeeper=running.address, queue="audited")
    done = audit(spark, chosen, tmp_path / "out", Wanted(records=str(tmp_path / "records")))
    assert done.messages == 80
    counts = done.subscriptions["all"]
    assert {name: counts[name] for name in ("published", "acknowledged", "waiting", "parked", "dead")} == {
        "published": 80, "acknowledged": 60, "waiting": 20, "parked": 0, "dead": 0,
    }  # fmt: skip
    assert {name: counts[name] for name in ("delivered", "missing", "late", "duplicates", "stray", "arrivals")} == {
        "delivered": 60, "missing": 2, "late": 3, "duplicates": 4, "stray": 1, "arrivals": 60,
    }  # fmt: skip
    assert (counts["to_5_ms"], counts["to_300000_ms"], counts["slowest_ms"]) == (57, 3, 90_000)
    assert (sum(classes(counts)), counts["watched"]) == (60, 80)
    some = done.subscriptions["some"]
    assert (some["published"], some["acknowledged"], some["waiting"], some["missing"]) == (40, 30, 10, 0)
    assert sum(classes(some)) == 0
    rows = spark.read.parquet(str(tmp_path / "out" / "findings")).collect()
    found = {(row.subscription, row.offset): tuple(row.findings) for row in rows}
    expected = {**dict.fromkeys(lost, ("missing",)), **dict.fromkeys(late, ("late",))}
    expected |= {**dict.fromkeys(twice, ("duplicate",)), gone: ("stray",)}
    assert found == {("all", one.number): what for one, what in expected.items()}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "1 lines of the records are cut off" in page
    assert page.count("There are no records") == 1
    with pytest.raises(InvalidRequest, match="there already"):
        audit(spark, chosen, tmp_path / "out")
    with pytest.raises(UnknownSubscription, match="did you mean 'some'"):
        audit(spark, chosen, tmp_path / "other", Wanted(subscriptions=("sone",)))
    only = audit(spark, chosen, tmp_path / "plain", Wanted(subscriptions=("some",))).subscriptions
    assert list(only) == ["some"]
    assert not (tmp_path / "plain" / "findings").exists()
