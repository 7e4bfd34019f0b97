"""The way from the engine in a test to listeners: pushes wait here until the test's own thread hands them over.

So listeners are called on that thread, and always in the same order: of the pushes that wait, the one whose first
message has the lowest id goes first. Those of a partition to one listener keep theirs, as on a real connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import trio

from delivery.batch import headers_in
from delivery.errors import HootError, SubscriberUnreachable
from delivery.rpc.connection import Connection
from delivery.rpc.protocol import Call
from delivery.testing.history import History
from subscriber.service import ListenerService

Address = tuple[str, int]
OnReply = Callable[[Any], None]


class Wire:
    """Who listens where, and what waits to be handed over. For the loop's thread, but for `next`."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._listening: dict[Address, ListenerService] = {}
        self._connections: dict[LocalConnection, None] = {}
        self._ports = 0

    def listen(self, service: ListenerService) -> Address:
        """Have `service` take calls; gives where."""
        self._ports += 1
        address = ("test-engine", self._ports)
        self._listening[address] = service
        return address

    def hang_up(self, address: Address) -> None:
        """Nobody listens there any more, and connections to it break."""
        self._listening.pop(address, None)
        for connection in [one for one in self._connections if one.address == address]:
            connection.end(f"{address[0]}:{address[1]} has closed the connection")

    def knows(self, address: Address) -> bool:
        """Whether somebody listens there."""
        return address in self._listening

    async def connect(self, address: str, port: int) -> Connection:
        """See dispatch.link.Connect."""
        service = self._listening.get((address, port))
        if service is None:
            raise SubscriberUnreachable(f"nobody listens at {address}:{port}")
        made = LocalConnection((address, port), service, self._history, self._forget)
        self._connections[made] = None
        return made

    def next(self) -> Callable[[], None] | None:
        """What hands the next push over, to be called in the loop; None when none waits."""
        heads = [(order, push) for one in self._connections for order, push in one.heads()]
        return min(heads, key=lambda head: head[0])[1] if heads else None

    def _forget(self, connection: LocalConnection) -> None:
        self._connections.pop(connection, None)


class LocalConnection(Connection):
    """A connection to a listener of this process."""

    def __init__(
        self, address: Address, service: ListenerService, history: History, forget: Callable[[LocalConnection], None]
    ) -> None:
        self.address = address
        self._service, self._history, self._forget = service, history, forget
        self._why = ""
        self._ended = trio.Event()
        self._pushes: dict[tuple[str, str, int], deque[tuple[Any, OnReply]]] = {}

    @property
    def ready(self) -> bool:
        """Always: there is no socket that could be full."""
        return True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See Connection."""
        task_status.started()
        await self._ended.wait()
        raise SubscriberUnreachable(self._why)

    def call_soon(self, service: str, method: str, args: tuple[Any, ...], on_reply: OnReply) -> None:
        """See Connection. Pushes wait to be handed over."""
        if self._why:
            raise SubscriberUnreachable(self._why)
        if method == "push":
            [push] = args
            place = (push.queue, push.subscription, push.partition)
            self._pushes.setdefault(place, deque()).append((push, on_reply))
        else:
            names = SimpleNamespace(queue=args[0], subscription=args[1])
            self._service.begin(Call(service, method, 0, names)).then(on_reply)

    def heads(self) -> Iterator[tuple[tuple[object, ...], Callable[[], None]]]:
        """The first push of each partition, with what orders them."""
        for place, pushes in self._pushes.items():
            if pushes:
                first = next((header.base_id for _, header in headers_in(pushes[0][0].batches)), 0)
                yield (first, *place), partial(self._hand_over, pushes)

    def end(self, why: str) -> None:
        """Break it."""
        if self._why:
            return
        self._why = why
        self._ended.set()
        self._forget(self)
        for pushes in self._pushes.values():
            for _, on_reply in pushes:
                on_reply(SubscriberUnreachable(why))

    async def aclose(self) -> None:
        """See Connection."""
        self.end("the engine closed the connection")
        await trio.lowlevel.checkpoint()

    def _hand_over(self, pushes: deque[tuple[Any, OnReply]]) -> None:
        push, on_reply = pushes.popleft()

        def answered(reply: object) -> None:
            if self._why:
                reply = SubscriberUnreachable(self._why)
            if not isinstance(reply, HootError):
                self._history.answered(push, reply)
            on_reply(reply)

        self._service.begin(Call("Listener", "push", 0, SimpleNamespace(push=push))).then(answered)
