"""A region host whose instructions are counted, or its memory, between a publisher and a listener.

Real are its sockets, Thrift calls, log with its committing thread, feed, workers, links and windows; ZooKeeper's side
of ownership is scripted. Publisher and listener have threads that are not counted; where memory is counted the listener
has a process, and what is published is ready before. One batch is on its way at a time: the next is published when the
position has reached the end of the one before.
"""

from __future__ import annotations

import multiprocessing
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import trio

from delivery import hop
from delivery.api.publishing import Publishing
from delivery.api.thrift import ThriftApi
from delivery.api.writers import Writers
from delivery.batch import encode, headers_in
from delivery.cluster.ownership import Ownership
from delivery.config import HostConfig
from delivery.dispatch.background import Background
from delivery.dispatch.lines import Lines
from delivery.dispatch.link import Link
from delivery.dispatch.target import STATUS_OK, Stream
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.filters import filter_of
from delivery.metastore.records import ListenerRecord
from delivery.metrics import Metrics
from delivery.publish.publisher import Publisher
from delivery.rpc.connection import Connection
from delivery.rpc.frames import FrameBuffer
from delivery.rpc.protocol import FRAME_BYTES_MAX, decode_call, decode_reply, encode_call, encode_result, load_idl
from delivery.rpc.server import ThriftServer, open_listeners
from delivery.storage.log import SegmentedLog
from delivery.storage.tail import TailCache
from tests.counting import allocated, counted
from tests.dispatch import KeptLetters, NoCounters, NotedLedger
from tests.hosting import ScriptedCluster, ScriptedDirectory, ScriptedMember

_SPAWN = multiprocessing.get_context("spawn")
SECONDS = 60.0
TOKEN = "token"
WARM, COUNTED = 3, 10
"""Batches before the counting begins, and counted ones."""


def frames(line: socket.socket) -> Iterator[memoryview]:
    buffer = FrameBuffer(FRAME_BYTES_MAX)
    while True:
        while (frame := buffer.next_frame()) is not None:
            yield frame
        count = line.recv_into(buffer.space())
        if count == 0:
            return
        buffer.received(count)


def batch(messages: int, sequence: int, size: int = 8) -> bytes:
    return encode([(bytes(size), None, "news", b"")] * messages, 0, producer_id=7, producer_sequence=sequence)


class ListenerPeer:
    """Answers every push as handled."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        line, _ = self._server.accept()
        with self._server, line:
            for frame in frames(line):
                call = decode_call("Listener", frame)
                line.sendall(b"".join(encode_result(call, self._answer(call.args))[0]))

    def _answer(self, args: Any) -> object:
        if not hasattr(args, "push"):
            return TOKEN
        last = max(header.last_id for _, header in headers_in(args.push.batches))
        return load_idl("subscriber").PushReply(status=STATUS_OK, position=last)


@contextmanager
def listener_process() -> Iterator[int]:
    """A ListenerPeer with memory of its own; its port."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_listen, args=(there,), daemon=True)
    process.start()
    try:
        assert here.poll(SECONDS), "the listener did not begin"
        yield here.recv()
    finally:
        process.kill()
        process.join()


def _listen(parent: Pipe) -> None:
    parent.send(ListenerPeer().port)
    threading.Event().wait()


class PublisherPeer:
    """Publishes one batch after the other, each when the one before has been delivered."""

    def __init__(self, messages: int, size: int = 8) -> None:
        self._messages = messages
        batches = [batch(messages, number, size) for number in range(WARM + COUNTED)]
        self._calls = [
            b"".join(encode_call("RegionHost", "publish", number, ("orders", 0, one, None))[0])
            for number, one in enumerate(batches)
        ]
        self.warm: Callable[[], object] = bool
        """Called when the host is warm."""
        self.host: SimpleQueue[tuple[int, Callable[[], None]]] = SimpleQueue()
        """Gets its port, and what to call in the end."""
        self.positions: SimpleQueue[int] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        port, done = self.host.get()
        with closing(socket.create_connection(("127.0.0.1", port))) as line:
            replies = frames(line)
            for number, call in enumerate(self._calls):
                if number == WARM:
                    self.warm()
                line.sendall(call)
                reply = decode_reply("RegionHost", "publish", number, next(replies))
                while self.positions.get(timeout=SECONDS) < reply.baseId + self._messages - 1:
                    pass
        done()


