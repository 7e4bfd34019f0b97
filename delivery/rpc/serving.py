"""One connection of the Thrift server: cutting frames, handing over calls, writing replies (server.py tells how)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec
import trio

from delivery.errors import HootError, ProtocolError, Throttled
from delivery.rpc.frames import SMALL_BYTES, FrameBuffer
from delivery.rpc.pipeline import Pipeline
from delivery.rpc.protocol import FRAME_BYTES_MAX, Frame
from delivery.rpc.streams import send_frame

log = logging.getLogger(__name__)

Reply = Callable[[], Awaitable[Frame]]
"""Waits for the outcome of a call and gives it as a frame."""

_QUIET_SECONDS = 5.0
"""A connection quiet for so long gives its large buffer back."""
_LINGER_SECONDS = 1.0
"""How long a stopping server reads on and throws away, so that the last replies are not lost to a reset."""


class ServerLimits(msgspec.Struct, frozen=True):
    """The bounds of a server. Times are in seconds."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    connections_max: int = 1000
    """Further ones are closed at once."""
    buffer_bytes_max: int = 512 * 1024 * 1024
    """All receive buffers together; a connection that needs more than what is left is closed."""
    pipeline_max: int = 64
    """Calls of one connection that wait for their replies."""
    pipeline_bytes_max: int = 32 * 1024 * 1024
    """Bytes of the frames of these calls."""
    frame_seconds: float = 30.0
    """From the first byte of a frame to its last: a slow sender cannot hold a buffer for longer."""
    idle_seconds: float = 600.0
    """Without any call under way."""
    write_seconds: float = 30.0
    """For one reply."""


class Counters(msgspec.Struct):
    """What a server did so far, and holds now. Only ever changed on the trio thread; may be read from any."""

    connections: int = 0
    """Open now."""
    connections_refused: int = 0
    calls: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    errors: int = 0
    """Connections that were closed for what the peer did or did not do, and for failures of the handler."""
    buffer_bytes: int = 0
    """Memory of all receive buffers now."""


class ServedConnection:
    """One connection. `begin` takes each frame in order and gives what will wait for the reply."""

    def __init__(
        self,
        socket: trio.socket.SocketType,
        begin: Callable[[memoryview], Reply],
        limits: ServerLimits,
        counters: Counters,
    ) -> None:
        self._socket, self._begin, self._limits, self._counters = socket, begin, limits, counters
        self._buffer = FrameBuffer(limits.frame_bytes_max)
        self._buffer_counted = 0
        self._pipeline: Pipeline[Reply] = Pipeline(limits.pipeline_max, limits.pipeline_bytes_max)
        self._frame_began: float | None = None
        self._received_at = trio.current_time()
        self._reading = trio.CancelScope()

    def stop_reading(self) -> None:
        """Take no further call; what was taken is answered, then `run` ends."""
        self._reading.cancel()

    async def run(self) -> None:
        """Serve until the peer ends or breaks the connection, or does what it must not. Closes the socket."""
        try:
            with self._socket:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._guard, self._read, nursery.cancel_scope)
                    nursery.start_soon(self._guard, self._reply, nursery.cancel_scope)
        finally:
            self._counters.buffer_bytes -= self._buffer_counted

    async def _guard(self, part: Callable[[], Awaitable[None]], whole: trio.CancelScope) -> None:
        """Run one of the two tasks; whatever goes wrong ends this connection and nothing else."""
        try:
            await part()
            return
        except HootError as error:
            self._counters.errors += 1
            log.warning("a connection was closed: %s", error)
        except (OSError, trio.ClosedResourceError) as error:
            log.debug("a connection broke: %s", error)
        except Exception:
            self._counters.errors += 1
            log.exception("a call failed unexpectedly; its connection is closed")
        whole.cancel()

    async def _read(self) -> None:
        with self._reading:
            while (frame := await self._next_frame()) is not None:
                size = len(frame)
                await self._pipeline.room(size)
                self._pipeline.put(self._begin(frame), size)
        self._pipeline.close()

    async def _reply(self) -> None:
        while (reply := await self._pipeline.first()) is not None:
            frame = await reply()
            with trio.move_on_after(self._limits.write_seconds) as scope:
                await send_frame(self._socket, frame)
            if scope.cancelled_caught:
                raise Throttled(f"the peer did not take a reply in {self._limits.write_seconds} s")
            self._counters.bytes_out += frame[1]
            self._pipeline.drop_first()
        if self._reading.cancel_called:
            await self._linger()

    async def _linger(self) -> None:
        """Closing with unread bytes would reset the connection and could take the last replies with it."""
        self._socket.shutdown(trio.socket.SHUT_WR)
        with trio.move_on_after(_LINGER_SECONDS):
            while await self._socket.recv(SMALL_BYTES):
                pass

    async def _next_frame(self) -> memoryview | None:
        """The next frame; None when the peer ended its side or has been idle for too long."""
        while (frame := self._buffer.next_frame()) is None:
            if not await self._receive():
                return None
        self._frame_began = None
        return frame

    async def _receive(self) -> bool:
        """Receive something; False when nothing will come. Raises ProtocolError when a frame takes too long."""
        if self._frame_began is None and self._buffer.partial:
            self._frame_began = trio.current_time()
        while True:
            space = self._buffer.space()
            self._count_buffer()
            with trio.move_on_at(self._deadline()):
                count = await self._socket.recv_into(space)
                self._buffer.received(count)
                self._counters.bytes_in += count
                self._received_at = trio.current_time()
                return count > 0
            if self._frame_began is not None:
                raise ProtocolError(f"a frame was not complete after {self._limits.frame_seconds} s")
            if not self._buffer.release():
                if not len(self._pipeline):
                    return False
                self._received_at = trio.current_time()  # not idle: it waits for replies

    def _deadline(self) -> float:
        if self._frame_began is not None:
            return self._frame_began + self._limits.frame_seconds
        large = self._buffer.capacity > SMALL_BYTES
        return self._received_at + (
            min(_QUIET_SECONDS, self._limits.idle_seconds) if large else self._limits.idle_seconds
        )

    def _count_buffer(self) -> None:
        grown = self._buffer.capacity - self._buffer_counted
        self._counters.buffer_bytes += grown
        self._buffer_counted += grown
        if grown > 0 and self._counters.buffer_bytes > self._limits.buffer_bytes_max:
            raise Throttled(f"all receive buffers together reached {self._limits.buffer_bytes_max} bytes")
