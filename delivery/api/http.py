"""HTTP for operators: `/metrics` for Prometheus, `/healthz` (the process lives), `/readyz` (it can do its work)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from delivery.metrics import Metrics

_READ_SECONDS = 10
_KEEP_ALIVE_SECONDS = 30
_STOP_SECONDS = 1
_HEAD_BYTES_MAX = 16 * 1024

Reasons = Callable[[], list[str]]


def make_app(metrics: Metrics, reasons: Reasons, refresh: Callable[[], Awaitable[None]]) -> Starlette:
    """The application; `reasons` says why the host cannot do its work now, empty when it can.

    `refresh` is called before a scrape is answered.
    """

    async def show_metrics(_: Request) -> Response:
        await refresh()
        return Response(metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def ready(_: Request) -> Response:
        found = reasons()
        return JSONResponse({"ready": not found, "reasons": found}, status_code=503 if found else 200)

    return Starlette(
        routes=[
            Route("/metrics", show_metrics, methods=["GET"]),
            Route("/healthz", health, methods=["GET"]),
            Route("/readyz", ready, methods=["GET"]),
        ]
    )


async def serve_http(
    app: Starlette,
    listeners: Sequence[trio.SocketListener],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled. Takes over the listeners and closes them."""
    config = Config()
    config.bind = [f"fd://{listener.socket.detach()}" for listener in listeners]
    config.loglevel = "WARNING"
    config.accesslog = None
    config.include_server_header = False
    config.read_timeout = _READ_SECONDS
    config.keep_alive_timeout = _KEEP_ALIVE_SECONDS
    config.graceful_timeout = config.shutdown_timeout = _STOP_SECONDS
    config.h11_max_incomplete_size = _HEAD_BYTES_MAX
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, cast("Any", app), config)
        task_status.started()
