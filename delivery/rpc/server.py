"""The Thrift server on trio: accepts connections, hands calls over in order of arrival, writes replies in that order.

Calls are pipelined. Two tasks serve a connection: the reader decodes a call and hands it to `Handler.begin`, which runs
on the trio thread without waiting and gives the function that will wait for the outcome; the replier awaits these
functions one by one, in the order of the calls, and writes each reply. So whatever `begin` starts (a publish that is
admitted, a push that is queued) proceeds together with the others and in the order of arrival, at the cost of no task.
What a call does only in its waiting function (a `read` that waits for news) begins when its turn comes; a client that
wants several of these at once opens several connections.

The reader stops reading while too many calls or bytes wait for their replies: that is the back pressure.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import trio

from delivery.errors import ConfigError, HootError, PortInUse
from delivery.rpc.protocol import Call, Frame, decode_call, encode_error, encode_refusal, encode_result
from delivery.rpc.serving import Counters, Reply, ServedConnection, ServerLimits

__all__ = ["Counters", "Handler", "ServerLimits", "ThriftServer", "open_listeners"]


class Handler(Protocol):
    """What a service does with its calls."""

    def begin(self, call: Call, /) -> Callable[[], Awaitable[Any]]:
        """Take a call, in order of arrival and without waiting; gives the function that waits for its result.

        That function is called once, when all earlier calls of the connection are answered, or never when the
        connection breaks first. It returns the result as the IDL says. Either may raise HootError, which is the
        answer then (as the IDL's exception where the method declares one); anything else is logged and closes the
        connection. Arguments that the peer left out are None.
        """


async def open_listeners(address: str, port: int) -> list[trio.SocketListener]:
    """Listen on `address` and `port` (0 for one that is free). The caller closes them, or a ThriftServer does.

    Raises PortInUse, or ConfigError for an address that is not this machine's.
    """
    try:
        return await trio.open_tcp_listeners(port, host=address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"port {port} on {address} is taken by another program") from None
        raise ConfigError(f"cannot listen on {address}, port {port}: {error.strerror or error}") from None


class ThriftServer:
    """Serves one service of the IDL on listeners, which it closes in the end."""

    def __init__(
        self,
        listeners: Sequence[trio.SocketListener],
        service: str,
        handler: Handler,
        limits: ServerLimits | None = None,
    ) -> None:
        self._listeners, self._service, self._handler = listeners, service, handler
        self._limits = limits or ServerLimits()
        self.counters = Counters()
        self._accepting = trio.CancelScope()
        self._open: set[ServedConnection] = set()

    async def run(self, *, task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop_accepting` was called and every connection has ended.

        Cancelled: closes the listeners and all connections at once.
        """
        async with trio.open_nursery() as nursery:
            with self._accepting:
                await trio.serve_listeners(
                    self._serve, list(self._listeners), handler_nursery=nursery, task_status=task_status
                )

    def stop_accepting(self) -> None:
        """Close the listeners and take no further call; calls that were taken are answered, then connections close.

        `run` returns after that; cancel it when your grace is over.
        """
        self._accepting.cancel()
        for connection in self._open:
            connection.stop_reading()

    async def _serve(self, stream: trio.SocketStream) -> None:  # which has TCP_NODELAY
        counters = self.counters
        if counters.connections >= self._limits.connections_max:
            counters.connections_refused += 1
            stream.socket.close()
            return
        connection = ServedConnection(stream.socket, self._begin, self._limits, counters)
        if self._accepting.cancel_called:
            connection.stop_reading()
        counters.connections += 1
        self._open.add(connection)
        try:
            await connection.run()
        finally:
            counters.connections -= 1
            self._open.discard(connection)

    def _begin(self, frame: memoryview) -> Reply:
        """Hand a call to the handler. Raises ProtocolError when the frame holds none."""
        call = decode_call(self._service, frame)
        self.counters.calls += 1
        if call.args is None:
            return _ready(encode_refusal(call))
        try:
            outcome = self._handler.begin(call)
        except HootError as error:
            return _ready(encode_error(call, error))

        async def reply() -> Frame:
            try:
                return encode_result(call, await outcome(), self._limits.frame_bytes_max)
            except HootError as error:
                return encode_error(call, error)

        return reply


def _ready(frame: Frame) -> Reply:
    async def reply() -> Frame:
        return frame

    return reply
