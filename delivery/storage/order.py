"""What every store asserts of the batches it is handed; a violation is a mistake of the caller, not of the input."""

from __future__ import annotations

from collections.abc import Sequence

from delivery.storage.base import Append


def assert_in_order(batches: Sequence[Append], last_id: int) -> None:
    """Assert that stamped batches of one partition are whole and that their ids rise above `last_id`.

    Recovery tells a batch from damage by just these marks, so one without them must never reach the disk.
    """
    for item in batches:
        header = item.header
        assert header.epoch == item.epoch, f"{item.key}: a batch stamped {header.epoch} is appended under {item.epoch}"
        assert header.partition == item.key.partition, f"{item.key}: a batch of partition {header.partition}"
        assert header.length == len(item.batch), f"{item.key}: {len(item.batch)} bytes, header says {header.length}"
        assert header.base_id > last_id, f"{item.key}: base id {header.base_id} is not above {last_id}"
        last_id = header.last_id
