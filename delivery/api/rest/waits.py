"""Polls that wait for a message: each is a task that sleeps on its connection, and a follower of a partition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio
from starlette.requests import Request
from starlette.types import Receive

from delivery.api.rest.reading import Reading
from delivery.errors import InvalidRequest, Throttled

WAIT_SECONDS_MAX: Final = 300.0
"""The longest that a poll may ask for."""
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?\Z", re.ASCII)


class Waits:
    """All polls of a host that wait now. For the trio thread."""

    def __init__(self, waits_max: int) -> None:
        """More than `waits_max` at once are refused."""
        self._waits_max = waits_max
        self._count = 0
        self._scopes: set[trio.CancelScope] = set()
        self._ended = False

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def one(self) -> Iterator[None]:
        """Room for one more. Raises Throttled."""
        if self._count >= self._waits_max:
            raise Throttled(f"{self._waits_max} polls are waiting at this moment")
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    async def for_news(self, reading: Reading, deadline: float, receive: Receive) -> bool:
        """Return True as soon as there may be something for the reading.

        False when nothing will come: the time is over, the client has left, the partition is lost or the host stops.
        """
        if not self._ended and reading.owned.feed.error is None and not reading.has_news:
            with trio.CancelScope(deadline=deadline) as scope:
                self._scopes.add(scope)
                reading.owned.follow(scope.cancel)
                try:
                    await receive()  # returns when the client has left, and is cancelled by whatever else ends the wait
                finally:
                    reading.owned.unfollow(scope.cancel)
                    self._scopes.discard(scope)
        return not self._ended and reading.has_news

    def end(self) -> None:
        """The host stops: nobody waits any more, and nobody begins to."""
        self._ended = True
        for scope in list(self._scopes):
            scope.cancel()


def wait_seconds(request: Request) -> float:
    """How long a poll is to wait for its first message, by `wait` in the query. Raises InvalidRequest."""
    if not request.scope["query_string"] or (text := request.query_params.get("wait")) is None:
        return 0.0
    if not _SECONDS.match(text) or float(text) > WAIT_SECONDS_MAX:
        raise InvalidRequest(f"wait must be 0 to {WAIT_SECONDS_MAX:g} seconds, not {text[:40]!r}")
    return float(text)
