"""The Thrift server on trio: accepts connections, hands calls over in order of arrival, writes replies in that order.

Calls are pipelined. The reader of a connection decodes a call and hands it to `Handler.begin`, which runs on the trio
thread without waiting. A call that is one of many (a publish, a push) gives a Promise: it proceeds together with the
others, at the cost of no task, and its reply is written in the turn in which the promise is kept, if all before it are
answered. Any other call gives a function, which the connection's replier awaits when its turn comes: a client that
wants several `read`s at once opens several connections.

The reader stops reading while too many calls or bytes wait for their replies: that is the back pressure.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import trio

from delivery.errors import ConfigError, HootError, PortInUse
from delivery.rpc.promise import Promise
from delivery.rpc.protocol import Call, Frame, decode_call, encode_error, encode_refusal, encode_result
from delivery.rpc.serving import Counters, Reply, ServedConnection, ServerLimits

__all__ = ["Counters", "Handler", "ServerLimits", "ThriftServer", "allow_open_files", "open_listeners"]

_LOOK_SECONDS: Final = 1.0
"""How often connections are looked at: deadlines of peers are kept that precisely, and cost nothing per frame."""


class Handler(Protocol):
    """What a service does with its calls."""

    def begin(self, call: Call, /) -> Promise[Any] | Callable[[], Awaitable[Any]]:
        """Take a call, in order of arrival and without waiting; gives its result's promise, or what waits for it.

        A function is called once, when all earlier calls of the connection are answered, or never when the
        connection breaks first. The result is as the IDL says. A HootError, raised or given, is the answer then (as
        the IDL's exception where the method declares one); anything else that is raised is logged and closes the
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
    except UnicodeError as error:  # no machine can have such a name
        raise ConfigError(f"cannot listen on {address[:60]!r}: it is no name of a machine ({error})") from None


def allow_open_files() -> None:
    """Let this process, and those that it starts, have as many sockets and files as the system allows it.

    A shell gives it a thousand, and each attached listener takes one.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class ThriftServer:
    """Serves one service of the IDL on listeners, which it closes in the end."""

    def __init__(
        self,
        listeners: Sequence[trio.SocketListener],
        service: str,
        handler: Handler,
        limits: ServerLimits | None = None,
        shares: Callable[[], int] = lambda: 1,
    ) -> None:
        """`shares` says how many times what the limits say of a pipeline each connection may have under way."""
        self._listeners, self._service, self._handler = listeners, service, handler
        self._limits, self._shares = limits or ServerLimits(), shares
        self.counters = Counters()
        self._accepting = trio.CancelScope()
        self._open: set[ServedConnection] = set()

    async def run(self, *, task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop_accepting` was called and every connection has ended.

        Cancelled: closes the listeners and all connections at once.
        """
        async with trio.open_nursery() as looking:
            looking.start_soon(self._look_after)
            async with trio.open_nursery() as nursery:
                with self._accepting:
                    await trio.serve_listeners(
                        self._serve, list(self._listeners), handler_nursery=nursery, task_status=task_status
                    )
            looking.cancel_scope.cancel()

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
        connection = ServedConnection(stream.socket, self._begin, self._limits, counters, self._shares)
        if self._accepting.cancel_called:
            connection.stop_reading()
        counters.connections += 1
        self._open.add(connection)
        try:
            await connection.run()
        finally:
            counters.connections -= 1
            self._open.discard(connection)

    def _begin(self, frame: memoryview, ready: Callable[[Reply], None]) -> Reply:
        """Hand a call to the handler. Raises ProtocolError when the frame holds none."""
        call = decode_call(self._service, frame)
        self.counters.calls += 1
        if call.args is None:
            return Reply(encode_refusal(call))
        try:
            outcome = self._handler.begin(call)
        except HootError as error:
            return Reply(encode_error(call, error))
        if isinstance(outcome, Promise):
            return self._promised(call, outcome, ready)

        async def work() -> Frame:
            try:
                return self._encoded(call, await outcome())
            except HootError as error:
                return encode_error(call, error)

        return Reply(work=work)

    def _promised(self, call: Call, outcome: Promise[Any], ready: Callable[[Reply], None]) -> Reply:
        reply = Reply()

        def given(result: Any) -> None:
            try:
                reply.frame = self._encoded(call, result)
            except Exception as error:  # noqa: BLE001 - whoever gave the result must not hear of it
                reply.work = partial(_fail, error)
            ready(reply)

        outcome.then(given)
        return reply

    def _encoded(self, call: Call, result: Any) -> Frame:
        if isinstance(result, HootError):
            return encode_error(call, result)
        try:
            return encode_result(call, result, self._limits.frame_bytes_max)
        except HootError as error:
            return encode_error(call, error)

    async def _look_after(self) -> None:
        pause = min(_LOOK_SECONDS, self._limits.frame_seconds / 4, self._limits.idle_seconds / 4)
        while True:
            await trio.sleep(pause)
            now = trio.current_time()
            for connection in list(self._open):
                connection.look(now)


async def _fail(error: Exception) -> Frame:
    raise error
