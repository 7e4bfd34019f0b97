"""The connections of the HTTP server: how many there are, and that they end with it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

import trio
from starlette.types import ASGIApp

from delivery.api.http11 import Conversation

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
"""How often connections are looked at: their deadlines are kept that precisely, and cost nothing per request."""


class Connections:
    """Serves an ASGI application on listeners."""

    def __init__(self, app: ASGIApp, connections_max: int) -> None:
        """More than `connections_max` at once are closed at once, as those of the Thrift server are."""
        self._app, self._connections_max = app, connections_max
        self._open: set[Conversation] = set()

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
                await self._look_after()
        finally:
            with trio.CancelScope(shield=True):
                for listener in listeners:
                    await listener.aclose()

    async def _serve_one(self, stream: trio.SocketStream) -> None:  # which has TCP_NODELAY
        if len(self._open) >= self._connections_max:
            stream.socket.close()
            return
        conversation = Conversation(self._app, stream.socket)
        self._open.add(conversation)
        try:
            await conversation.run()
        except Exception:
            log.exception("an HTTP connection failed in a way nobody foresaw")
        finally:
            self._open.discard(conversation)
            stream.socket.close()

    async def _look_after(self) -> None:
        while True:
            await trio.sleep(_LOOK_SECONDS)
            now = trio.current_time()
            for conversation in list(self._open):
                conversation.look(now)
