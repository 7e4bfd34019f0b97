"""The embedded message store: a folder per partition with append-only segments, shared by the hosts of one machine.

    DATA/layout.json                              the version of all that follows, and the folder's id
    DATA/queues/QUEUE~GENERATION/epochs           fencing, in shared memory (see `epochs`)
    DATA/queues/QUEUE~GENERATION/00042/lock       held while anything but the open segment's bytes changes
                                       EPOCH-BASEID.log    a segment: record batches one after another, nothing else;
                                                          zeros behind them while it is open
                                       EPOCH-BASEID.index  written when the segment is closed (see `index`)

Who does what: `folder` finds the places; `segment` names and opens files; `recovery` finds out what is there and seals
it; `reader` reads batches; `partition` is one partition under one epoch; `store` puts them together behind the
interface; `disk` is the seam to the operating system.

The rules that everything rests on:

- Only the owner of the newest epoch appends, to a segment of its own epoch; taking over closes the segment before.
- Write, sync, confirm the epoch, publish. Readers never pass what is published.
- All but the bytes of the open segment changes under the partition's lock and only while the epoch stands, so the worst
  that a fenced owner can still do is to write past an end that is stated already.
- A segment with an index is closed; at most one has none. A closed one that is shorter than stated is damaged; bytes
  past the stated end are never read.
"""

from __future__ import annotations

from delivery.storage.log.folder import check_layout
from delivery.storage.log.store import SegmentedLog

__all__ = ["SegmentedLog", "check_layout"]
