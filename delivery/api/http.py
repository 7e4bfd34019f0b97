"""HTTP of a region host: `/metrics` for Prometheus, `/healthz` (the process lives), `/readyz` (it can do its work),
and whatever other routes it has, the topics of `rest` for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from delivery.api.rest.errors import Problem, problem_response
from delivery.metrics import Metrics

Reasons = Callable[[], list[str]]

_HINT: Final = "docs/rest.md lists every path and its methods"


def make_app(metrics: Metrics, reasons: Reasons, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """The application; `reasons` says why the host cannot do its work now, empty when it can."""

    async def show_metrics(_: Request) -> Response:
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
            *routes,
        ],
        exception_handlers={HTTPException: _show},
    )


async def _show(request: Request, error: Exception) -> Response:
    """A path that is not there, or not for that method. Nobody has received the body, so the connection ends."""
    assert isinstance(error, HTTPException)
    code = "unknown_path" if error.status_code == 404 else "wrong_method"
    problem = Problem(code, error.detail, _HINT)
    return problem_response(
        error.status_code, problem, request.headers, {**(error.headers or {}), "connection": "close"}
    )
