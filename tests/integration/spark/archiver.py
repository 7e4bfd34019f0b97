"""An archive job in a process of its own, to be killed: the driver, with its executors' work done in it, too.

python -m tests.integration.spark.archiver ZOOKEEPER QUEUE FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from delivery.spark import ranges
from delivery.spark.jobs.archive import Job
from delivery.spark.jobs.archiving import archive_stretch
from delivery.spark.planning import engine
from delivery.storage.archive.writing import Stretch, Written

FILE_MESSAGES = 500


def main(zookeeper: str, queue: str, folder: Path) -> None:
    """Run the job."""
    with engine(zookeeper) as hosts:

        def spread(place: Path, stretches: Sequence[Stretch]) -> list[Written | None]:
            return [archive_stretch(hosts, place, one) for one in stretches]

        Job(hosts.catalog, hosts, hosts.queue(queue), folder).run(spread, 2, lambda *_: None)


if __name__ == "__main__":
    ranges.TASK_MESSAGES = FILE_MESSAGES  # type: ignore[misc] # many files of few messages
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
