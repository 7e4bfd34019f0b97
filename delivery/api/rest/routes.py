"""The paths of topics: what each takes and answers, and what an error of it becomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Final

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from delivery.api.rest import openapi, texts
from delivery.api.rest.administration import Administration, Topic
from delivery.api.rest.bodies import Bodies, Intake
from delivery.api.rest.codecs import answer_codec, request_codec, rollback_codec
from delivery.api.rest.errors import SlowBody, error_response
from delivery.api.rest.exchange import Exchange
from delivery.api.rest.forwarding import Forwarder
from delivery.api.rest.operations import OPERATIONS
from delivery.api.rest.places import asked_partition, asked_partitions
from delivery.api.rest.polls import Polls
from delivery.api.rest.shortcut import Endpoint, Shortcut
from delivery.api.rest.waits import Waits, wait_seconds
from delivery.errors import DeadlineExceeded, HootError, NotOwner
from delivery.messaging.names import read_properties

BODY_SECONDS: Final = 30.0
"""From the head of a request to the end of its body."""
CALL_SECONDS: Final = 30.0
"""From the whole request to the answer, of a poll to its first block; what a poll may wait comes on top."""

_ABOUT_SECONDS: Final = 1.0
"""A call's time is kept that precisely."""
_DONE: Final = Response()
"""The answer that says nothing."""

Call = Callable[[Request, bytes], Awaitable[Response]]
Answered = Callable[[Call], Endpoint]
"""Makes an endpoint of a call; see `TopicRoutes.answered`."""


class TopicRoutes:
    """The calls, each on a received body."""

    def __init__(
        self, administration: Administration, exchange: Exchange, forwarder: Forwarder, bodies: Bodies,
        waiting_polls_max: int,
    ) -> None:  # fmt: skip
        self._administration, self._exchange = administration, exchange
        self._forwarder, self._bodies = forwarder, bodies
        self.waits = Waits(waiting_polls_max)
        self._polls = Polls(self.waits)
        self._endpoints = {name: self.answered(call) for name, call in self._calls().items()}

    def app(self, others: Callable[[Sequence[Route]], ASGIApp], more: Callable[[Answered], Sequence[Route]]) -> ASGIApp:
        """All of it: the application that `others` makes of the routes and of `more`, and the short way past it."""
        return Shortcut(others([*self.routes(), *more(self.answered)]), self._endpoints)

    def routes(self) -> Sequence[Route]:
        """All paths."""
        found = [Route(one.path, self._endpoints[one.name], methods=[one.method]) for one in OPERATIONS]
        return [*found, Route(openapi.PATH, _describe, methods=["GET"])]

    def _calls(self) -> dict[str, Call]:
        return {
            "list": self._list, "create": self._create, "show": self._show, "delete": self._delete,
            "update": self._update, "publish": self._owned(self._publish), "store": self._owned(self._store),
            "rollback": self._owned(self._rollback), "poll": self._owned(self._poll),
        }  # fmt: skip

    async def _list(self, request: Request, _: bytes) -> Response:
        return _json(await self._administration.names(request.path_params["namespace"]))

    async def _create(self, request: Request, body: bytes) -> Response:
        wanted = read_properties(texts.read_properties(body))
        await self._administration.create(_topic(request), wanted, asked_partitions(request))
        return _DONE

    async def _update(self, request: Request, body: bytes) -> Response:
        await self._administration.update(_topic(request), read_properties(texts.read_properties(body)))
        return _DONE

    async def _show(self, request: Request, _: bytes) -> Response:
        return _json(await self._administration.properties(_topic(request)))

    async def _delete(self, request: Request, _: bytes) -> Response:
        await self._administration.delete(_topic(request))
        return _DONE

    async def _publish(self, request: Request, body: bytes) -> Response:
        codec = request_codec(request.headers)
        wanted = codec.read_publish(body)
        record = await self._exchange.publish(_topic(request), wanted, asked_partition(request))
        if record is None:
            return _DONE
        answer = answer_codec(request.headers, codec)
        return Response(answer.write_published(record), headers={"content-type": answer.content_type})

    async def _store(self, request: Request, body: bytes) -> Response:
        wanted = request_codec(request.headers).read_publish(body)
        await self._exchange.store(_topic(request), wanted, asked_partition(request))
        return _DONE

    async def _rollback(self, request: Request, body: bytes) -> Response:
        await self._exchange.rollback(_topic(request), rollback_codec(request.headers).read_published(body))
        return _DONE

    async def _poll(self, request: Request, body: bytes) -> Response:
        codec = request_codec(request.headers)
        wanted, answer = codec.read_consume(body), answer_codec(request.headers, codec)
        partition, seconds = asked_partition(request), wait_seconds(request)
        slot = await self._polls.begin(patient=seconds > 0)
        try:
            reading = await self._exchange.poll(_topic(request), wanted, partition)
            return await self._polls.answer(slot, reading, answer, seconds, request.receive)
        except BaseException:
            slot.give_back()
            raise

    def _owned(self, call: Call) -> Call:
        """The call on the host that owns the topic's partition."""

        async def at_owner(request: Request, body: bytes) -> Response:
            try:
                return await call(request, body)
            except NotOwner as refusal:
                return await self._forward(request, body, refusal)

        return at_owner

    async def _forward(self, request: Request, body: bytes, refusal: NotOwner) -> Response:
        seconds = wait_seconds(request)
        if not seconds:
            return await self._forwarder.forward(request, body, refusal)
        with self.waits.one():
            return await self._forwarder.forward_waiting(request, body, refusal, seconds)

    def answered(self, call: Call) -> Endpoint:
        """The call with its body received, and its errors made into answers."""

        async def endpoint(request: Request) -> Response:
            with self._bodies.intake() as intake:
                try:
                    with trio.CancelScope(deadline=trio.current_time() + BODY_SECONDS) as scope:
                        body = await intake.receive(request)
                        deadline = trio.current_time() + CALL_SECONDS + wait_seconds(request)
                        if abs(deadline - scope.deadline) > _ABOUT_SECONDS:  # setting it costs more than all else here
                            scope.deadline = deadline
                        return await call(request, body)
                    raise _too_slow(intake)
                except HootError as error:
                    return error_response(error, request.headers, received=intake.complete)

        return endpoint


def _too_slow(intake: Intake) -> HootError:
    if intake.complete:
        return DeadlineExceeded(f"there was no outcome within {CALL_SECONDS:g} seconds")
    return SlowBody(f"the body did not come within {BODY_SECONDS:g} seconds")


def _topic(request: Request) -> Topic:
    return _named(request.path_params["namespace"], request.path_params["topic"])


@lru_cache(maxsize=4096)
def _named(namespace: str, topic: str) -> Topic:
    return Topic(namespace, topic)


async def _describe(_: Request) -> Response:
    return _json(openapi.document())


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type=texts.CONTENT_TYPE)
