"""The process of the demo that counts with Spark: `python -m delivery.demo.spark_side ZOOKEEPER QUEUE FOLDER`.

Its own process, so that Spark's messages and its JVM stay apart from the demo. Prints one line of JSON: the Sums of
each carrier. Ends at the end of its standard input, as the JVM then does at the end of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from delivery.demo.flights import Sums
from delivery.embedded.lifeline import end_with_parent
from delivery.spark.flights import carrier_summary
from delivery.spark.session import local_session


def count(zookeeper: str, queue: str, folder: Path) -> dict[str, Sums]:
    """Start Spark, count, and stop it. A record that Spark could not read stands under an empty name."""
    session = local_session("hoot demo", folder)
    try:
        rows = carrier_summary(session, zookeeper, queue).collect()
    finally:
        session.stop()
    return {row["carrier"] or "": (row["flights"], row["departed"], row["delay_sum"]) for row in rows}


if __name__ == "__main__":
    end_with_parent()
    print(msgspec.json.encode(count(sys.argv[1], sys.argv[2], Path(sys.argv[3]))).decode(), flush=True)
