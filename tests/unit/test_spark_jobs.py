"""What jobs of `hoot spark` decide before and after Spark: ranges, identities, pace, and what is told of an error."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql.types import StringType, StructField, StructType

from delivery.errors import InvalidRequest
from delivery.ids import LATEST, MessageId
from delivery.metastore.records import QueueRecord
from delivery.model import QueueSettings
from delivery.spark.jobs.choosing import Chosen, Pinned, pin, within
from delivery.spark.jobs.compacting import Into
from delivery.spark.jobs.failing import plainly
from delivery.spark.jobs.files import Files
from delivery.spark.jobs.running import JobFailed, why
from delivery.spark.jobs.storing import settled
from delivery.spark.options import Edge
from delivery.spark.pacing import paced
from delivery.spark.planning import Engine
from delivery.spark.ranges import Held, Span, begin, end
from delivery.spark.sinkoptions import write_options

PLACE = ("orders", 0)


@pytest.mark.parametrize(
    ("held", "after", "until", "found"),
    [
        (Held(10, 90, 5, 0), 0, LATEST, (9, 90)), (Held(10, 90, 5, 0), 20, 50, (20, 50)),
        (Held(10, 90, 5, 0), 0, 200, (9, 90)), (Held(10, 90, 5, 0), 60, 50, (60, 60)),
        (Held(10, 90, 5, 0), 0, 5, (9, 9)), (Held(10, 90, 5, 0), 200, LATEST, (90, 90)),
        (Held(10, 90, 5, 0), 200, 300, (90, 90)), (Held(91, 90, 0, 0), 0, LATEST, (90, 90)),
        (Held(0, 0, 0, 0), 7, 9, (0, 0)),
    ],
)  # fmt: skip
def test_a_job_takes_what_is_held_between_its_ends(
    held: Held, after: int, until: int, found: tuple[int, int]
) -> None:  # fmt: skip
    span = within(PLACE, held, after, until)
    assert (span.after, span.until) == found
    first, behind = (Edge("ids", each={"orders": {0: number + 1}}) for number in found)
    asked = begin(first, PLACE, held, strict=True), end(behind, PLACE, held, strict=True)
    assert asked == found, "and a read of that stretch is not refused"


class Deciding:
    """An engine with a partition of which nothing behind id 50 is decided."""

    def queue(self, _: str) -> QueueRecord:
        return QueueRecord("orders", "g1", 0, QueueSettings())

    def held(self, places: Iterable[tuple[str, int]], isolation: str | None = None) -> dict[tuple[str, int], Held]:
        return dict.fromkeys(places, Held(10, 50 if isolation == "committed" else 90, 5, 0))

    def counted(self, spans: list[Span]) -> list[Span]:
        return [span for span in spans if span.after < span.until]


def test_a_job_that_begins_behind_what_is_decided_takes_nothing_and_ends_with_that() -> None:
    chosen = Chosen(zookeeper="zk:1", queue="orders", start=70, isolation="committed")
    found = pin(cast("Engine", Deciding()), chosen)
    assert [(span.after, span.until) for span in found.spans] == [(50, 50)], "as a read that sees no more can be told"
    assert found.end == 51


def pinned(last: int, **changes: object) -> Pinned:
    given = {"zookeeper": "zk:1", "queue": "orders", **changes}
    return Pinned(Chosen(**given), "g1", (Span(*PLACE, 5, last),))  # type: ignore[arg-type]


def test_a_job_that_runs_again_up_to_the_end_it_told_is_the_same_write() -> None:
    first = pinned(90)
    again = pinned(90, end=first.end)
    assert first.end == again.end == 91
    assert pinned(700, end=first.end).identity("to") == again.identity("to") == first.identity("to")
    others = {
        pinned(91).identity("to"), first.identity("elsewhere"), pinned(90, start=7).identity("to"),
        pinned(90, topics=("a",)).identity("to"), pinned(90, filter="x = 1").identity("to"),
    }  # fmt: skip
    assert len(others | {first.identity("to")}) == 6
    assert pinned(90, zookeeper="zk2:1,zk:1").identity("to") == first.identity("to")
    assert pinned(90, end=datetime(2026, 1, 31, tzinfo=UTC)).end == MessageId.of(1769817600000)


@given(
    sizes=st.lists(st.integers(0, 300), max_size=8), rate=st.sampled_from([0.5, 3.0, 200.0, 1e6]),
    cuts=st.lists(st.integers(0, 300), max_size=8),
)  # fmt: skip
def test_the_pieces_of_a_paced_write_depend_on_the_rows_alone(sizes: list[int], rate: float, cuts: list[int]) -> None:
    rows = list(range(sum(sizes)))

    def batches(edges: list[int]) -> list[pa.RecordBatch]:
        ends = sorted({0, len(rows), *(one for one in edges if one < len(rows))})
        parts = [rows[low:high] for low, high in pairwise(ends)]
        return [pa.RecordBatch.from_pydict({"n": pa.array(part, pa.int64())}) for part in parts]

    def pieces(edges: list[int]) -> list[tuple[int, float, list[int]]]:
        found = paced(batches(edges), rate)
        return [(one.number, one.due, [n for part in one.rows for n in part["n"].to_pylist()]) for one in found]

    one = pieces(cuts)
    assert one == pieces([])
    assert [n for _, _, part in one for n in part] == rows
    assert [number for number, _, _ in one] == list(range(len(one)))
    sent = 0
    for _, due, part in one:
        assert sent <= due * rate + 1e-6, "no piece comes before its time"
        assert part
        sent += len(part)


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (
            Py4JError(
                "An error occurred\n  File x\ndelivery.errors.UnknownQueue: there is no queue 'x'\n\tat org.apache.Y\n"
            ),
            JobFailed, "UnknownQueue: there is no queue 'x'",
        ),
        (
            Py4JError("org.apache.Z: Traceback\ndelivery.errors.InvalidRequest: 3 rows have no value\n"),
            InvalidRequest, "3 rows have no value",
        ),
        (
            Py4JError("job aborted\norg.apache.spark.SparkRuntimeException: [INVALID_UTF8_STRING] Invalid"),
            InvalidRequest, "as base64",
        ),
        (AnalysisException("[UNRESOLVED] no x\nin line 1\n== SQL =="), InvalidRequest, "[UNRESOLVED] no x"),
        (
            Py4JError(
                "org.apache.spark.api.python.PythonException: An exception was thrown from the Python worker:\n"
                'Traceback (most recent call last):\n  File "worker.py", line 9\n    rows()\nKeyError: 1\n\n'
                "During handling of the above exception, another exception occurred:\n\n"
                'Traceback (most recent call last):\n  File "worker.py", line 12\nMemoryError: 9 GB are not there\n'
            ),
            JobFailed, "MemoryError: 9 GB are not there",
        ),
        (Py4JError("the cluster is gone\n\tat x"), JobFailed, "the cluster is gone"),
    ],
)  # fmt: skip
def test_of_spark_s_pages_one_line_is_told(error: BaseException, kind: type, told: str) -> None:
    found = plainly(error)
    assert type(found) is kind
    assert told in found.message
    assert "\n" not in found.message


def test_messages_go_to_the_same_partitions_if_there_are_as_many_and_else_by_their_keys() -> None:
    assert settled(None, 3, QueueSettings(partitions=3)) == "keep"
    assert settled(None, 3, QueueSettings(partitions=4)) == "key"
    assert settled("keep", 3, QueueSettings(partitions=4)) == "keep"


def test_a_pace_is_a_number_above_0_and_for_batches() -> None:
    rows = StructType([StructField("value", StringType())])
    options = {"queue": "orders", "rowsPerSecond": "2.5"}
    assert write_options(options, rows, overwrite=False, stream=False).rate == 2.5
    with pytest.raises(InvalidRequest, match="for batches"):
        write_options(options, rows, overwrite=False, stream=True)
    for wrong in ("0", "-1", "nan", "inf", "fast"):
        with pytest.raises(InvalidRequest, match="rowsPerSecond"):
            write_options({"queue": "orders", "rowsPerSecond": wrong}, rows, overwrite=False, stream=False)


def test_what_cannot_be_is_refused_before_spark_starts() -> None:
    for wrong in (
        Files("x", "xml").checked, Files("x", bodies="hex").checked,  # type: ignore[arg-type]
        lambda: settled("any", 1, QueueSettings()),  # type: ignore[arg-type]
        lambda: Into().checked("a"), lambda: Into("x", "b").checked("a"), lambda: Into(queue="a").checked("a"),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest):
            wrong()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (": org.apache.spark.SparkException: Invalid master URL: x\n\tat org.Y(Y:5)\n", "Invalid master URL: x"),
        (": io.A: An error.\n\tat x\nCaused by: java.io.IOException: refused: /::1\n\t... 2 more\n", "refused: /::1"),
        (": java.lang.Z: Cannot call methods on a stopped SparkContext.\n", "no master answers there"),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited.", "[JAVA_GATEWAY_EXITED] Java gateway process exited."),
        ("", "Py4JError"),
    ],
)  # fmt: skip
def test_of_a_start_that_fails_the_last_reason_is_told(text: str, told: str) -> None:
    assert why(Py4JError(text)) == told
