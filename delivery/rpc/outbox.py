"""Sending on a trio socket: at once, in the caller's turn, when the socket takes it; else it is kept for a flusher.

Awaiting trio's own `sendmsg` costs a turn of the event loop even when the socket takes everything, which is nearly
always.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import trio

from delivery.rpc.frames import joined, portion, rest
from delivery.rpc.protocol import Frame
from delivery.rpc.wire import Part


class Outbox:
    """The sending side of one socket. Bytes go out in the order of `send`."""

    __slots__ = ("_left", "_socket")

    def __init__(self, socket: trio.socket.SocketType) -> None:
        self._socket = socket
        self._left: list[Part] = []

    @property
    def waiting(self) -> bool:
        """Whether something is kept, for the socket takes no more now: call `flush`, and better send nothing."""
        return bool(self._left)

    def send(self, *frames: Frame) -> None:
        """Send frames, or keep what the socket does not take. Raises OSError when the connection is broken."""
        idle = not self._left
        for frame in frames:
            self._left += joined(*frame)
        if idle:
            self._write()

    async def flush(self) -> None:
        """Return when nothing is kept. Raises OSError, ClosedResourceError. Cancelled: the rest is kept."""
        while self._left:
            await trio.lowlevel.wait_writable(_open(self._socket))
            self._write()

    def _write(self) -> None:
        try:
            while self._left:
                self._left = rest(self._left, os.writev(self._socket.fileno(), portion(self._left)))
        except BlockingIOError:
            pass


async def receive_into(socket: trio.socket.SocketType, space: Callable[[], memoryview]) -> int:
    """Wait for bytes and put them where `space` says then; how many, 0 at the end of the stream.

    Waits before it looks, unlike trio's `recv_into`: there is rarely anything yet, and a look costs as much as a read.
    Raises OSError, ClosedResourceError, and what `space` raises.
    """
    while True:
        await trio.lowlevel.wait_readable(_open(socket))
        try:
            return os.readv(socket.fileno(), [space()])  # another task may have closed it in this very turn
        except BlockingIOError:
            continue


def _open(socket: trio.socket.SocketType) -> int:
    """The number of its file, to wait on."""
    number = socket.fileno()
    if number < 0:
        raise trio.ClosedResourceError("this end was closed already")
    return number
