"""The Lines: a host's connections to listeners, each shared by all subscriptions that are attached at its address.

A subscriber listens at one address for all of its subscriptions, and may have thousands: with a connection and a task
for each of them they would cost more than anything else of an idle subscription. A connection lives as long as somebody
uses it, and all who do hear of its end. That the right listener is there each subscription proves by itself (`link`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from delivery.dispatch.background import Background
from delivery.dispatch.guarding import tell_safely
from delivery.errors import HootError, SubscriberUnreachable, again
from delivery.rpc.connection import Connection

Connect = Callable[[str, int], Awaitable[Connection]]
"""Connects to an address and a port. Raises SubscriberUnreachable."""
Tell = Callable[[], None]

_Key = tuple[str, int, Tell | None]


class Line:
    """A connection that is open, or on its way to be."""

    __slots__ = ("connection", "error", "key", "opened", "scope", "users")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.connection: Connection | None = None
        self.error: HootError | None = None
        """Why it ended."""
        self.opened = trio.Event()
        self.scope = trio.CancelScope()
        self.users: dict[Tell, None] = {}
        """To be told of its end."""


class Lines:
    """Those of one host."""

    def __init__(self, connect: Connect, background: Background) -> None:
        """`connect` is also for who wants a connection that nobody else uses."""
        self.connect, self.background = connect, background
        self._lines: dict[_Key, Line] = {}

    async def take(self, address: str, port: int, on_end: Tell, *, alone: bool = False) -> tuple[Line, Connection]:
        """The connection to an address, or with `alone` one of its own, until `leave`.

        `on_end` is called once when it ends by itself; who is in a call hears by that, too. Raises
        SubscriberUnreachable, ListenerRefused. Cancelled: it is left.
        """
        key = (address, port, on_end if alone else None)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(key)
            self.background.start_soon(partial(self._serve, line))
        line.users[on_end] = None
        try:
            await line.opened.wait()
        except BaseException:
            self.leave(line, on_end)
            raise
        if line.connection is None or line.error is not None:
            raise again(line.error or _ended(address, port))
        return line, line.connection

    def leave(self, line: Line, on_end: Tell) -> None:
        """Use it no more; the last who leaves closes it."""
        line.users.pop(on_end, None)
        if not line.users:
            self._forget(line)
            line.scope.cancel()

    async def _serve(self, line: Line) -> None:
        address, port, _ = line.key
        try:
            with line.scope:
                await self._run(line, await self.connect(address, port))
        except HootError as error:
            line.error = error
        finally:
            self._forget(line)
            line.error = line.error or _ended(address, port)
            line.opened.set()
            users, line.users = line.users, {}
            for tell in users:
                tell_safely(tell, "a connection has ended")

    async def _run(self, line: Line, connection: Connection) -> None:
        line.connection = connection
        line.opened.set()
        try:
            await connection.run()
        finally:
            with trio.CancelScope(shield=True):
                await connection.aclose()

    def _forget(self, line: Line) -> None:
        if self._lines.get(line.key) is line:
            del self._lines[line.key]


def _ended(address: str, port: int) -> SubscriberUnreachable:
    return SubscriberUnreachable(f"the connection to {address}:{port} was closed")
