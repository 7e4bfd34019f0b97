"""A listener that takes pushes and answers them when, in which order, and as often as a test says.

It is registered by hand, speaks the subscriber's side of the wire, and handles what it gets by writing it down.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any, Final, NamedTuple, Self

from delivery.batch import headers_in
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.rpc.protocol import Call, decode_call, encode_result, load_idl
from tests.integration.embedded import eventually

NAME, TOKEN = "odd", "the right token"
_IDL: Final[Any] = load_idl("subscriber")


class Taken(NamedTuple):
    """A push that waits for its answer."""

    call: Call
    last_id: int


class Odd:
    """A context manager: attached to a queue inside."""

    def __init__(self, catalog: Catalog, queue: str) -> None:
        self._catalog, self._queue = catalog, queue
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, name="odd", daemon=True)
        self._socket: socket.socket | None = None
        self.connections = 0
        self.waiting: list[Taken] = []
        """Those of the newest connection that came and were not answered."""

    def has(self, count: int) -> None:
        """Wait until so many pushes wait for their answers."""
        eventually(lambda: len(self.waiting) >= count, f"{count} pushes wait")

    def answer(self, *order: int) -> None:
        """Say of these, by their places in `waiting`, that they were handled; each place may come more than once."""
        assert self._socket is not None
        waiting = list(self.waiting)
        for place in order:
            reply = _IDL.PushReply(status=_IDL.OK, position=waiting[place].last_id)
            self._send(waiting[place].call, reply)

    def position(self) -> int:
        """The checkpoint; 0 before there is one."""
        state = self._catalog.states(self._queue, NAME).get(0)
        return 0 if state is None else state.position

    def __enter__(self) -> Self:
        self._thread.start()
        record = self._catalog.queue(self._queue)
        subscription = SubscriptionRecord(
            name=NAME, queue=self._queue, generation=record.generation, created_ms=1, starts={0: 0},
            all_partitions=True, topics=(),
        )  # fmt: skip
        self._catalog.create_subscription(subscription)
        listener = ListenerRecord(address="127.0.0.1", port=self._server.getsockname()[1], token=TOKEN)
        self._catalog.attach(self._queue, NAME, listener, replace=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        if self._socket is not None:
            self._socket.close()
        self._thread.join(10)

    def _serve(self) -> None:
        """One connection after another: a host has one at a time."""
        while True:
            try:
                self._socket, _ = self._server.accept()
            except OSError:
                return
            self.waiting = []
            self.connections += 1
            with self._socket:
                self._take_calls(self._socket)

    def _take_calls(self, peer: socket.socket) -> None:
        with peer.makefile("rb") as stream:
            try:
                while len(head := stream.read(4)) == 4:
                    self._called(decode_call("Listener", memoryview(stream.read(struct.unpack(">i", head)[0]))))
            except OSError:
                return

    def _called(self, call: Call) -> None:
        if call.method == "hello":
            self._send(call, TOKEN)
            return
        *_, (_, header) = headers_in(bytes(call.args.push.batches))
        self.waiting.append(Taken(call, header.last_id))

    def _send(self, call: Call, result: object) -> None:
        assert self._socket is not None
        self._socket.sendall(b"".join(encode_result(call, result)[0]))
