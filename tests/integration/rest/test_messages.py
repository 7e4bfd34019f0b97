"""Publishing and polling outside transactions, byte for byte as the original's client does it."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import time
from itertools import pairwise

import pytest

from delivery import connect
from tests.integration.embedded import NEVER
from tests.integration.several import Several
from tests.topics import AVRO, Polled, Topics, poll_bytes, publish_bytes, read_polled

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(topics: Topics) -> str:
    assert topics.create("t").status == 200
    return "t"


def test_a_publish_outside_transactions_answers_nothing_and_a_poll_gives_the_message(
    topics: Topics, topic: str
) -> None:
    before = int(time.time() * 1000)
    answer = topics.call("POST", f"/{topic}/publish", bytes.fromhex("0202026100"), content_type=AVRO)
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")
    assert "content-type" not in answer.headers
    polled = topics.call("POST", f"/{topic}/poll", bytes.fromhex("040100feffffff0f02"), content_type=AVRO)
    assert (polled.status, polled.headers["content-type"]) == (200, AVRO)
    assert polled.headers["transfer-encoding"] == "chunked"
    assert polled.body[:2] == bytes.fromhex("0228")
    assert polled.body[22:] == bytes.fromhex("026100")
    ((identity, payload),) = read_polled(polled.body)
    assert before <= int.from_bytes(identity[:8]) <= int(time.time() * 1000)
    assert (identity[10:], payload) == (bytes(10), b"a")


def test_an_empty_poll_is_one_zero_byte(topics: Topics, topic: str) -> None:
    assert topics.post(topic, "poll", poll_bytes()).body == b"\x00"


def test_a_poll_starts_at_an_id_a_time_or_the_beginning(topics: Topics, topic: str) -> None:
    for body in (b"a", b"b", b"c"):
        topics.publish(topic, body)
        NEVER.wait(0.003)  # the ids are to be of different milliseconds
    first, second, third = topics.poll(topic)
    times = [int.from_bytes(one.id[:8]) for one in (first, second, third)]
    assert topics.poll(topic, second.id) == [second, third]
    assert topics.poll(topic, second.id, inclusive=False) == [third]
    assert topics.poll(topic, second.id + b"more", inclusive=False) == [third]
    assert topics.poll(topic, second.id[:10] + b"\x00" * 9 + b"\x01", inclusive=False) == [third]
    assert topics.poll(topic, times[1], inclusive=False) == [second, third]
    assert topics.poll(topic, times[2] + 1) == []
    assert topics.poll(topic, 2**63 - 1) == []
    assert topics.poll(topic, 0, limit=2) == [first, second]
    assert topics.poll(topic, limit=None) == [first, second, third]


def test_many_messages_of_one_request_have_rising_ids_in_their_order(topics: Topics, topic: str) -> None:
    bodies = [b"%d" % number for number in range(70_000)]
    topics.publish(topic, *bodies)
    found = topics.poll(topic)
    assert [one.payload for one in found] == bodies
    assert all(a.id < b.id for a, b in pairwise(found))


def chunks_of(data: bytes) -> list[bytes]:
    """The chunks of a body, without the empty one at the end."""
    found: list[bytes] = []
    while True:
        size, _, data = data.partition(b"\r\n")
        if not int(size, 16):
            return found
        found.append(data[: int(size, 16)])
        data = data[int(size, 16) + 2 :]


def raw(hosts: Several, request: bytes, answers: int = 1) -> bytes:
    """What comes back for raw bytes, up to the end of so many answers or of the connection."""
    host = hosts.hosts[0]
    with socket.create_connection((host.address, host.http_port), timeout=60) as connection:
        connection.sendall(request)
        data = b""
        while data.count(b"0\r\n\r\n") < answers and (more := connection.recv(65_536)):
            data += more
        return data


def request(topics: Topics, path: str, body: bytes, *more: bytes) -> bytes:
    head = f"POST {topics.base}{path} HTTP/1.1\r\nHost: h\r\nContent-Type: {AVRO}\r\n".encode()
    return head + b"Content-Length: %d\r\n" % len(body) + b"".join(more) + b"\r\n" + body


def test_an_answer_comes_in_chunks_of_one_block_and_the_end_with_the_last_message(
    topics: Topics, hosts: Several, topic: str
) -> None:
    body = b"x" * 30_000
    for _ in range(10):
        topics.publish(topic, body)
    data = raw(hosts, request(topics, f"/{topic}/poll", poll_bytes()))
    chunks = chunks_of(data.partition(b"\r\n\r\n")[2])
    assert len(chunks) == 5
    assert [chunk[:1] for chunk in chunks] == [b"\x04"] * 5
    assert [len(read_polled(chunk + b"\x00")) for chunk in chunks[:-1]] == [2] * 4
    assert len(read_polled(chunks[-1])) == 2
    assert len(read_polled(b"".join(chunks))) == 10


def test_requests_may_be_pipelined_sent_in_chunks_and_announced(topics: Topics, hosts: Several, topic: str) -> None:
    ask = request(topics, f"/{topic}/poll", poll_bytes())
    assert raw(hosts, ask + ask, answers=2).count(b"HTTP/1.1 200") == 2
    head = f"POST {topics.base}/{topic}/publish HTTP/1.1\r\nHost: h\r\nContent-Type: {AVRO}\r\nConnection: close\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n3\r\n\x02\x02\x02\r\n2\r\na\x00\r\n0\r\n\r\n"
    assert raw(hosts, head.encode() + chunked).startswith(b"HTTP/1.1 200")
    expecting = request(topics, f"/{topic}/poll", poll_bytes(), b"Expect: 100-continue\r\n")
    host = hosts.hosts[0]
    with socket.create_connection((host.address, host.http_port), timeout=60) as connection:
        connection.sendall(expecting[: -len(poll_bytes())])
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(poll_bytes())
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert topics.bodies(topic) == [b"a"]


def test_request_arrays_come_in_several_blocks_with_sizes_or_without(topics: Topics, topic: str) -> None:
    for body in ("02 0202 61 0202 62 00", "02 03 08 0261 0262 00", "02 0202 61 0102 0262 00 ffff"):
        assert topics.post(topic, "publish", bytes.fromhex(body)).status == 200
    assert topics.bodies(topic) == [b"a", b"b"] * 3


def test_json_says_the_same_with_base64_and_hexadecimal_digits(topics: Topics, topic: str) -> None:
    def post(call: str, asked: object, **headers: str) -> tuple[int, bytes, str | None]:
        answer = topics.call(
            "POST", f"/{topic}/{call}", json.dumps(asked).encode(), content_type="application/json", **headers
        )
        return answer.status, answer.body, answer.headers.get("content-type")

    first, second = b"first \xff", b""
    messages = [base64.b64encode(body).decode() for body in (first, second)]
    assert post("publish", {"messages": messages}) == (200, b"", None)
    status, body, kind = post("poll", {})
    found = json.loads(body)
    assert (status, kind) == (200, "application/json")
    assert [Polled(bytes.fromhex(one["id"]), base64.b64decode(one["payload"])) for one in found] == topics.poll(topic)
    assert [base64.b64decode(one["payload"]) for one in found] == [first, second]
    ask = {"startFrom": found[0]["id"], "inclusive": False, "limit": 1, "transaction": None}
    assert json.loads(post("poll", ask)[1]) == found[1:]
    assert json.loads(post("poll", {"startFrom": 2**62})[1]) == []
    tx = time.time_ns()
    status, record, kind = post("publish", {"transactionWritePointer": tx, "messages": messages[:1]})
    assert (status, kind, json.loads(record)["transactionWritePointer"]) == (200, "application/json", tx)
    assert post("rollback", json.loads(record))[:2] == (200, b"")


def test_accept_chooses_the_answers_encoding(topics: Topics, topic: str) -> None:
    topics.publish(topic, b"a")
    as_json = topics.call("POST", f"/{topic}/poll", poll_bytes(), content_type=AVRO, accept="application/json")
    assert [one["payload"] for one in json.loads(as_json.body)] == ["YQ=="]
    as_avro = topics.call(
        "POST", f"/{topic}/poll", b"{}", content_type="Application/JSON; charset=utf-8", accept=f"text/x, {AVRO};q=1"
    )
    assert [one.payload for one in read_polled(as_avro.body)] == [b"a"]
    usual = topics.call("POST", f"/{topic}/poll", poll_bytes(), content_type=AVRO, accept="text/html, */*; q=.2")
    assert usual.headers["content-type"] == AVRO


def test_bodies_may_be_compressed(topics: Topics, topic: str) -> None:
    body = gzip.compress(publish_bytes(*[b"same"] * 5000))
    assert topics.call("POST", f"/{topic}/publish", body, content_type=AVRO, content_encoding="gzip").status == 200
    assert topics.bodies(topic) == [b"same"] * 5000


def test_a_ttl_is_judged_when_a_poll_begins_and_may_change_both_ways(topics: Topics) -> None:
    topics.create("t", b'{"ttl": 4}')
    topics.publish("t", b"old")
    NEVER.wait(4.1)
    topics.publish("t", b"young")
    assert topics.bodies("t") == topics.bodies("t", 0) == [b"young"]
    topics.call("PUT", "/t/properties", b'{"ttl": 1000}')
    first, second = topics.poll("t")
    assert (first.payload, second.payload) == (b"old", b"young")
    topics.call("PUT", "/t/properties", b'{"ttl": 4}')
    assert topics.bodies("t", first.id, inclusive=False) == [b"young"]


def test_what_other_clients_put_into_the_queue_is_there(topics: Topics, hosts: Several, namespace: str) -> None:
    topics.create("t")
    with connect(hosts.zookeeper) as client:
        client.queue(f"{namespace}.t").put(b"a", topic="label", key=b"k", headers={"h": b"v"})
    assert topics.bodies("t") == [b"a"]
