"""The wire of seed 003 from the client's side, written out by hand from the measured contract and not from the code."""

from __future__ import annotations

import http.client
import struct
import time
from collections.abc import Iterable
from typing import NamedTuple

AVRO = "avro/binary"
ALL = 2**31 - 1
"""What the original's client sends for no limit."""


def zigzag(number: int) -> bytes:
    """An Avro int or long."""
    rest, out = (number << 1) ^ (number >> 63), bytearray()
    while rest & ~0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def sized(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def publish_bytes(*messages: bytes, tx: int | None = None) -> bytes:
    pointer = b"\x02" if tx is None else b"\x00" + zigzag(tx)
    return pointer + (zigzag(len(messages)) + b"".join(map(sized, messages)) if messages else b"") + b"\x00"


def poll_bytes(
    start: bytes | int | None = None, *, inclusive: bool = True, limit: int | None = ALL, tx: bytes | None = None
) -> bytes:
    begin = b"\x04" if start is None else b"\x02" + zigzag(start) if isinstance(start, int) else b"\x00" + sized(start)
    count = b"\x02" if limit is None else b"\x00" + zigzag(limit)
    return begin + bytes([inclusive]) + count + (b"\x02" if tx is None else b"\x00" + sized(tx))


class Polled(NamedTuple):
    id: bytes
    payload: bytes


def read_long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def read_polled(data: bytes) -> list[Polled]:
    """An answer to a poll, to its very end."""
    found: list[Polled] = []
    at = 0
    while True:
        count, at = read_long(data, at)
        assert count >= 0
        if count == 0:
            assert at == len(data), "bytes behind the end"
            return found
        for _ in range(count):
            fields = []
            for _ in range(2):
                size, at = read_long(data, at)
                fields.append(data[at : at + size])
                at += size
            found.append(Polled(*fields))


def transaction(
    pointer: int, read: int, *, invalid: Iterable[int] = (), in_progress: Iterable[int] = (), write: int | None = None,
    checkpoints: Iterable[int] = (), visibility: int | None = None,
) -> bytes:  # fmt: skip
    """A TTransaction as TransactionCodec of Tephra 0.15 writes it."""

    def number(field: int, value: int) -> bytes:
        return struct.pack(">bhq", 10, field, value)

    def numbers(field: int, values: Iterable[int]) -> bytes:
        each = list(values)
        return struct.pack(f">bhbi{len(each)}q", 15, field, 10, len(each), *each)

    parts = [
        number(1, pointer), number(2, read), numbers(3, invalid), numbers(4, in_progress), number(5, 0),
        struct.pack(">bhi", 8, 6, 1), number(7, pointer if write is None else write), numbers(8, checkpoints),
    ]  # fmt: skip
    if visibility is not None:
        parts.append(struct.pack(">bhi", 8, 9, visibility))
    return b"".join(parts) + b"\x00"


def fresh_pointer(offset: int = 0) -> int:
    """A write pointer as a transaction service gives them out now: milliseconds and six digits more."""
    return time.time_ns() + offset


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Topics:
    """A client of one namespace on one host, with one connection that is kept alive."""

    def __init__(self, address: str, port: int, namespace: str) -> None:
        self.base = f"/v1/namespaces/{namespace}/topics"
        self._connection = http.client.HTTPConnection(address, port, timeout=60)

    def call(self, method: str, path: str = "", body: bytes | None = None, **headers: str) -> Answer:
        """A request below the namespace's topics; `content_type` is the header Content-Type."""
        self.ask(method, path, body, **headers)
        with self._connection.getresponse() as response:
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> None:
        """Send a request, as `call` does, whose answer nobody takes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, self.base + path, body, named)

    def create(self, topic: str, properties: bytes = b"{}") -> Answer:
        return self.call("PUT", f"/{topic}", properties)

    def post(self, topic: str, call: str, body: bytes) -> Answer:
        return self.call("POST", f"/{topic}/{call}", body, content_type=AVRO)

    def publish(self, topic: str, *messages: bytes, tx: int | None = None) -> bytes:
        answer = self.post(topic, "publish", publish_bytes(*messages, tx=tx))
        assert answer.status == 200, answer
        return answer.body

    def store(self, topic: str, *messages: bytes, tx: int) -> None:
        answer = self.post(topic, "store", publish_bytes(*messages, tx=tx))
        assert (answer.status, answer.body) == (200, b""), answer

    def rollback(self, topic: str, record: bytes) -> Answer:
        return self.call("POST", f"/{topic}/rollback", record)

    def poll(
        self, topic: str, start: bytes | int | None = None, *, inclusive: bool = True, limit: int | None = ALL,
        tx: bytes | None = None,
    ) -> list[Polled]:  # fmt: skip
        answer = self.post(topic, "poll", poll_bytes(start, inclusive=inclusive, limit=limit, tx=tx))
        assert (answer.status, answer.headers["content-type"]) == (200, AVRO), answer
        return read_polled(answer.body)

    def bodies(
        self, topic: str, start: bytes | int | None = None, *, inclusive: bool = True, limit: int | None = ALL,
        tx: bytes | None = None,
    ) -> list[bytes]:  # fmt: skip
        return [one.payload for one in self.poll(topic, start, inclusive=inclusive, limit=limit, tx=tx)]

    def close(self) -> None:
        self._connection.close()
