"""What every source that stands before another one passes on: news comes from the partition itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from delivery.dispatch.scanner import Source

S = TypeVar("S", bound=Source)


class Through(Generic[S]):
    """The beginning of a `scanner.Source` that reads another one."""

    def __init__(self, source: S) -> None:
        self._source = source

    def has_news(self, after: int) -> bool:
        """See scanner.Source."""
        return self._source.has_news(after)

    def follow(self, tell: Callable[[], None]) -> None:
        """See scanner.Source."""
        self._source.follow(tell)

    def unfollow(self, tell: Callable[[], None]) -> None:
        """See scanner.Source."""
        self._source.unfollow(tell)
