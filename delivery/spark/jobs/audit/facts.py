"""What became of each message for each subscription, counted by partition, topic, minute and listener, on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, functions as F  # noqa: N812 - as Spark's own texts write it

from delivery.dispatch.deadletters import PREFIX
from delivery.errors import UnknownQueue
from delivery.ids import ID_MAX
from delivery.metastore.policy import dead_letter_queue
from delivery.spark.jobs.audit.counts import COUNTS, EDGES_MS, LATENCIES, SLOWEST
from delivery.spark.jobs.audit.subjects import Subject
from delivery.spark.jobs.choosing import Chosen, Pinned, pin
from delivery.spark.planning import Engine

_BY: Final = ["subscription", "partition", "offset"]
_RECORD: Final = (
    "queue string, subscription string, partition int, at_ms bigint, listener string, ids array<bigint>, broken string"
)
_MINUTE: Final = 60_000


def facts(
    session: SparkSession, hosts: Engine, pinned: Pinned, subjects: Sequence[Subject], records: str, late_ms: int
) -> DataFrame:
    """A row for each message that a subscription is to have, and for each delivery of none of these."""
    expected = _expected(session, pinned, subjects).join(_settled(session, hosts, pinned, subjects), _BY, "left")
    state = F.when(F.col("settled").isNotNull(), F.col("settled")).when(
        F.col("offset") <= F.col("position"), F.lit("acknowledged")
    )
    rows = expected.withColumn("state", F.coalesce(state, F.lit("waiting"))).drop("settled", "position")
    if not records:
        nothing = {"times": "bigint", "first_ms": "bigint", "listener": "string"}
        rows = rows.withColumns({name: F.lit(None).cast(kind) for name, kind in nothing.items()})
        return rows.withColumns({name: F.lit(False) for name in ("watched", "missing", "late")})
    deliveries = _deliveries(session, pinned, subjects, records)
    # Whoever names where to begin vouches for the records from there on; else they begin with the first that there is.
    first = F.min("offset") if pinned.chosen.start == "earliest" else F.lit(0)
    begins = deliveries.groupBy("subscription").agg(first.alias("recorded_from"))
    found = rows.join(deliveries, _BY, "full").join(F.broadcast(begins), "subscription", "left")
    latency = F.col("first_ms") - F.shiftrightunsigned("offset", 15)
    watched = F.coalesce(F.col("offset") >= F.col("recorded_from"), F.lit(False))
    return found.withColumns({
        "watched": watched,
        "missing": F.coalesce((F.col("state") == "acknowledged") & F.col("times").isNull() & watched, F.lit(False)),
        "late": F.coalesce(latency > late_ms, F.lit(False)),
    })  # fmt: skip


def table(rows: DataFrame) -> DataFrame:
    """The counts. A message counts at its minute, and its first delivery once more, as an arrival, at that one's."""
    published, delivered = F.shiftrightunsigned("offset", 15), F.col("first_ms")
    events = F.array(
        F.struct(_minute(published).alias("minute"), F.lit(True).alias("own")),
        F.struct(_minute(delivered).alias("minute"), F.lit(False).alias("own")),
    )
    each = rows.withColumn("event", F.explode(events)).where("event.minute is not null")
    own, there = F.col("event.own"), F.col("state").isNotNull()
    latency = F.when(delivered.isNotNull(), F.greatest(F.lit(0), delivered - published))
    whens = {
        "published": own & there, "delivered": own & there & F.col("times").isNotNull(),
        "watched": own & there & F.col("watched"), "missing": own & F.col("missing"),
        "late": own & there & F.col("late"), "stray": own & ~there, "arrivals": ~own & there,
        **{name: own & (F.col("state") == name) for name in ("acknowledged", "parked", "dead", "waiting")},
    }  # fmt: skip
    counts = {name: F.count_if(when) for name, when in whens.items()}
    counts["duplicates"] = F.coalesce(F.sum(F.when(own & there, F.col("times") - 1)), F.lit(0))
    below = [F.lit(-1), *(F.lit(edge) for edge in EDGES_MS)]
    for name, low, high in zip(LATENCIES, below, [*below[1:], None], strict=True):
        counts[name] = F.count_if(own & there & (latency > low) & (F.lit(True) if high is None else latency <= high))
    counts[SLOWEST] = F.coalesce(F.max(F.when(own & there, latency)), F.lit(0))
    by: list[str | Column] = [*_BY[:2], "topic", F.col("event.minute").alias("minute"), "listener"]
    names = [*COUNTS, *LATENCIES, SLOWEST]
    return each.groupBy(*by).agg(*(counts[name].cast("bigint").alias(name) for name in names))


