"""HTTP of a region host: `/metrics` for Prometheus, `/healthz` (the process lives), `/readyz` (it can do its work),
and whatever other routes it has, the topics of `rest` for one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route

from delivery.api.rest.errors import Problem, problem_response
from delivery.metrics import Metrics

Reasons = Callable[[], list[str]]

_HINT: Final = "docs/rest.md lists every path and its methods"


def make_app(
    metrics: Metrics, reasons: Reasons, refresh: Callable[[], Awaitable[None]], routes: Sequence[BaseRoute] = ()
) -> Starlette:  # fmt: skip
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
            *routes,
        ],
        exception_handlers={HTTPException: _show},
    )


async def _show(request: Request, error: Exception) -> Response:
    """A path that is not there, or not for that method. Nobody has received the body, so the connection ends."""
    assert isinstance(error, HTTPException)
    code, headers = "unknown_path", {"connection": "close"}
    if error.status_code != 404:
        code, headers["allow"] = "wrong_method", ", ".join(_methods(request))
    return problem_response(error.status_code, Problem(code, error.detail, _HINT), request.headers, headers)


def _methods(request: Request) -> list[str]:
    """All that may be done with a path: several routes may be of it, and the error knows those of the first."""
    routes = [one for one in request.app.routes if isinstance(one, Route)]
    matching = [one for one in routes if one.matches(request.scope)[0] != Match.NONE]
    return sorted({method for one in matching for method in one.methods or ()})
