"""The paths of topics: what each takes and answers, and what an error of it becomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delivery.api.rest import texts
from delivery.api.rest.administration import Administration, Topic
from delivery.api.rest.bodies import Bodies
from delivery.api.rest.codecs import Codec, answer_codec, request_codec, rollback_codec
from delivery.api.rest.errors import error_response
from delivery.api.rest.exchange import Exchange
from delivery.api.rest.forwarding import Forwarder
from delivery.api.rest.requests import ConsumeRequest
from delivery.api.rest.streams import StreamResponse, encoded
from delivery.errors import DeadlineExceeded, HootError, NotOwner, Throttled
from delivery.messaging.names import read_properties

CALL_SECONDS: Final = 30.0
"""From the whole request to the answer, of a poll to its first block."""
POLLS_MAX: Final = 256
"""Answers on their way at once; each holds a block and what it is made of."""
_TOPICS: Final = "/v1/namespaces/{namespace}/topics"
_TOPIC: Final = f"{_TOPICS}/{{topic}}"

Call = Callable[[Request, bytes], Awaitable[Response]]


class TopicRoutes:
    """The calls, each on a received body."""

    def __init__(
        self, administration: Administration, exchange: Exchange, forwarder: Forwarder, bodies: Bodies
    ) -> None:  # fmt: skip
        self._administration, self._exchange = administration, exchange
        self._forwarder, self._bodies = forwarder, bodies
        self._polls = 0

    def routes(self) -> Sequence[Route]:
        """All paths."""
        found: list[tuple[str, str, Call]] = [
            (_TOPICS, "GET", self._list),
            (_TOPIC, "PUT", self._create),
            (_TOPIC, "GET", self._show),
            (_TOPIC, "DELETE", self._delete),
            (f"{_TOPIC}/properties", "PUT", self._update),
            (f"{_TOPIC}/publish", "POST", self._owned(self._publish)),
            (f"{_TOPIC}/store", "POST", self._owned(self._store)),
            (f"{_TOPIC}/rollback", "POST", self._owned(self._rollback)),
            (f"{_TOPIC}/poll", "POST", self._owned(self._poll)),
        ]
        return [Route(path, self.answered(call), methods=[method]) for path, method, call in found]

    async def _list(self, request: Request, _: bytes) -> Response:
        return _json(await self._administration.names(request.path_params["namespace"]))

    async def _create(self, request: Request, body: bytes) -> Response:
        await self._administration.create(_topic(request), read_properties(texts.read_properties(body)))
        return Response()

    async def _update(self, request: Request, body: bytes) -> Response:
        await self._administration.update(_topic(request), read_properties(texts.read_properties(body)))
        return Response()

    async def _show(self, request: Request, _: bytes) -> Response:
        return _json(await self._administration.properties(_topic(request)))

    async def _delete(self, request: Request, _: bytes) -> Response:
        await self._administration.delete(_topic(request))
        return Response()

    async def _publish(self, request: Request, body: bytes) -> Response:
        codec = request_codec(request.headers)
        record = await self._exchange.publish(_topic(request), codec.read_publish(body))
        if record is None:
            return Response()
        answer = answer_codec(request.headers, codec)
        return Response(answer.write_published(record), headers={"content-type": answer.content_type})

    async def _store(self, request: Request, body: bytes) -> Response:
        await self._exchange.store(_topic(request), request_codec(request.headers).read_publish(body))
        return Response()

    async def _rollback(self, request: Request, body: bytes) -> Response:
        await self._exchange.rollback(_topic(request), rollback_codec(request.headers).read_published(body))
        return Response()

    async def _poll(self, request: Request, body: bytes) -> Response:
        codec = request_codec(request.headers)
        wanted = codec.read_consume(body)
        if self._polls >= POLLS_MAX:
            raise Throttled(f"{POLLS_MAX} polls are being answered at this moment")
        self._polls += 1
        try:
            return await self._begin_poll(_topic(request), wanted, answer_codec(request.headers, codec))
        except BaseException:
            self._polled()
            raise

    async def _begin_poll(self, topic: Topic, wanted: ConsumeRequest, answer: Codec) -> Response:
        blocks = encoded(await self._exchange.poll(topic, wanted), answer.blocks())
        first = await anext(blocks)
        return StreamResponse(first, blocks, answer.content_type, self._polled)

    def _polled(self) -> None:
        self._polls -= 1

    def _owned(self, call: Call) -> Call:
        """The call on the host that owns the topic's partition."""

        async def at_owner(request: Request, body: bytes) -> Response:
            try:
                return await call(request, body)
            except NotOwner as refusal:
                return await self._forwarder.forward(request, body, refusal)

        return at_owner

    def answered(self, call: Call) -> Callable[[Request], Awaitable[Response]]:
        """The call with its body received, and its errors made into answers."""

        async def endpoint(request: Request) -> Response:
            received = False
            try:
                async with self._bodies.received(request) as body:
                    received = True
                    with trio.move_on_after(CALL_SECONDS):
                        return await call(request, body)
                    raise DeadlineExceeded(f"there was no outcome within {CALL_SECONDS:g} seconds")
            except HootError as error:
                return error_response(error, request.headers, received=received)

        return endpoint


def _topic(request: Request) -> Topic:
    return Topic(request.path_params["namespace"], request.path_params["topic"])


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type=texts.CONTENT_TYPE)
