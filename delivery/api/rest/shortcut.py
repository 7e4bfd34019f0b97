"""The shortest way to the calls that come thousands of times a second: past the framework's routing and its layers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from delivery.api.rest.operations import OPERATIONS, TOPIC

Endpoint = Callable[[Request], Awaitable[Response]]

_POSTED: Final = {one.path.rpartition("/")[2]: one.name for one in OPERATIONS if one.method == "POST"}
_PATH: Final = re.compile(f"{re.sub('{[a-z]+}', '([^/]+)', TOPIC)}/({'|'.join(_POSTED)})")


class Shortcut:
    """An ASGI application: what is posted to a topic goes to its endpoint, everything else to another application."""

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, Endpoint]) -> None:
        """`endpoints` are by the name of the operation."""
        self._app, self._endpoints = app, endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        found = _PATH.fullmatch(scope["path"]) if scope["method"] == "POST" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["path_params"] = {"namespace": found[1], "topic": found[2]}
        response = await self._endpoints[_POSTED[found[3]]](Request(scope, receive))
        await response(scope, receive, send)
