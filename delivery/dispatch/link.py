"""The Link: a host's connection to one attached listener, shared by all workers of the subscription.

Before anything is sent the listener must answer `hello` with the token of its registration: a port that another
program took over gets no message. A broken connection is opened again with growing pauses, for as long as the listener
stays registered.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable

import trio

from delivery.config import HostConfig
from delivery.dispatch.plain import PlainTarget
from delivery.dispatch.target import Answer, More, Stream, Target
from delivery.errors import HootError, SubscriberUnreachable
from delivery.metastore.records import ListenerRecord
from delivery.rpc.connection import Connection

log = logging.getLogger(__name__)

Connect = Callable[[str, int], Awaitable[Connection]]
"""Connects to an address and a port. Raises SubscriberUnreachable."""


class PackedTarget:
    """Pushes record batches as they are, many before the first answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def ready(self) -> bool:
        """Whether the listener's socket takes bytes."""
        return self._connection.ready

    def when_ready(self, tell: Callable[[], None]) -> None:
        """Call `tell` once when it does again, or is gone."""
        self._connection.when_ready(tell)

    def push(
        self, stream: Stream, run: int, after: int, data: bytes, on_answer: Callable[[Answer | HootError], None],
        more: More | None = None,
    ) -> None:  # fmt: skip
        """Send one push; raises HootError when the connection is broken."""
        place = (stream.queue, stream.subscription, stream.partition, stream.epoch)
        if more is None:
            self._connection.push(*place, run, after, data, on_answer, moves=stream.moves)
        else:
            self._connection.push(
                *place, run, after, data, on_answer, moves=stream.moves, parked=more.parked, again=more.again,
                settled=more.settled,
            )  # fmt: skip


class Link:
    """Owns the connection while `run` runs; workers wait for it in `target`."""

    def __init__(
        self, queue: str, subscription: str, listener: ListenerRecord, config: HostConfig,
        connect: Connect,
    ) -> None:  # fmt: skip
        self._queue, self._subscription, self._listener, self._config = queue, subscription, listener, config
        self._connect = connect
        self._target: Target | None = None
        self._connected = trio.Event()
        self._reachable = True
        self.down_since: float | None = time.monotonic()
        """Since when there is no proven connection; None while there is one."""
        self.trouble = ""
        """Why there is none, since an attempt has failed."""

    async def target(self) -> Target:
        """The proven connection; waits until there is one."""
        while self._target is None:
            await self._connected.wait()
        return self._target

    async def run(self) -> None:
        """Connect, and connect again, until cancelled."""
        pause = self._config.reconnect_delay_seconds
        while True:
            try:
                if await self._serve_one():
                    pause = self._config.reconnect_delay_seconds
            except HootError as error:
                self._note_unreachable(error)
            await trio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, self._config.reconnect_delay_max_seconds)

    async def _serve_one(self) -> bool:
        """One connection, from hello until it breaks. True when it was good for anything."""
        connection = await self._connect(self._listener.address, self._listener.port)
        try:
            return await self._use(connection)
        finally:
            self._target = None
            self.down_since = self.down_since or time.monotonic()
            if self._connected.is_set():  # else workers wait for it still, and it is the next connection's to set
                self._connected = trio.Event()
            with trio.CancelScope(shield=True):
                await connection.aclose()

    async def _use(self, connection: Connection) -> bool:
        """Serve it until it breaks; whether it was good for anything."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._prove, connection, nursery)
            try:
                await connection.run()
            except HootError as error:
                self._note_unreachable(error)
            nursery.cancel_scope.cancel()
        return self._target is not None

    async def _prove(self, connection: Connection, nursery: trio.Nursery) -> None:
        try:
            await self._say_hello(connection)
        except HootError as error:
            self._note_unreachable(error)
            nursery.cancel_scope.cancel()
        else:
            self._up(connection, nursery)

    async def _say_hello(self, connection: Connection) -> None:
        listener = self._listener
        kind = "Listener" if listener.protocol == "packed" else "PlainListener"
        with trio.move_on_after(self._config.hello_seconds):
            token = await connection.call(kind, "hello", self._queue, self._subscription)
            if token == listener.token:
                return
            raise SubscriberUnreachable(
                f"what listens at {listener.host_port} is not the listener of {self._subscription!r}"
            )
        raise SubscriberUnreachable(f"the listener at {listener.host_port} does not answer")

    def _up(self, connection: Connection, nursery: trio.Nursery) -> None:
        if self._listener.protocol == "packed":
            self._target = PackedTarget(connection)
        else:
            self._target = plain = PlainTarget(connection)
            nursery.start_soon(plain.run)
        self._connected.set()
        if not self._reachable:
            log.info("subscription %s on %s: its listener is back", self._subscription, self._queue)
        self._reachable, self.down_since, self.trouble = True, None, ""

    def _note_unreachable(self, error: HootError) -> None:
        if self._reachable:
            log.warning("subscription %s on %s waits for its listener: %s", self._subscription, self._queue, error)
        self._reachable, self.trouble = False, error.message
