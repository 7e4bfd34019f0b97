"""A region host that follows a script, on a real socket: it stores, refuses, loses answers and hangs up as told."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Literal, Self

from delivery.batch import open_batch
from delivery.batch.sequences import follows
from delivery.client.hosts import Owners
from delivery.client.machine import Target
from delivery.client.outgoing import Outgoing
from delivery.errors import CorruptRecord, HootError, OutOfSequence
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.records import HostRecord, QueueRecord
from delivery.model import QueueSettings
from delivery.rpc.frames import FrameBuffer
from delivery.rpc.protocol import FRAME_BYTES_MAX, Call, decode_call, encode_error, encode_result, load_idl

Act = HootError | Literal["store", "lose", "store and hang up", "hang up", "ignore", "speak HTTP"]
"""What to do with a publish. `lose` stores and sends no answer, so that the answers after it do not come either."""
_NOT_STORED = ("hang up", "ignore", "speak HTTP")
Script = Callable[[int], Act]
"""From the number of the publish, beginning with 0."""


class ScriptedHost:
    """Listens from `with` on. `log` has the bodies stored, per partition."""

    def __init__(self, script: Script = lambda number: "store") -> None:
        self._script = script
        self.log: dict[int, list[bytes]] = defaultdict(list)
        self.sizes: list[int] = []
        self.published = 0
        self.received = threading.Event()
        """Set by the first publish."""
        self.held = threading.Event()
        """Answers wait for it."""
        self.held.set()
        self._stored: dict[tuple[int, int, int], Any] = {}
        self._last: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    @property
    def record(self) -> HostRecord:
        return HostRecord(f"h{self.address[1]}", *self.address, None, 1, "1", 0)

    @property
    def bodies(self) -> list[bytes]:
        return self.log[0]

    def hang_up(self) -> None:
        """Close every connection."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):  # the other side, or the script, was first
                    one.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.held.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        frames = FrameBuffer(FRAME_BYTES_MAX)
        try:
            with connection:
                while count := connection.recv_into(frames.space()):
                    frames.received(count)
                    while (frame := frames.next_frame()) is not None:
                        if not self._answer(connection, decode_call("RegionHost", frame)):
                            return
        except OSError:
            pass
        finally:
            with self._lock:
                if connection in self._open:
                    self._open.remove(connection)

    def _answer(self, connection: socket.socket, call: Call) -> bool:
        """Do as the script says with a publish; False to hang up."""
        with self._lock:
            number, self.published = self.published, self.published + 1
            self.received.set()
            act = self._script(number)
            outcome = act if isinstance(act, HootError) or act in _NOT_STORED else self._store(call)
        self.held.wait(30)
        if isinstance(outcome, HootError):
            connection.sendall(b"".join(encode_error(call, outcome)[0]))
        elif act == "speak HTTP":
            connection.sendall(b"HTTP/1.1 400 \r\nconnection: close\r\n\r\n")
        elif act == "store":
            connection.sendall(b"".join(encode_result(call, outcome)[0]))
        return act not in ("hang up", "store and hang up", "speak HTTP")

    def _store(self, call: Call) -> Any:
        batch = open_batch(call.args.batch)
        producer, sequence = batch.header.producer_id, batch.header.producer_sequence
        place = (call.args.partition, producer, sequence)
        known = self._last.get(place[:2])
        if place in self._stored:
            return self._stored[place]
        if known is not None and not follows(sequence, known):
            return OutOfSequence("gap")
        self._last[place[:2]] = sequence
        self.sizes.append(batch.header.count)
        log = self.log[call.args.partition]
        reply = load_idl("delivery").PublishReply(
            baseId=len(log) + 1, count=batch.header.count, durability="os", duplicate=False
        )
        log += batch.bodies()
        self._stored[place] = reply
        return reply


class FixedCatalog:
    """Who owns what, as a test says: by default nobody, so that any live host is asked."""

    def __init__(self, *live: HostRecord) -> None:
        self.live = list(live)
        self.owned: dict[int, OwnerInfo] = {}
        self.looks = 0

    def readable_owners(self, queue: str) -> tuple[dict[int, OwnerInfo], list[CorruptRecord]]:
        self.looks += 1
        return self.owned, []

    def partition(self, queue: str, partition: int) -> tuple[OwnerInfo | None, int]:
        self.looks += 1
        return self.owned.get(partition), 0

    def readable_hosts(self) -> tuple[list[HostRecord], list[CorruptRecord]]:
        return self.live, []


def target(*hosts: ScriptedHost, partitions: int = 1, body_bytes_max: int = 1 << 20) -> Target:
    """A queue on these hosts."""
    outgoing = Outgoing("orders", partitions, body_bytes_max, lambda: body_bytes_max)
    queue = QueueRecord("orders", "g1", 0, QueueSettings(partitions=partitions))
    return Target(queue, outgoing, Owners(FixedCatalog(*(host.record for host in hosts))))
