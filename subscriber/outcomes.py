"""What a listener can say of a message that it did not handle, by returning one of these or by raising it."""

from __future__ import annotations

import math

from delivery.errors import InvalidRequest

AFTER_MAX = 7 * 86_400.0
"""A week."""


class Outcome(Exception):
    """Base of both."""


class Retry(Outcome):
    """Not handled: deliver it again, `after` so many seconds or, without, when the subscription's policy says so."""

    def __init__(self, after: float | None = None, reason: str = "") -> None:
        """Raises InvalidRequest for a time that is none, or above a week."""
        given: object = after
        if given is not None and not (isinstance(given, int | float) and 0 <= given <= AFTER_MAX):
            raise InvalidRequest(f"a message can come again after 0 to {AFTER_MAX:g} seconds, not {str(after)[:40]}")
        super().__init__(reason or "the listener asks for it again")
        self.after = after

    @property
    def after_ms(self) -> int | None:
        """`after` in whole milliseconds."""
        return None if self.after is None else math.ceil(self.after * 1000)


class Reject(Outcome):
    """Not handled, and never will be: put it aside at once."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the listener rejects it")
