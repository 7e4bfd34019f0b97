"""Receiving bodies: bounded, also over all requests together."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio
from starlette.requests import Request
from starlette.types import Message

from delivery.api.rest.bodies import Bodies
from delivery.errors import HootError, InvalidRequest, Throttled


def request(pieces: Iterable[bytes]) -> Request:
    """A request whose body comes in pieces; the end of all is a disconnect."""
    rest = iter(pieces)

    async def receive() -> Message:
        piece = next(rest, b"gone")
        if piece == b"gone":
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": piece != b""}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def received(bodies: Bodies, *pieces: bytes) -> bytes | HootError:
    async def run() -> bytes | HootError:
        try:
            with bodies.intake() as intake:
                body = await intake.receive(request(pieces))
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
    [((b"abcdef", b"ghijkl", b""), Throttled), ((b"abc",), InvalidRequest)],
)
def test_what_does_not_fit_or_breaks_off_leaves_no_room_taken(pieces: tuple[bytes, ...], kind: type[HootError]) -> None:
    bodies = Bodies(10)
    assert isinstance(received(bodies, *pieces), kind)
    assert bodies.bytes == 0


def test_all_bodies_share_the_room() -> None:
    bodies = Bodies(10)

    async def run() -> None:
        with bodies.intake() as first, bodies.intake() as second:
            await first.receive(request([b"123456", b""]))
            with bodies.intake() as third, pytest.raises(Throttled):
                await third.receive(request([b"12345", b""]))
            await second.receive(request([b"1234", b""]))
        assert bodies.bytes == 0

    trio.run(run)
