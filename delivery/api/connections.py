"""The connections of the HTTP server: how many there are, and how long a client may take.

hypercorn speaks HTTP on them. It has no bound on connections, keeps those for a while whose clients have closed them,
and waits for ever, shielded, until a client has taken what was sent; so it gets the streams through a door of our own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import trio
from hypercorn.config import Config
from hypercorn.events import Event, Updated
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp

log = logging.getLogger(__name__)

HEAD_SECONDS: Final = 30
"""Between two requests, the head of the next one included."""
WRITE_SECONDS: Final = 30.0
"""For a client to take 64 KiB or so: slower ones would hold memory, and the host when it stops."""
_HEAD_BYTES_MAX: Final = 16 * 1024


class BoundedStream:
    """A socket stream whose `send_all` ends in time. Everything that hypercorn uses of one."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket
        self.receive_some = stream.receive_some
        self.send_eof = stream.send_eof
        self.aclose = stream.aclose

    async def send_all(self, data: bytes) -> None:
        """Send; a client that does not take it in time has broken the connection."""
        with trio.move_on_after(WRITE_SECONDS) as scope:
            try:
                await self._stream.send_all(data)
            except trio.BusyResourceError:  # hypercorn sends under a lock, and closes without it
                raise trio.BrokenResourceError("the connection is being closed") from None
        if scope.cancelled_caught:
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError("the client takes nothing")

    def break_off(self) -> None:
        """Close the socket, whoever uses it."""
        self.socket.close()


class _Server(TCPServer):
    """One connection. Once the client has closed it no next request is waited for."""

    _closed = False

    async def protocol_send(self, event: Event) -> None:
        """Pass on what the protocol has to say, but not that it is idle now."""
        if not (self._closed and isinstance(event, Updated)):
            await super().protocol_send(event)

    async def _read_data(self) -> None:
        await super()._read_data()
        self._closed = True
        await self.idle_task.stop()


class Connections:
    """Serves an ASGI application on listeners."""

    def __init__(self, app: ASGIApp, connections_max: int) -> None:
        """More than `connections_max` at once are closed at once, as those of the Thrift server are."""
        self._app = wrap_app(cast("Any", app), wsgi_max_body_size=0, mode="asgi")
        self._connections_max = connections_max
        self._config = _config()
        self._context = WorkerContext(max_requests=None)
        self._open: set[BoundedStream] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def serve(
        self, listeners: Sequence[trio.SocketListener], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; then all connections end. Takes over the listeners and closes them."""
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(trio.serve_listeners, self._serve_one, list(listeners)))
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    for stream in self._open:
                        stream.break_off()
        finally:
            with trio.CancelScope(shield=True):
                for listener in listeners:
                    await listener.aclose()

    async def _serve_one(self, stream: trio.SocketStream) -> None:
        if len(self._open) >= self._connections_max:
            await trio.aclose_forcefully(stream)
            return
        bounded = BoundedStream(stream)
        self._open.add(bounded)
        try:
            await _Server(self._app, self._config, self._context, ConnectionState({}), cast("Any", bounded))
        except Exception:
            log.exception("an HTTP connection failed in a way nobody foresaw")
        finally:
            self._open.discard(bounded)


def _config() -> Config:
    config = Config()
    config.loglevel = "WARNING"
    config.accesslog = None
    config.include_server_header = False
    config.keep_alive_timeout = HEAD_SECONDS
    config.h11_max_incomplete_size = _HEAD_BYTES_MAX
    return config
