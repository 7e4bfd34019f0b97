"""What is no request for a topic: the right status, a text that says why, and nothing stored."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable

import pytest

from tests.integration.several import Several
from tests.topics import AVRO, Topics, fresh_pointer, poll_bytes, publish_bytes, transaction, zigzag

pytestmark = pytest.mark.integration
JSON = "application/json"
A_RECORD = {
    "transactionWritePointer": 1, "startTimestamp": 5, "startSequenceId": 0, "endTimestamp": 5, "endSequenceId": 1,
}  # fmt: skip


@pytest.fixture
def topic(topics: Topics) -> str:
    assert topics.create("t").status == 200
    return "t"


@pytest.mark.parametrize("call", ["publish", "store", "poll"])
def test_other_content_types_are_refused(topics: Topics, topic: str, call: str) -> None:
    for headers in ({}, {"content_type": "text/plain"}, {"content_type": "avro"}, {"content_type": ""}):
        answer = topics.call("POST", f"/{topic}/{call}", publish_bytes(b"a"), **headers)
        assert (answer.status, answer.body) == (
            400,
            b"Only avro/binary and application/json content types are supported.",
        )
    assert topics.bodies(topic) == []


@pytest.mark.parametrize(
    ("call", "body", "status"),
    [
        ("publish", publish_bytes(), 400),
        ("store", publish_bytes(b"a"), 400),
        ("store", publish_bytes(tx=5), 400),
        ("poll", poll_bytes(limit=0), 400),
        ("poll", poll_bytes(limit=-1), 400),
        ("poll", poll_bytes(-1), 400),
        ("poll", poll_bytes(b"x" * 19), 400),
        ("poll", poll_bytes(b""), 400),
        ("poll", poll_bytes(tx=b""), 400),
        ("poll?wait=-1", poll_bytes(), 400),
        ("poll?wait=forever", poll_bytes(), 400),
        ("poll", poll_bytes(tx=b"\x0a\x00\x01"), 400),
        ("poll", poll_bytes(tx=transaction(1, 1)[:-9]), 400),
        ("rollback", b"\x02\x00\x00\x00\x00", 400),
        ("rollback", lambda: b"\x00" + zigzag(fresh_pointer()) + zigzag(2**62) * 4, 400),
        ("rollback", b"\x00\x02" + zigzag(-5) * 4, 400),
        ("rollback", b"\x00\x02" + zigzag(9) + b"\x00" + zigzag(8) + b"\x00", 400),
    ],
)
def test_requests_that_mean_nothing_are_refused(
    topics: Topics, topic: str, call: str, body: bytes | Callable[[], bytes], status: int
) -> None:
    assert topics.post(topic, call, body if isinstance(body, bytes) else body()).status == status
    assert topics.bodies(topic) == []


@pytest.mark.parametrize("call", ["publish", "store", "poll", "rollback"])
@pytest.mark.parametrize(
    "body",
    [b"", b"\x02", b"\x04", b"\x06", b"\xff" * 40, b"\x02\x02\x7f", b"\x00" + b"\xff" * 9 + b"\x01",
     b"\x02" + zigzag(2**62) + b"\x02a\x00", b"\x02\x02" + zigzag(2**62) + b"a\x00", b"\x02\x02\x03a\x00",
     b"\x02\x02" + zigzag(-(2**62)) + b"a\x00", b"{}"],
)  # fmt: skip
def test_bodies_that_are_no_avro_are_refused(topics: Topics, topic: str, call: str, body: bytes) -> None:
    assert topics.post(topic, call, body).status == 400
    assert topics.bodies(topic) == []


@pytest.mark.parametrize(
    ("call", "body"),
    [("publish", "{"), ("publish", "[]"), ("publish", "null"), ("publish", '{"messages": ["*"]}'),
     ("publish", '{"messages": "YQ=="}'), ("publish", '{"messages": [1]}'),
     ("publish", '{"messages": ["YQ=="], "transactionWritePointer": 9223372036854775808}'),
     ("publish", '{"messages": ["YQ=="], "transactionWritePointer": "1"}'), ("publish", "[" * 200_000),
     ("poll", '{"startFrom": "xyz"}'), ("poll", '{"startFrom": "00"}'), ("poll", '{"startFrom": true}'),
     ("poll", json.dumps({"startFrom": "00 " * 20})), ("poll", '{"startFrom": -1}'), ("poll", '{"limit": 0}'),

     ("poll", '{"limit": 1.5}'), ("poll", '{"inclusive": 1}'), ("poll", '{"transaction": "AAAA"}'), ("rollback", "{}"),
     *(("rollback", json.dumps(A_RECORD | {"transactionWritePointer": one})) for one in (2**63, -(2**63) - 1, 10**30))],
)  # fmt: skip
def test_an_error_of_a_json_request_is_json_with_a_code_and_a_hint(
    topics: Topics, topic: str, call: str, body: str
) -> None:
    answer = topics.call("POST", f"/{topic}/{call}", body.encode(), content_type=JSON)
    assert (answer.status, answer.headers["content-type"]) == (400, JSON)
    problem = json.loads(answer.body)
    assert problem["code"] == "invalid_request"
    assert problem["message"]
    assert problem["hint"]
    assert topics.bodies(topic) == []


def test_unknown_topics_paths_and_methods(topics: Topics, topic: str, namespace: str) -> None:
    for call in ("publish", "poll"):
        body = publish_bytes(b"a") if call == "publish" else poll_bytes(limit=-1)
        answer = topics.post("none", call, body)
        assert (answer.status, answer.body) == (404, f"Topic {namespace}:none does not exist.".encode())
    wrong = topics.call("POST", f"/{topic}", publish_bytes(b"a"))
    assert (wrong.status, wrong.headers["connection"]) == (405, "close")
    assert wrong.headers["allow"] == "DELETE, GET, HEAD, PUT"
    assert topics.call("GET", f"/{topic}/publish").status == 405
    assert topics.call("POST", f"/{topic}").status == 405
    assert topics.call("PUT", f"/{topic}/publish").status == 405
    assert topics.call("GET", f"/{topic}/nothing").status == 404
    problem = json.loads(topics.call("PATCH", f"/{topic}", accept=JSON).body)
    assert problem["code"] == "wrong_method"


def test_bodies_over_ten_mebibytes_are_refused_compressed_ones_by_what_they_hold(
    topics: Topics, hosts: Several, namespace: str, topic: str
) -> None:
    largest = publish_bytes(b"x" * 8 * 2**20)
    assert topics.post(topic, "publish", largest).status == 200
    too_large = publish_bytes(*[b"x" * 2**20] * 10)
    fresh = Topics(hosts.hosts[0].address, hosts.hosts[0].http_port or 0, namespace)
    bomb = gzip.compress(b"\0" * 200 * 2**20)
    assert len(bomb) < 2**18
    refused = fresh.call("POST", f"/{topic}/publish", bomb, content_type=AVRO, content_encoding="gzip")
    assert refused.status == 413
    fresh.close()
    message = publish_bytes(b"x" * (8 * 2**20 + 1))
    assert topics.post(topic, "publish", message).status == 413
    head = f"POST {fresh.base}/{topic}/publish HTTP/1.1\r\nHost: h\r\nContent-Type: {AVRO}\r\n"
    said = head + f"Content-Length: {len(too_large)}\r\n\r\n"
    assert first_line(hosts, said.encode()) == b"HTTP/1.1 413 "
    assert len(topics.bodies(topic)) == 1


def first_line(hosts: Several, request: bytes) -> bytes:
    host = hosts.hosts[0]
    with socket.create_connection((host.address, host.http_port), timeout=60) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline().strip(b"\r\n")


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [("gzip", b"no gzip", 400), ("gzip", gzip.compress(publish_bytes(b"a"), mtime=0)[:-3], 400), ("gzip", b"", 400),
     ("gzip", gzip.compress(publish_bytes(b"a"), mtime=0) + b"more", 400), ("br", b"x", 415)],
)  # fmt: skip
def test_bodies_that_are_not_compressed_as_they_say_are_refused(
    topics: Topics, topic: str, encoding: str, body: bytes, status: int
) -> None:
    answer = topics.call("POST", f"/{topic}/publish", body, content_type=AVRO, content_encoding=encoding)
    assert answer.status == status
    assert topics.bodies(topic) == []


@pytest.mark.parametrize(
    "request_bytes",
    [b"\x00" * 100, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000, b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n",
     b"POST /v1 HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
     b"POST /v1 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
     b"POST /v1 HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_http_ends_its_connection_and_nothing_else(
    topics: Topics, hosts: Several, topic: str, request_bytes: bytes
) -> None:
    host = hosts.hosts[0]
    with socket.create_connection((host.address, host.http_port), timeout=60) as connection:
        connection.sendall(request_bytes)
        connection.shutdown(socket.SHUT_WR)
        connection.makefile("rb").read()
    topics.publish(topic, b"a")
    assert topics.bodies(topic) == [b"a"]


def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(
    topics: Topics, hosts: Several, topic: str
) -> None:
    host = hosts.hosts[0]
    body = publish_bytes(b"half")
    head = (
        f"POST {topics.base}/{topic}/publish HTTP/1.1\r\nHost: h\r\nContent-Type: {AVRO}\r\nContent-Length: 99\r\n\r\n"
    )
    with socket.create_connection((host.address, host.http_port), timeout=60) as connection:
        connection.sendall(head.encode() + body)
    for _ in range(30):
        topics.publish(topic, b"x" * 100_000)
    for _ in range(20):
        with socket.create_connection((host.address, host.http_port), timeout=60) as connection:
            ask = poll_bytes()
            connection.sendall(
                f"POST {topics.base}/{topic}/poll HTTP/1.1\r\nHost: h\r\nContent-Type: {AVRO}\r\n"
                f"Content-Length: {len(ask)}\r\n\r\n".encode()
                + ask
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert len(topics.bodies(topic)) == 30
