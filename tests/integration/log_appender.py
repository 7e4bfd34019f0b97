"""A process that appends to a log until it is killed; prints a batch's base id once the batch is acknowledged.

Arguments: data folder, epoch, seed.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from delivery.model import QueueSettings
from delivery.storage.log import SegmentedLog
from tests.stores import KEY, OTHER, batch


def body(base_id: int) -> bytes:
    """The body of the batch at a base id, so that anybody can check what comes back."""
    return str(base_id).encode() * (1 + base_id % 900)


def main() -> None:
    """Groups of up to 20 batches over two partitions, in segments so small that some end within every run."""
    chance = random.Random(int(sys.argv[3]))
    epoch = int(sys.argv[2])
    log = SegmentedLog(Path(sys.argv[1]), segment_bytes=100_000)
    last = {key: log.open(key, epoch, QueueSettings()).last_id for key in (KEY, OTHER)}
    while True:
        group = []
        for _ in range(chance.randint(1, 20)):
            key = chance.choice((KEY, OTHER))
            last[key] += chance.randint(1, 5)
            group.append(batch(last[key], [body(last[key])], key=key, epoch=epoch, producer=(epoch, last[key])))
        assert log.append(group) == [None] * len(group)
        sys.stdout.write("".join(f"{item.key.partition} {item.header.base_id}\n" for item in group))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
