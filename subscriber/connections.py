"""The connections of a database, each lent to one borrower at a time and kept for the next."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar


class Closing(Protocol):
    """A connection as this module knows it."""

    def close(self) -> object:
        """End it."""


C = TypeVar("C", bound=Closing)


class Connections(Generic[C]):
    """As many as were ever borrowed at once. Any thread may borrow."""

    def __init__(self, connect: Callable[[], C], is_broken: Callable[[C], bool] = lambda _: False) -> None:
        """One that `is_broken` when it comes back is not kept."""
        self._connect, self._is_broken = connect, is_broken
        self._idle: list[C] = []
        # Applications make what holds these where they define their listeners, and have no place to close it.
        weakref.finalize(self, _close, self._idle)

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[C]:
        """A connection that nobody else uses. Raises what connecting raises."""
        connection = self.borrow()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def borrow(self) -> C:
        """As `borrowed`, to be given back."""
        try:
            return self._idle.pop()
        except IndexError:  # asking before would leave room for another thread in between
            return self._connect()

    def give_back(self, connection: C) -> None:
        """Keep it for the next, unless it is broken."""
        if self._is_broken(connection):
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close those that nobody has borrowed."""
        _close(self._idle)


def _close(connections: list[C]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            connections.pop().close()
