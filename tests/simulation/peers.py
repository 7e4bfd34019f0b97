"""How hosts of the simulation reach one another: calls from strands, and connections that are only held."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

import trio

from delivery.errors import DeadlineExceeded, HootError, HostUnreachable
from tests.simulation.machine import Resume, here, stand_still
from tests.simulation.network import Wire

if TYPE_CHECKING:
    from tests.simulation.host import SimulatedHost


class SimulatedPool:
    """In the place of delivery.rpc.pool, with a wire for each call. Blocking; used in strands."""

    def __init__(self, **_: object) -> None:
        """The limits of the real one have no meaning here."""

    def call(self, address: str, port: int, method: str, *arguments: Any, deadline: float) -> object:
        """The outcome of a call. Raises what the host answers, HostUnreachable, DeadlineExceeded."""
        caller = cast("SimulatedHost", here.get())
        wire, host = caller.network.connect(caller, (address, port))
        outcome = stand_still(partial(_ask, caller, wire, partial(host.call, method, *arguments), deadline))
        wire.close(caller)
        if isinstance(outcome, HootError):
            raise outcome
        return outcome

    def close(self) -> None:
        """Nothing is kept."""


def _ask(caller: SimulatedHost, wire: Wire, begin: Any, deadline: float, resume: Resume) -> None:
    """Send a call, and take its answer, the end of the wire or the deadline, whichever comes first."""
    answered = False

    def once(outcome: object) -> None:
        nonlocal answered
        if not answered:
            answered = True
            resume(outcome)

    def reply(outcome: object) -> None:
        wire.send(wire.far, partial(once, outcome))

    wire.on_end[caller] = lambda: once(HostUnreachable("the connection broke"))
    wire.send(caller, lambda: begin(reply=reply))
    caller.act_later(deadline, lambda: once(DeadlineExceeded("no answer in time")))


async def open_stream(address: str, port: int) -> HeldStream:
    """In the place of trio.open_tcp_stream. Raises OSError when nobody listens; over a cut way it takes for ever."""
    caller = cast("SimulatedHost", here.get())
    await trio.sleep(math.inf if caller.network.is_cut(caller.name, address) else caller.network.delay())
    try:
        return HeldStream(caller, caller.network.connect(caller, (address, port))[0])
    except HostUnreachable as error:
        raise ConnectionRefusedError(error.message) from None


class HeldStream:
    """A connection on which nothing is ever said."""

    def __init__(self, caller: SimulatedHost, wire: Wire) -> None:
        self._caller, self._wire = caller, wire
        self._ended = trio.Event()
        wire.on_end[caller] = self._ended.set

    async def receive_some(self, _bytes_max: float = math.inf) -> bytes:
        """The end of it."""
        await self._ended.wait()
        return b""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._wire.close(self._caller)
