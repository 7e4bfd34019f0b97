"""An HTTP client for measuring: ready bytes over many connections, and as few steps as possible for an answer."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import pairwise

from delivery.api.rest.asking import read_consumed, write_consume
from delivery.bench.checking import BenchFailed
from delivery.client import Client
from delivery.messaging.polling import Given
from delivery.metastore.records import HostRecord

AVRO = "avro/binary"
_SECONDS = 60.0
_END = b"\r\n\r\n"


def http_host(client: Client) -> HostRecord:
    """A host that answers HTTP. Raises BenchFailed."""
    found = next((host for host in client.hosts() if host.http_port is not None and not host.draining), None)
    if found is None:
        raise BenchFailed("no region host answers HTTP")
    return found


def connect_to(host: HostRecord) -> socket.socket:
    """A connection to a host's HTTP port."""
    made = socket.create_connection((host.address, host.http_port), timeout=_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def post(path: str, body: bytes) -> bytes:
    """A request as its bytes."""
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {AVRO}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("ascii") + body


def repeat_request(host: HostRecord, request: bytes, count: int, connections: int) -> list[int]:
    """Send a request so many times, on each connection as soon as the one before is answered; what each took, in ns.

    The answers must be 200 and have no body; raises BenchFailed.
    """
    took: list[int] = []
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(min(connections, count)):
            line = stack.enter_context(closing(connect_to(host)))
            selector.register(line, selectors.EVENT_READ, [0])
        left = count
        for key in list(selector.get_map().values()):
            left -= 1
            _send(key, request)
        while len(took) < count:
            for key, _ in selector.select(_SECONDS):
                took.append(time.monotonic_ns() - key.data[0])
                _check(_received(key.fileobj))
                if left:
                    left -= 1
                    _send(key, request)
    return took


def _send(key: selectors.SelectorKey, request: bytes) -> None:
    assert isinstance(key.fileobj, socket.socket)
    key.data[0] = time.monotonic_ns()
    key.fileobj.sendall(request)


def _received(line: object) -> bytes:
    assert isinstance(line, socket.socket)
    data = line.recv(65536)
    while data and _END not in data:
        data += line.recv(65536)
    return data


def _check(answer: bytes) -> None:
    if not answer.startswith(b"HTTP/1.1 200 ") or not answer.endswith(_END):
        raise BenchFailed(f"a publish was answered {answer[:200]!r}")


class Poller:
    """Polls a topic, on one connection, from behind what it got last."""

    def __init__(self, host: HostRecord, path: str) -> None:
        self._line = connect_to(host)
        self._answers = self._line.makefile("rb")
        self._path = f"{path}/poll"
        self.last: bytes | None = None

    def poll(self, wait: int = 0) -> Sequence[Given]:
        """What is there now, or within so many seconds. Raises BenchFailed."""
        self._line.sendall(post(f"{self._path}?wait={wait}", write_consume(self.last)))
        found = read_consumed(self._body())
        self.last = found[-1].id if found else self.last
        return found

    def _body(self) -> bytes:
        status = self._answers.readline()
        while self._answers.readline().strip():
            pass  # the headers; the answer to a poll is always in chunks
        if not status.startswith(b"HTTP/1.1 200 "):
            raise BenchFailed(f"a poll was answered {status!r}")
        pieces = []
        while size := int(self._answers.readline(), 16):
            pieces.append(self._answers.read(size))
            self._answers.readline()
        self._answers.readline()
        return b"".join(pieces)

    def close(self) -> None:
        """Let go of the connection."""
        self._answers.close()
        self._line.close()


def check_ids(messages: Sequence[Given], count: int) -> None:
    """Raise BenchFailed unless there are so many messages, in order and none twice."""
    if len(messages) != count:
        raise BenchFailed(f"{count} messages were published and {len(messages)} polled")
    if any(one.id >= following.id for one, following in pairwise(messages)):
        raise BenchFailed("polled messages are not in order")
