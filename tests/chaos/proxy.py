"""A TCP proxy in user space, whose legs can be cut, delayed, throttled, silenced, or robbed of their replies.

    client -> listen address of a leg -> its target

Every leg has its own address in 127.0.0.0/8 and the port of its target, so that a program that is told another address
for the same port goes through the proxy. One trio thread serves all legs; faults are set from any thread.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from queue import SimpleQueue
from typing import Literal, Self

import msgspec
import trio

Mode = Literal["open", "cut", "silent"]

PIECE_BYTES = 65_536
GREETING_BYTES = 64
START_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends a reset."""


class Faults(msgspec.Struct, frozen=True):
    """What a leg does to what passes."""

    mode: Mode = "open"
    """`cut`: connections are reset, new ones too. `silent`: accepted, and nothing passes until it is over."""
    delay: float = 0.0
    """Seconds by which each piece is held up, each way."""
    drop_replies: bool = False
    """What the target says is thrown away; connections that lost something are reset when that is over."""
    bytes_per_second: int = 0
    """Each way; 0 for no limit."""


HEALTHY = Faults()


class Leg:
    """One listening address and where it leads. Its faults are set on the trio thread."""

    def __init__(self, name: str, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self.name, self.listen, self.target = name, listen, target
        self.faults = HEALTHY
        self.carried = 0
        """Bytes passed on, both ways."""
        self.greeting = b""
        """How the target's first reply on the newest connection begins."""
        self._changed = trio.Event()
        self._connections: set[_Connection] = set()

    def apply(self, faults: Faults) -> None:
        """On the trio thread: from now on these."""
        before, self.faults = self.faults, faults
        for connection in list(self._connections):
            if faults.mode == "cut" or (connection.torn and before.drop_replies and not faults.drop_replies):
                connection.reset()
        self._changed.set()
        self._changed = trio.Event()

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        [listener] = await trio.open_tcp_listeners(self.listen[1], host=self.listen[0])
        async with trio.open_nursery() as nursery:
            task_status.started()
            await trio.serve_listeners(self._accepted, [listener], handler_nursery=nursery)

    async def passable(self) -> None:
        """Wait while it is silent."""
        while self.faults.mode == "silent":
            await self._changed.wait()

    async def _accepted(self, client: trio.SocketStream) -> None:
        connection = _Connection(self, client)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)


class _Connection:
    def __init__(self, leg: Leg, client: trio.SocketStream) -> None:
        self._leg, self._client = leg, client
        self._scope = trio.CancelScope()
        self._broken = False
        self.torn = False
        """Whether a reply was lost, so that nothing that follows could be understood."""

    def reset(self) -> None:
        """Break it, as a network that went away and came back does."""
        self._broken = True
        self._scope.cancel()

    async def run(self) -> None:
        leg, target = self._leg, None
        try:
            with self._scope:
                await leg.passable()
                if leg.faults.mode == "cut":
                    return
                with trio.fail_after(_CONNECT_SECONDS):
                    target = await trio.open_tcp_stream(*leg.target)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, self._client, target, False)
                    nursery.start_soon(self._pump, target, self._client, True)
        except (OSError, trio.TooSlowError):
            return
        finally:
            for stream in (self._client, target):
                if stream is not None:
                    _close(stream, reset=self._broken)

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream, replies: bool) -> None:
        """Pass bytes on until either end closes; then both are closed."""
        leg, first = self._leg, replies
        try:
            while piece := await source.receive_some(PIECE_BYTES):
                if first:
                    leg.greeting, first = bytes(piece[:GREETING_BYTES]), False
                faults = leg.faults
                if faults.delay:
                    await trio.sleep(faults.delay)
                if faults.bytes_per_second:
                    await trio.sleep(len(piece) / faults.bytes_per_second)
                await leg.passable()
                if replies and leg.faults.drop_replies:
                    self.torn = True
                elif not self.torn or not replies:
                    await sink.send_all(piece)
                    leg.carried += len(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self._scope.cancel()


def _close(stream: trio.SocketStream, *, reset: bool) -> None:
    if reset:
        with contextlib.suppress(OSError):
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    stream.socket.close()


class Proxy:
    """The thread and its legs; a context manager. Legs are added at any time and live as long as it does."""

    def __init__(self) -> None:
        self.legs: dict[str, Leg] = {}
        self._ready: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), name="proxy", daemon=True)
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def add(self, name: str, listen: str, target: tuple[str, int]) -> Leg:
        """A leg from `listen` at the target's port; returns when it listens."""

        async def add() -> Leg:
            assert self._nursery is not None
            leg = Leg(name, (listen, target[1]), target)
            await self._nursery.start(leg.serve)
            return leg

        leg = trio.from_thread.run(add, trio_token=self._token)
        self.legs[name] = leg
        return leg

    def set(self, name: str, faults: Faults) -> None:
        """Let a leg do this from now on; returns when it does."""
        trio.from_thread.run_sync(self.legs[name].apply, faults, trio_token=self._token)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.get(timeout=START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._nursery is not None
        trio.from_thread.run_sync(self._nursery.cancel_scope.cancel, trio_token=self._token)
        self._thread.join(START_SECONDS)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            self._ready.put(True)
            await trio.sleep_forever()
