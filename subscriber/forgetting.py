"""When a store of ids forgets which: bounded by time and by number, looked at now and then. Plain decisions."""

from __future__ import annotations

import itertools
from typing import Final

from delivery.errors import InvalidRequest

FORGET_EVERY: Final = 1000
"""After so many ids it is looked what can be forgotten."""


class Forgetting:
    """Of one store. Any thread may ask."""

    def __init__(self, keep_seconds: float, keep_ids: int) -> None:
        """An id is forgotten `keep_seconds` after it was noted, or when `keep_ids` came after it.

        Its message must not come again after that: keep them for longer than a message is retried, or a subscriber
        may be away. Raises InvalidRequest for limits that are none.
        """
        if not (keep_seconds > 0 and keep_ids >= 1):
            raise InvalidRequest(
                f"keep ids for more than 0 seconds and at least one, not {keep_seconds} and {keep_ids}"
            )
        self.keep_ids = keep_ids
        self._keep_ms = keep_seconds * 1000
        self._added = itertools.count(1)

    def is_due(self) -> bool:
        """Whether to look now; to be asked for each id that is noted."""
        return next(self._added) % FORGET_EVERY == 0

    def before(self, now_ms: int, surplus_ms: int | None) -> float:
        """What was noted before this time, in ms, is forgotten.

        `surplus_ms` is the time of the newest id that has `keep_ids` after it, None without one: of what is too much,
        all goes that was noted before the last millisecond that is too much.
        """
        return max(now_ms - self._keep_ms, -1 if surplus_ms is None else surplus_ms)
