"""Mistakes with what is acknowledged by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from unittest import mock

from subscriber.inbox import PartitionInbox
from subscriber.manual import Taken, Unacknowledged
from subscriber.taking_back import TakenBack, TakingBack


def _forgotten() -> Any:
    """What is not acknowledged in time is waited for no longer, and the host hears nothing of it."""

    def forgetting(deciding: TakingBack, lapsed: Iterable[Taken], limit: float) -> list[TakenBack]:
        deciding._unacknowledged.take_back(lapsed)
        deciding._unacknowledged.give()
        return []

    return mock.patch.object(TakingBack, "take_back", forgetting)


def _all_again() -> Any:
    """Behind a message that is taken back everything comes again, acknowledged or not."""
    recall = PartitionInbox.recall

    def forgetful(inbox: PartitionInbox, first: int, numbers: Iterable[int], *, fails: bool) -> None:
        recall(inbox, first, numbers, fails=fails)
        inbox._reach = -1

    return mock.patch.object(PartitionInbox, "recall", forgetful)


def _late_counts() -> Any:
    """What was taken back can be acknowledged until it comes again."""
    acknowledge = Unacknowledged.acknowledge

    def credulous(unacknowledged: Unacknowledged, taken: Taken) -> bool:
        return acknowledge(unacknowledged, taken) or taken.number not in unacknowledged.open

    return mock.patch.object(Unacknowledged, "acknowledge", credulous)


FOUND_AS: Final = {
    "forgotten": (_forgotten, "I5 I11", ""),
    "all again": (_all_again, "I11", "again, which it has acknowledged"),
    "late counts": (_late_counts, "I11", "again, which it has acknowledged"),
}
