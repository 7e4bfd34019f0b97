"""Moving frames through trio sockets: what the server and the trio client share."""

from __future__ import annotations

import trio

from delivery.rpc.frames import joined, portion, rest
from delivery.rpc.protocol import Frame
from delivery.rpc.wire import Part


async def send_frame(socket: trio.socket.SocketType, frame: Frame) -> None:
    """Send a whole frame. Raises OSError, ClosedResourceError. Cancelled: part of it may have been sent."""
    left = joined(*frame)
    while left:
        left = await send_some(socket, left)


async def send_some(socket: trio.socket.SocketType, parts: list[Part]) -> list[Part]:
    """Send what the socket takes, and give what is left. Cancelled: nothing was sent."""
    return rest(parts, await socket.sendmsg(portion(parts)))
