"""One connection of the Thrift server: cutting frames, handing over calls, writing replies (server.py tells how)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import trio

from delivery import logs
from delivery.errors import HootError, ProtocolError, Throttled
from delivery.rpc.frames import SMALL_BYTES, FrameBuffer
from delivery.rpc.outbox import Outbox, receive_into
from delivery.rpc.pipeline import Pipeline
from delivery.rpc.protocol import FRAME_BYTES_MAX, Frame
from delivery.rpc.together import soon

log = logs.logger(__name__)

Work = Callable[[], Awaitable[Frame]]
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
    in_order: bool = True
    """Replies go out in the order of the calls; else as soon as they are there."""


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


class Reply:
    """What a call of a connection comes to, in its place among the others."""

    __slots__ = ("frame", "work")

    def __init__(self, frame: Frame | None = None, work: Work | None = None) -> None:
        """With `work` the replier makes the frame when the turn comes; without both, `frame` is set later."""
        self.frame, self.work = frame, work


Begin = Callable[[memoryview, Callable[[Reply], None]], Reply]
"""Takes a frame; calls the second argument when it has set a reply's frame later."""


class ServedConnection:
    """One connection. `begin` takes each frame in order and gives the place of its reply."""

    def __init__(
        self, socket: trio.socket.SocketType, begin: Begin, limits: ServerLimits, counters: Counters,
        shares: Callable[[], int],
    ) -> None:  # fmt: skip
        self._socket, self._begin, self._limits, self._counters = socket, begin, limits, counters
        self._buffer = FrameBuffer(limits.frame_bytes_max)
        self._buffer_counted = 0
        self._outbox = Outbox(socket)
        self._pipeline: Pipeline[Reply] = Pipeline(limits.pipeline_max, limits.pipeline_bytes_max, shares)
        self._replier = trio.lowlevel.ParkingLot()
        self._frame_began: float | None = None
        self._received, self._received_at = False, trio.current_time()
        """Whether something came since the last look, and when the look was that found it so."""
        self._reading, self._whole = trio.CancelScope(), trio.CancelScope()
        self._read_all = False

    def stop_reading(self) -> None:
        """Take no further call; what was taken is answered, then `run` ends."""
        self._reading.cancel()

    def look(self, now: float) -> None:
        """To be called from time to time: give memory back, or end a connection that keeps others waiting."""
        if self._received:
            self._received, self._received_at = False, now
        if now < self._deadline():
            return
        if self._frame_began is not None:
            self._end(ProtocolError(f"a frame was not complete after {self._limits.frame_seconds} s"))
        elif self._buffer.release():
            self._count_buffer()
        elif len(self._pipeline):
            self._received_at = now  # not idle: it waits for replies
        else:
            self._reading.cancel()

    async def run(self) -> None:
        """Serve until the peer ends or breaks the connection, or does what it must not. Closes the socket."""
        try:
            with self._socket, self._whole:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._guard, self._read)
                    nursery.start_soon(self._guard, self._reply)
        finally:
            self._counters.buffer_bytes -= self._buffer_counted
            del self._buffer  # at once, whoever may still refer to this connection

    async def _guard(self, part: Callable[[], Awaitable[None]]) -> None:
        """Run one of the two tasks; whatever goes wrong ends this connection and nothing else."""
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - told by what it is
            self._end(error)

    def _end(self, error: Exception) -> None:
        if isinstance(error, OSError | trio.ClosedResourceError):
            log.debug("a connection broke: %s", error)
        else:
            self._counters.errors += 1
            if isinstance(error, HootError):
                log.warning("a connection was closed: %s", error)
            else:
                log.error("a call failed unexpectedly; its connection is closed", exc_info=error)
        self._whole.cancel()

    async def _read(self) -> None:
        with self._reading:
            while (frame := await self._next_frame()) is not None:
                size = len(frame)
                await self._pipeline.room(size)
                reply = self._begin(frame, self._ready)
                self._pipeline.put(reply, size)
                if reply.frame is not None or reply.work is not None:
                    self._ready(reply)
        self._read_all = True
        self._replier.unpark_all()

    def _ready(self, reply: Reply) -> None:
        """It can be sent, if it is not another one's turn."""
        if not self._limits.in_order:
            self._pipeline.choose(reply)
        soon(self._send_ready)

    def _send_ready(self) -> None:
        """Send the replies whose turn has come. What takes waiting is left to the replier."""
        pipeline, outbox = self._pipeline, self._outbox
        while (reply := self._next()) is not None and reply.frame and not outbox.waiting:
            frames = []
            while reply is not None and reply.frame:
                frames.append(reply.frame)
                self._counters.bytes_out += reply.frame[1]
                pipeline.drop(reply)
                reply = self._next()
            try:
                outbox.send(*frames)
            except OSError as error:
                self._end(error)
                return
        if outbox.waiting or (self._read_all if reply is None else reply.work is not None):
            self._replier.unpark_all()

    def _next(self) -> Reply | None:
        """The reply whose turn it is."""
        return self._pipeline.first if self._limits.in_order else self._pipeline.chosen

    async def _reply(self) -> None:
        while self._outbox.waiting or len(self._pipeline) or not self._read_all:
            reply = self._next()
            if self._outbox.waiting:
                await self._flush()
            elif reply is not None and reply.frame:
                self._send_ready()
            elif reply is not None and reply.work is not None:
                reply.frame = await reply.work()
            else:
                await self._replier.park()
        if self._reading.cancel_called:
            await self._linger()

    async def _flush(self) -> None:
        with trio.move_on_after(self._limits.write_seconds) as scope:
            await self._outbox.flush()
        if scope.cancelled_caught:
            raise Throttled(f"the peer did not take a reply in {self._limits.write_seconds} s")

    async def _linger(self) -> None:
        """Closing with unread bytes would reset the connection and could take the last replies with it."""
        self._socket.shutdown(trio.socket.SHUT_WR)
        with trio.move_on_after(_LINGER_SECONDS):
            while await self._socket.recv(SMALL_BYTES):
                pass

    async def _next_frame(self) -> memoryview | None:
        """The next frame; None when the peer ended its side."""
        while (frame := self._buffer.next_frame()) is None:
            if self._frame_began is None and self._buffer.partial:
                self._frame_began = trio.current_time()
            if not await self._receive():
                return None
        self._frame_began = None
        return frame

    async def _receive(self) -> bool:
        """Receive something; False when nothing will come."""
        count = await receive_into(self._socket, self._space)
        self._buffer.received(count)
        self._counters.bytes_in += count
        self._received = True
        return count > 0

    def _space(self) -> memoryview:
        space = self._buffer.space()
        self._count_buffer()
        return space

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
