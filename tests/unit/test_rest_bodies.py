"""Receiving bodies: bounded in time, and over all requests together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import pytest
import trio
from starlette.requests import Request
from starlette.types import Message

from delivery.api.rest.bodies import Bodies
from delivery.api.rest.errors import SlowBody
from delivery.errors import HootError, InvalidRequest, Throttled


def request(pieces: Iterable[bytes | None]) -> Request:
    """A request whose body comes in pieces; None for a pause without end, and the end of all is a disconnect."""
    rest = iter(pieces)

    async def receive() -> Message:
        piece = next(rest, b"gone")
        if piece is None:
            await trio.sleep_forever()
        if piece == b"gone":
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": piece != b""}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def received(bodies: Bodies, *pieces: bytes | None) -> bytes | HootError:
    async def run() -> bytes | HootError:
        try:
            async with bodies.received(request(pieces)) as body:
                assert bodies.bytes >= len(body)
                return body
        except HootError as error:
            return error

    return trio.run(run)


def test_a_body_comes_in_pieces_and_takes_room_until_its_request_is_answered() -> None:
    bodies = Bodies(10)
    assert received(bodies, b"abc", b"de", b"") == b"abcde"
    assert bodies.bytes == 0


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [((b"abc", None), SlowBody), ((b"abcdef", b"ghijkl", b""), Throttled), ((b"abc",), InvalidRequest)],
)
def test_what_does_not_come_in_time_does_not_fit_or_breaks_off_leaves_no_room_taken(
    pieces: tuple[bytes | None, ...], kind: type[HootError]
) -> None:
    bodies = Bodies(10, seconds=0.05)
    assert isinstance(received(bodies, *pieces), kind)
    assert bodies.bytes == 0


def test_all_bodies_share_the_room() -> None:
    bodies = Bodies(10)

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(bodies.received(request([b"123456", b""])))
            with pytest.raises(Throttled):
                await stack.enter_async_context(bodies.received(request([b"12345", b""])))
            await stack.enter_async_context(bodies.received(request([b"1234", b""])))
        assert bodies.bytes == 0

    trio.run(run)
