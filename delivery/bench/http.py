"""The cases of `hoot bench` for topics over HTTP. What was published is polled and held against it first."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import msgspec

from delivery.api.rest.asking import write_consume, write_publish
from delivery.bench.asking import Poller, check_ids, connect_to, http_host, post, repeat_request
from delivery.bench.checking import BenchFailed
from delivery.bench.gauging import resident_mib
from delivery.bench.report import Result, with_latencies
from delivery.bench.schedule import Schedule
from delivery.bench.stage import Setup, rated, wait_until
from delivery.metastore.records import HostRecord

_LATENCY_SECONDS = 10
_WAIT_SECONDS = 30
_BATCH = 1000
_PUBLISHING = 8
"""Connections of the steady publisher, in turn: a slow flush holds up only one."""
_SETTLE_SECONDS = 30.0


def http_publish(setup: Setup) -> Result:
    """Requests of `per_request` messages each over `connections` connections, until every one is answered."""
    with _topic(setup) as (host, path):
        request = post(f"{path}/publish", write_publish([random.randbytes(setup.size)] * setup.per_request))
        requests = -(-setup.messages // setup.per_request)
        begun = time.monotonic_ns()
        took = repeat_request(host, request, requests, setup.connections)
        nanoseconds = time.monotonic_ns() - begun
        with closing(Poller(host, path)) as poller:
            check_ids(poller.poll(), requests * setup.per_request)
    found = rated("http-publish", setup, requests * setup.per_request, nanoseconds)
    per_second = round(requests / nanoseconds * 1e9, 1)
    found = msgspec.structs.replace(found, requests_per_second=per_second, connections=setup.connections)
    return with_latencies(found, took)


def http_poll(setup: Setup) -> Result:
    """A backlog in one poll, which is the rate; then from a publish at a steady rate to the poll that waited for it."""
    with _topic(setup) as (host, path), closing(Poller(host, path)) as poller:
        request = post(f"{path}/publish", write_publish([random.randbytes(setup.size)] * _BATCH))
        requests = -(-setup.messages // _BATCH)
        repeat_request(host, request, requests, connections=4)
        begun = time.monotonic_ns()
        found = poller.poll()
        nanoseconds = time.monotonic_ns() - begun
        check_ids(found, requests * _BATCH)
        return with_latencies(rated("http-poll", setup, len(found), nanoseconds), _latencies(setup, host, path, poller))


def http_wait(setup: Setup) -> Result:
    """So many polls that wait, a connection each; what they add to the host's memory. In the end all are answered."""
    assert setup.host_pid is not None, "the engine is the bench's own"
    with _topic(setup) as (host, path), ExitStack() as stack:
        before = resident_mib(setup.host_pid)
        begun = time.monotonic_ns()
        lines = [stack.enter_context(closing(connect_to(host))) for _ in range(setup.connections)]
        for line in lines:
            line.sendall(post(f"{path}/poll?wait=300", write_consume(None)))
        wait_until(lambda: _waiting(host) == len(lines), "all polls wait", _SETTLE_SECONDS, pause=0.2)
        memory = resident_mib(setup.host_pid)
        repeat_request(host, post(f"{path}/publish", write_publish([b"now"])), 1, 1)
        for line in lines:
            _take_answer(line)
        found = rated("http-wait", setup, len(lines), time.monotonic_ns() - begun)
    return msgspec.structs.replace(found, alone_mib=before, host_mib=memory, connections=len(lines))


def _latencies(setup: Setup, host: HostRecord, path: str, poller: Poller) -> list[int]:
    """From the moment a message was due to the poll that brought it, in ns; late sends count against it."""
    count = min(setup.messages, int(setup.rate * _LATENCY_SECONDS))
    failures: list[Exception] = []

    def publish() -> None:
        try:
            _publish_paced(host, path, setup, count)
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    took: list[int] = []
    while len(took) < count and not failures:
        found = poller.poll(_WAIT_SECONDS)
        now = time.monotonic_ns()
        took += [now - int.from_bytes(one.payload[:8], "little") for one in found]
    thread.join()
    if failures:
        raise failures[0]
    return took[len(took) // 10 :]


def _publish_paced(host: HostRecord, path: str, setup: Setup, count: int) -> None:
    padding = bytes(max(0, setup.size - 8))
    with ExitStack() as stack:
        lines = [stack.enter_context(closing(connect_to(host))) for _ in range(_PUBLISHING)]
        schedule = Schedule(setup.rate)
        for number in range(count):
            line = lines[number % _PUBLISHING]
            if number >= _PUBLISHING:
                _take_answer(line)
            due = schedule.wait(number)
            line.sendall(post(f"{path}/publish", write_publish([due.to_bytes(8, "little") + padding])))
        for line in lines[:count]:
            _take_answer(line)


def _take_answer(line: socket.socket) -> None:
    if not line.recv(65536).startswith(b"HTTP/1.1 200 "):
        raise BenchFailed("a request was not answered as it should be")


def _waiting(host: HostRecord) -> int:
    """How many polls wait at a host."""
    with urllib.request.urlopen(f"http://{host.address}:{host.http_port}/metrics", timeout=_SETTLE_SECONDS) as page:
        told = re.search(rb"^hoot_waiting_polls (\S+)$", page.read(), re.MULTILINE)
    return int(float(told[1])) if told else 0


@contextmanager
def _topic(setup: Setup) -> Iterator[tuple[HostRecord, str]]:
    """A new topic: its host and its path. It is deleted in the end."""
    name = f"bench-{random.getrandbits(48):012x}"
    host, path = http_host(setup.client), f"/v1/namespaces/bench/topics/{name}"
    with closing(connect_to(host)) as line:
        line.sendall(f"PUT {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n".encode())
        _take_answer(line)
    try:
        yield host, path
    finally:
        setup.client.delete_queue(f"bench.{name}")
