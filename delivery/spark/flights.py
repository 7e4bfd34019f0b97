"""What the demo asks Spark: the flights in a queue, per carrier."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession, functions as F  # noqa: N812 - as all of Spark's own texts write it

_FIELDS = "carrier string, dep_delay int"


def carrier_summary(session: SparkSession, zookeeper: str, queue: str) -> DataFrame:
    """Per carrier: `flights`, `departed` (with a departure delay) and `delay_sum` in minutes, read from the queue."""
    messages = session.read.format("hoot").option("zookeeper", zookeeper).option("queue", queue).load()
    flight = F.from_json(F.col("value").cast("string"), _FIELDS)
    return (
        messages.select(flight.alias("flight"))
        .groupBy("flight.carrier")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count("flight.dep_delay").alias("departed"),
            F.coalesce(F.sum("flight.dep_delay"), F.lit(0)).alias("delay_sum"),
        )
        .orderBy("carrier")
    )
