"""The listeners of the case `idle`: a process that answers for thousands of subscriptions, and does nothing else.

Started by `idle` as `python -m delivery.bench.sleepers JSON`. Real subscribers would need threads and a session with
ZooKeeper each; here all share one session and one token. To a host they are as many subscribers as a queue has
subscriptions, each with an address, and so with a connection, of its own, and subscribed to all of the queues. It talks
by lines of JSON on its standard output, and ends with its standard input.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import msgspec
import trio

from delivery import wall
from delivery.batch import headers_in
from delivery.bench.children import say
from delivery.embedded.lifeline import end_with_parent
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.records import ListenerRecord
from delivery.metastore.request import check_request, new_record
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.rpc.promise import Promise
from delivery.rpc.protocol import Call, load_idl
from delivery.rpc.server import ServerLimits, ThriftServer, allow_open_files, open_listeners

_AT_ONCE: Final = 8
"""Queues whose subscriptions are made at the same time."""
_LIMITS: Final = ServerLimits(connections_max=1_000_000, idle_seconds=86_400)
_OK: Final = 0


class Task(msgspec.Struct):
    """What to be."""

    zookeeper: str
    queues: list[str]
    subscriptions: int
    """Of each queue."""
    messages: int
    """That each of them gets in the end."""


class Outcome(msgspec.Struct):
    """What came."""

    last_ns: int
    """When the last message did, by CLOCK_MONOTONIC."""
    whole: int
    """The subscriptions that got as many as they were to get, and no more."""


class Sleepers:
    """The handler of the Listener service for all of them."""

    def __init__(self, expected: int) -> None:
        """`done` is set when that many messages have come to all together."""
        self.token = secrets.token_hex(8)
        self.done = trio.Event()
        self.last_ns = 0
        self.received: Counter[tuple[str, str]] = Counter()
        """Messages by queue and subscription."""
        self._missing = expected
        self._reply = load_idl("subscriber").PushReply

    def begin(self, call: Call) -> Promise[Any] | Callable[[], Awaitable[Any]]:
        """See Handler."""
        answer: Promise[Any] = Promise()
        answer.give(self.token if call.method == "hello" else self._take(call.args.push))
        return answer

    def _take(self, push: Any) -> object:  # noqa: ANN401 - a struct of the IDL
        headers = [header for _, header in headers_in(push.batches)]
        count = sum(header.count for header in headers)
        self.received[push.queue, push.subscription] += count
        self._missing -= count
        if count and self._missing <= 0:
            self.last_ns = time.monotonic_ns()
            self.done.set()
        return self._reply(status=_OK, position=max((one.last_id for one in headers), default=push.after))


async def run(task: Task) -> None:
    """Attach all, tell when each has got its messages, and stay until killed."""
    sleepers = Sleepers(len(task.queues) * task.subscriptions * task.messages)
    listeners = [one for _ in range(task.subscriptions) for one in await open_listeners("127.0.0.1", 0)]
    ports = [one.socket.getsockname()[1] for one in listeners]
    records = [ListenerRecord(address="127.0.0.1", port=port, token=sleepers.token) for port in ports]
    server = ThriftServer(listeners, "Listener", sleepers, _LIMITS)
    with ZooKeeperClient(task.zookeeper) as session:
        catalog = open_catalog(session)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            await trio.to_thread.run_sync(_attach_all, catalog, task, records)
            say({"ready": True})
            await sleepers.done.wait()
            whole = sum(count == task.messages for count in sleepers.received.values())
            say(Outcome(sleepers.last_ns, whole))
            await trio.sleep_forever()  # the last answers are still on their way, and checkpoints follow them


def _attach_all(catalog: Catalog, task: Task, listeners: Sequence[ListenerRecord]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(partial(_attach, catalog, listeners), task.queues))


def _attach(catalog: Catalog, listeners: Sequence[ListenerRecord], queue: str) -> None:
    record, request = catalog.queue(queue), check_request(queue, None, None, "earliest")
    for number, listener in enumerate(listeners):
        name = f"idle{number}"
        catalog.create_subscription(new_record(request, name, record, None, _no_last_id, wall.ms()))
        catalog.attach(queue, name, listener)


def _no_last_id(_partition: int) -> int:
    raise AssertionError("the earliest place is known without asking")


def main(arguments: Sequence[str]) -> None:
    """Be what the JSON says."""
    end_with_parent()
    allow_open_files()
    trio.run(run, msgspec.json.decode(arguments[0], type=Task))


if __name__ == "__main__":
    main(sys.argv[1:])
