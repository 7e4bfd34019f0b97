"""HTTP/1.1 as a host reads and writes it, held against h11: the same of what is right, and nothing that h11 refuses."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import h11
import pytest
from hypothesis import example, given, strategies as st

from delivery.api.wire import Unreadable, Wire

HEAD_MAX = 16 * 1024
HOST = (b"Host", b"h")
ASKED = b"POST /a?b HTTP/1.1\r\nHost: h\r\n"


class Asked(NamedTuple):
    method: bytes
    target: bytes
    version: bytes
    fields: list[tuple[bytes, bytes]]
    body: bytes


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The bytes as they come, and their end."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)] + [b""]


def by_wire(pieces: list[bytes]) -> tuple[list[Asked], bool]:
    """The requests, and whether the end of the last one, or what follows it, is wrong."""
    wire, coming = Wire(HEAD_MAX), iter(pieces)
    found: list[Asked] = []
    try:
        while True:
            while (head := wire.head()) is None:
                if wire.ended:
                    return found, False
                wire.receive(next(coming))
            body = b""
            while not wire.complete:
                if (part := wire.body()) is None:
                    wire.receive(next(coming))
                body += part or b""
            found.append(Asked(*(head.method, head.target, head.version), list(head.fields), body))
            if wire.closing:
                return found, False
    except Unreadable:
        return found, True


def by_h11(pieces: list[bytes]) -> list[Asked]:
    http, coming, found = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX), iter(pieces), []
    head, body = None, b""
    try:
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(next(coming))
            elif isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                found.append(Asked(head.method, head.target, head.http_version, list(head.headers), body))
                http.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
                http.send(h11.EndOfMessage())
                if http.our_state is not h11.DONE:
                    return found
                http.start_next_cycle()
            else:
                return found
    except h11.RemoteProtocolError:
        return found


def request(
    method: str, target: str, fields: list[tuple[str, str]], body: list[bytes] | None, *, pieces: bool
) -> bytes:  # fmt: skip
    """With a body of a length, in pieces, or none."""
    head = f"{method} /{target} HTTP/1.1\r\nHost: h\r\n" + "".join(f"{name}:{value}\r\n" for name, value in fields)
    if body is None:
        return f"{head}\r\n".encode("latin-1")
    if not pieces:
        return f"{head}Content-Length: {sum(map(len, body))}\r\n\r\n".encode("latin-1") + b"".join(body)
    parts = b"".join(b"%X;ext=1\r\n%b\r\n" % (len(one), one) for one in body if one)
    return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode("latin-1") + parts + b"0\r\nbehind: it\r\n\r\n"


names = st.from_regex(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,8}", fullmatch=True).map(lambda name: f"x{name}")
values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=10)
requests = st.builds(
    request, st.sampled_from(["GET", "POST", "PUT", "M-SEARCH"]), st.from_regex(r"[!-~]{0,9}", fullmatch=True),
    st.lists(st.tuples(names, values), max_size=4), st.none() | st.lists(st.binary(max_size=40), max_size=4),
    pieces=st.booleans(),
)  # fmt: skip
damages = st.lists(st.tuples(st.integers(0, 500), st.binary(max_size=3)), min_size=1, max_size=3)
cuts = st.lists(st.integers(0, 2000), max_size=8)


@given(st.lists(requests, min_size=1, max_size=3), cuts)
@example([b"GET / HTTP/1.1\r\nHost:\t h \t\r\na:\r\n\r\n"], [])
def test_requests_are_read_as_h11_reads_them_however_they_come(asked: list[bytes], places: list[int]) -> None:
    pieces = cut(b"".join(asked), places)
    found, wrong = by_wire(pieces)
    assert not wrong
    assert len(found) == len(asked)
    assert found == by_h11(pieces)


@given(requests, requests, damages, cuts)
@example(ASKED + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\n0\r\n\r\n", [], [])
def test_nothing_is_taken_for_a_request_that_h11_refuses(
    first: bytes, second: bytes, damage: list[tuple[int, bytes]], places: list[int]
) -> None:
    data = bytearray(first + second)
    for at, instead in damage:
        data[at : at + 2] = instead
    pieces = cut(bytes(data), places)
    found, _ = by_wire(pieces)
    assert found == by_h11(pieces)[: len(found)]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST  / HTTP/1.1\r\nHost: h\r\n\r\n", 400), (b"POST / HTTP/2.0\r\nHost: h\r\n\r\n", 400),
        (b"POST /  HTTP/1.1\r\nHost: h\r\n\r\n", 400), (b"POST / HTTP/1.1 \r\nHost: h\r\n\r\n", 400),
        (b"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400), (b"GET /\x80 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400), (b"GET / RTSP/1.0\r\n\r\n", 400),
        (b"SOURCE / ICE/1.0\r\n\r\n", 400), (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 501),
        (b"\x16\x03\x01\r\n\r\n", 400), (b"GET / HTTP/1.1\n\n", 400), (b"GET / HTTP/1.1\r\n\r\n", 400),
        (ASKED + b"Host: other\r\n\r\n", 400), (ASKED + b" folded\r\n\r\n", 400), (ASKED + b"a : b\r\n\r\n", 400),
        (ASKED + b"a: \x00\r\n\r\n", 400), (ASKED + b"a: b\nc: d\r\n\r\n", 400), (ASKED + b"a: b\rc\r\n\r\n", 400),
        (ASKED + b"Content-Length: -1\r\n\r\n", 400), (ASKED + b"Content-Length: 1, 1\r\n\r\n", 400),
        (ASKED + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
        (ASKED + b"Content-Length: \xb2\r\n\r\n", 400),
        (ASKED + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (ASKED + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (ASKED + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (ASKED + b"a: " + bytes(b"x" * HEAD_MAX), 431), (ASKED, 400),
        (ASKED + b"Content-Length: 3\r\n\r\nab", 400), (ASKED + b"Transfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        (ASKED + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab0\r\n\r\n", 400),
        (ASKED + b"Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", 400),
        (ASKED + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\n0\r\n\r\n", 400),
        (ASKED + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % 2**64, 400),
        (ASKED + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 2000, 400),
        (ASKED + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * HEAD_MAX, 431),
        (ASKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\na: " + b"x" * HEAD_MAX, 431),
        (ASKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\nnothing\r\n\r\n", 400),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(data: bytes, status: int) -> None:
    wire = Wire(HEAD_MAX)

    def read() -> None:
        wire.receive(data)
        if wire.head() is None:
            wire.receive(b"")
            wire.head()
        while not wire.complete:
            if wire.body() is None:
                wire.receive(b"")

    with pytest.raises(Unreadable) as refused:
        read()
    assert refused.value.status == status


UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
IN_PIECES = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("upgrade", [b"", UPGRADE], ids=["", "upgrade"])
@pytest.mark.parametrize(
    ("rest", "body"),
    [
        (b"\r\n", b""), (b"Content-Length: 3\r\n\r\nabc", b"abc"), (IN_PIECES + b"0\r\n\r\n", b""),
        (IN_PIECES + b"1;a=b\r\na\r\n2\r\nbc\r\n0\r\nd: e\r\n\r\n", b"abc"),
        (IN_PIECES + b"8\r\n\r\n\r\n\r\n\r\n\r\n4\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n" * 6),
    ],
)  # fmt: skip
def test_nothing_of_the_next_request_is_taken_and_an_upgrade_is_not_made(
    upgrade: bytes, rest: bytes, body: bytes
) -> None:
    asked, following = ASKED + upgrade + rest, b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n"
    assert by_h11([asked, b""])[0].body == body
    for place in range(len(asked)):
        found, wrong = by_wire(cut(asked + following, [place]))
        assert ([(one.target, one.body) for one in found], wrong) == ([(b"/a?b", body), (b"/next", b"")], False)


def test_a_body_in_pieces_is_given_as_it_comes() -> None:
    wire = Wire(HEAD_MAX)
    wire.receive(ASKED + b"Expect: 100-continue\r\n" + IN_PIECES)
    assert wire.head() is not None
    assert (wire.body(), wire.expects, wire.complete) == (None, True, False)
    found = b""
    for _ in range(3):
        wire.receive(b"400\r\n" + bytes(1024) + b"\r\n")
        found += wire.body() or b""
        assert (len(found) % 1024, wire.expects, wire.complete) == (0, False, False)
    assert found == bytes(3 * 1024)


@pytest.mark.parametrize("body", [[], [b"abc"], [b"a", b"", b"bc" * 1000]])
@pytest.mark.parametrize("told", [True, False], ids=["a length", "no length"])
@pytest.mark.parametrize("first", [b"GET / HTTP/1.1", b"HEAD / HTTP/1.1", b"GET / HTTP/1.0"])
@pytest.mark.parametrize("more", [[], [(b"connection", b"close")]], ids=["", "closing"])
def test_answers_are_what_a_client_understands(
    body: list[bytes], told: bool, first: bytes, more: list[tuple[bytes, bytes]]
) -> None:  # fmt: skip
    wire, client = Wire(HEAD_MAX), h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=first.split()[0], target=b"/", headers=[HOST]))
    client.send(h11.EndOfMessage())
    wire.receive(first + b"\r\nHost: h\r\n\r\n")
    assert wire.head() is not None
    length = [(b"content-length", b"%d" % sum(map(len, body)))] if told else []
    bodiless = first.startswith(b"HEAD")
    client.receive_data(wire.answer(200, [*length, *more], bodiless=bodiless))
    for one in [] if bodiless else body:
        client.receive_data(piece) if (piece := wire.piece(one, last=False)) else None
    early = wire.answered
    client.receive_data(piece) if (piece := wire.piece(b"", last=True)) else None
    assert (early, wire.answered) == (False, True)
    head = client.next_event()
    assert isinstance(head, h11.Response)
    assert head.status_code == 200
    assert wire.closing == (bool(more) or first.endswith(b"1.0"))
    if wire.closing:
        client.receive_data(b"")
    found = b""
    while isinstance(event := client.next_event(), h11.Data):
        found += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert found == (b"" if bodiless else b"".join(body))


@pytest.mark.parametrize("pieces", [[b"abcd"], [b"ab"], [b"ab", b"cd"]])
def test_an_answer_that_is_not_as_long_as_it_says_is_broken_off(pieces: list[bytes]) -> None:
    wire = Wire(HEAD_MAX)
    wire.receive(ASKED + b"\r\n")
    wire.head()
    wire.answer(200, [(b"content-length", b"3")], bodiless=False)

    def write() -> None:
        for number, one in enumerate(pieces, 1):
            wire.piece(one, last=number == len(pieces))

    with pytest.raises(ValueError, match="as long"):
        write()
    assert not wire.answered
