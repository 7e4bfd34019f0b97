"""The case `spread`: one subscription of a queue with many partitions, beside one of a queue with a single one.

In turn, in one run: each publishes the same messages in batches of the same size, which go to one partition after the
other at random; or, with keys, each message goes where its key belongs. `touched` tells how many partitions got any.
"""

from __future__ import annotations

import msgspec

from delivery.bench.cases import live
from delivery.bench.report import Result
from delivery.bench.stage import Setup


def spread(setup: Setup) -> Result:
    """See above. The figures are those of the queue with many partitions."""
    alone = live(msgspec.structs.replace(setup, partitions=1)).messages_per_second
    found = live(setup)
    return msgspec.structs.replace(
        found, case="spread", one_per_second=alone, ratio_to_one=round(found.messages_per_second / alone, 3)
    )
