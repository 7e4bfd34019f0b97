"""A host's connection to a listener, over a simulated wire: what delivery.rpc.connection is under real links."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import trio

from delivery.dispatch.target import Stream
from delivery.errors import HootError, HostUnreachable, SubscriberUnreachable
from tests.simulation.machine import Machine, here
from tests.simulation.network import Wire

if TYPE_CHECKING:
    from tests.simulation.host import SimulatedHost
    from tests.simulation.subscriber import Service

OnReply = Callable[[Any], None]

_ROOM = (1, 3)
"""Pushes that the sockets hold until the listener has answered one."""


class SimulatedConnection:
    """See Connection: replies come in any order, `run` has to be running, and a break fails all that is unanswered."""

    def __init__(self, machine: Machine, wire: Wire, service: Service) -> None:
        self._machine, self._wire, self._service = machine, wire, service
        self._unanswered: dict[int, OnReply] = {}
        """By number, in the order in which they were sent."""
        self._sent = 0
        self._room = machine.kernel.random.randint(*_ROOM)
        self._full = False
        self._waiting: dict[Callable[[], None], None] = {}
        self._ended = trio.Event()
        wire.on_end[machine] = self._break

    @classmethod
    async def open(cls, address: str, port: int) -> SimulatedConnection:
        """Connect. Raises SubscriberUnreachable."""
        host = cast("SimulatedHost", here.get())
        await trio.sleep(host.network.delay())
        try:
            wire, service = host.network.connect(host, (address, port))
        except HostUnreachable as error:
            raise SubscriberUnreachable(error.message) from None
        return cls(host, wire, service)

    @property
    def ready(self) -> bool:
        """Whether the socket takes bytes; also when it is broken."""
        return self._ended.is_set() or not self._full

    def when_ready(self, tell: Callable[[], None]) -> None:
        """Call `tell` once when it does again, or when it breaks."""
        self._waiting[tell] = None

    async def run(self) -> None:
        """Until it breaks, which is raised."""
        try:
            await self._ended.wait()
        finally:
            self._break()
        raise SubscriberUnreachable("the connection broke")

    async def call(self, _service: str, _method: str, queue: str, subscription: str) -> object:
        """`hello`, the only call that is waited for."""
        answered, replies = trio.Event(), []

        def on_reply(reply: object) -> None:
            replies.append(reply)
            answered.set()

        self._send(partial(self._service.hello, queue, subscription), on_reply)
        await answered.wait()
        if isinstance(replies[0], HootError):
            raise replies[0]
        return replies[0]

    def push(  # noqa: PLR0917 - as in Connection
        self, queue: str, subscription: str, partition: int, epoch: int, run: int, after: int, batches: bytes,
        on_reply: OnReply, *, moves: int = 0, **more: Any,
    ) -> None:  # fmt: skip
        """Send one push."""
        kernel = self._machine.kernel
        stream = Stream(queue, subscription, partition, epoch, moves)
        self._send(partial(self._service.push, stream, run, after, batches, **more), on_reply)
        kernel.note("push", self._machine.name, subscription, partition, epoch, run, after)

    async def aclose(self) -> None:
        """Close it."""
        self._break()
        await trio.lowlevel.checkpoint()

    def _send(self, ask: Callable[[], Any], on_reply: OnReply) -> None:
        if self._ended.is_set():
            raise SubscriberUnreachable("the connection broke")
        wire = self._wire
        self._sent = number = self._sent + 1
        self._unanswered[number] = on_reply
        self._full = len(self._unanswered) >= self._room
        wire.send(self._machine, lambda: self._service.call(wire, ask, partial(self._answered, number)))

    def _answered(self, number: int, reply: object) -> None:
        if (on_reply := self._unanswered.pop(number, None)) is not None:
            self._full = False
            on_reply(reply)
            self._tell_waiting()

    def _break(self) -> None:
        self._ended.set()
        self._wire.close(self._machine)
        unanswered, self._unanswered = self._unanswered, {}
        for on_reply in unanswered.values():
            on_reply(SubscriberUnreachable("the connection broke"))
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for tell in waiting:
            tell()