class CountedHost:
    """The host's own side."""

    def __init__(self, data: Path, peer: PublisherPeer, topics: tuple[str, ...], tail_bytes: int) -> None:
        self._peer, self._topics = peer, topics
        cluster, store, tail = ScriptedCluster(), SegmentedLog(data), TailCache(tail_bytes)
        self._ownership = Ownership(ScriptedDirectory(cluster), store, tail, ScriptedMember(cluster), cluster, 1.0)
        self._publisher = Publisher(
            self._ownership, store, tail, Metrics(), commit_bytes=1 << 20, pending_bytes_max=1 << 24
        )

    async def run(self, listener_port: int) -> None:
        hop.AT_ONCE.set(True)  # so that reads of the log are on a thread that is counted
        done, token = trio.Event(), trio.lowlevel.current_trio_token()
        with trio.fail_after(SECONDS):
            listeners = await open_listeners("127.0.0.1", 0)
            async with trio.open_nursery() as nursery:
                await nursery.start(self._ownership.run)
                await nursery.start(self._publisher.run)
                await nursery.start(ThriftServer(listeners, "RegionHost", self._api()).run)
                await self._deliver(nursery, listener_port)
                port = listeners[0].socket.getsockname()[1]
                self._peer.host.put((port, partial(token.run_sync_soon, done.set)))
                await done.wait()
                nursery.cancel_scope.cancel()

    def _api(self) -> ThriftApi:
        others = ("reading", "plain", "queues", "owners", "shared", "subscribing", "deliveries")
        unused: dict[str, Any] = dict.fromkeys(others)
        nobody: Any = None  # is asked for what has no transaction
        return ThriftApi(Publishing(self._publisher, Writers(nobody, nobody), nobody, nobody), **unused)

    async def _deliver(self, nursery: trio.Nursery, listener_port: int) -> None:
        config, stream = HostConfig(), Stream("orders", "mail", 0, epoch=1)
        record = ListenerRecord(address="127.0.0.1", port=listener_port, token=TOKEN)
        background = Background()
        await nursery.start(background.run)
        link = Link("orders", "mail", record, config, Lines(Connection.open, background))
        worker = SubscriptionWorker(
            stream, await self._ownership.acquire("orders", 0), begin=Begin(0, 1), wanted=filter_of(self._topics, None),
            config=config, counters=NoCounters(), ledger=NotedLedger(self._peer.positions.put), letters=KeptLetters(),
        )  # fmt: skip
        link.begin()
        nursery.start_soon(worker.run, link)


def instructions_of_a_host(
    data: Path, messages: int, *, topics: tuple[str, ...] = (), tail_bytes: int = 1 << 20
) -> dict[str, int]:
    """By function, for COUNTED batches of so many messages each; without a tail what is pushed is read from the log."""
    listener, peer = ListenerPeer(), PublisherPeer(messages)
    with counted("delivery") as found:
        peer.warm = found.clear
        trio.run(CountedHost(data, peer, topics, tail_bytes).run, listener.port)
        return found.by_function()


def copies_in_a_host(data: Path, *, topics: tuple[str, ...] = (), tail_bytes: int = 1 << 20) -> dict[str, float]:
    """By function, how often it copies a batch of a megabyte."""
    size = len(batch(1000, 0, 1000))
    with listener_process() as port, allocated(size // 2, "delivery") as found:
        peer = PublisherPeer(1000, 1000)
        peer.warm = found.clear
        trio.run(CountedHost(data, peer, topics, tail_bytes).run, port)
        return {name: round(count / COUNTED / size, 1) for name, count in found.by_function().items()}