def findings(rows: DataFrame) -> DataFrame:
    """The messages that are missing, late, delivered twice, or not there."""
    kinds = {
        "missing": F.col("missing"), "late": F.col("late"), "duplicate": F.col("times") > 1,
        "stray": F.col("state").isNull(),
    }  # fmt: skip
    said = F.array_compact(F.array(*(F.when(when, F.lit(kind)) for kind, when in kinds.items())))
    shown = rows.select(*_BY, "topic", "state", "times", "first_ms", "listener", said.alias("findings"))
    return shown.where(F.size("findings") > 0)


def broken_lines(session: SparkSession, records: str) -> int:
    """Lines of records that cannot be read: those that a kill of their process has cut."""
    # Spark refuses a query of this column alone.
    found = _lines(session, records).agg(F.count("broken").alias("broken"), F.count("ids")).first()
    return 0 if found is None else int(found.broken)


def _expected(session: SparkSession, pinned: Pinned, subjects: Sequence[Subject]) -> DataFrame:
    """The messages of each subscription, read once for all that have the same topics and filter."""

    def wanted(one: Subject) -> tuple[tuple[str, ...], str]:
        return one.topics, one.filter

    parts = []
    for (topics, rule), group in groupby(sorted(subjects, key=wanted), key=wanted):
        chosen = msgspec.structs.replace(pinned.chosen, topics=topics, filter=rule)
        messages = msgspec.structs.replace(pinned, chosen=chosen).read(session, "partition,offset,topic")
        places = [
            (one.name, place.partition, place.start, ID_MAX if place.end is None else place.end, place.position)
            for one in group
            for place in one.reached
        ]
        schema = "subscription string, partition int, start bigint, end bigint, position bigint"
        joined = messages.join(F.broadcast(session.createDataFrame(places, schema)), "partition")
        parts.append(joined.where("offset > start and offset <= end").drop("start", "end"))
    return reduce(DataFrame.unionByName, parts)


def _settled(session: SparkSession, hosts: Engine, pinned: Pinned, subjects: Sequence[Subject]) -> DataFrame:
    """What is parked, and what lies among the dead letters."""
    rows = [
        (one.name, place.partition, number, "parked")
        for one in subjects
        for place in one.reached
        for number in place.parked
    ]
    schema = "subscription string, partition int, offset bigint, settled string"
    found = session.createDataFrame(rows, schema)
    for one in subjects:
        dead = Chosen(zookeeper=pinned.chosen.zookeeper, queue=dead_letter_queue(pinned.chosen.queue, one.name))
        try:
            letters = pin(hosts, dead).read(session, "headers")
        except UnknownQueue:
            continue
        found = found.unionByName(_dead(letters, pinned.chosen.queue, one.name))
    return found.groupBy(*_BY).agg(F.min("settled").alias("settled"))  # dead, if it is parked as well


def _dead(letters: DataFrame, queue: str, subscription: str) -> DataFrame:
    def told(name: str) -> Column:
        return F.filter("headers", lambda one: one["key"] == PREFIX + name)[0]["value"].cast("string")

    parts = F.split(told("id"), "-")
    number = parts[0].try_cast("bigint") * 32768 + parts[1].try_cast("bigint")
    rows = letters.where(F.size(F.filter("headers", lambda one: one["key"] == PREFIX + "id")) > 0)
    return rows.where(told("queue") == queue).select(
        F.lit(subscription).alias("subscription"), told("partition").try_cast("int").alias("partition"),
        number.alias("offset"), F.lit("dead").alias("settled"),
    )  # fmt: skip


def _deliveries(session: SparkSession, pinned: Pinned, subjects: Sequence[Subject], records: str) -> DataFrame:
    """Of each message how often it was delivered, when first and by whom."""
    schema = "partition int, after bigint, until bigint"
    spans = session.createDataFrame([(one.partition, one.after, one.until) for one in pinned.spans], schema)
    mine = _lines(session, records).where(F.col("queue") == pinned.chosen.queue)
    each = mine.where(F.col("subscription").isin([one.name for one in subjects])).select(
        "subscription", "partition", "at_ms", "listener", F.explode("ids").alias("offset")
    )
    within = each.join(F.broadcast(spans), "partition").where("offset > after and offset <= until")
    return within.groupBy(*_BY).agg(
        F.count(F.lit(1)).alias("times"), F.min("at_ms").alias("first_ms"),
        F.min_by("listener", "at_ms").alias("listener"),
    )  # fmt: skip


def _lines(session: SparkSession, records: str) -> DataFrame:
    reader = session.read.schema(_RECORD).option("columnNameOfCorruptRecord", "broken")
    return reader.option("pathGlobFilter", "*.deliveries.json").json(records)


def _minute(milliseconds: Column) -> Column:
    """Its begin, in milliseconds since 1970."""
    return milliseconds - milliseconds % F.lit(_MINUTE)
