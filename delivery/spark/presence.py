"""What answers for a stream that reads a subscription, so that whoever wants the subscription can tell that it lives.

A driver that was killed is attached until its session times out. Nobody answers at its port then, and the same query,
started anew, need not wait for that.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Final

from delivery.errors import ProtocolError
from delivery.metastore.address import split_hosts
from delivery.metastore.records import ListenerRecord
from delivery.rpc.frames import FrameBuffer
from delivery.rpc.protocol import decode_call, encode_refusal, encode_result

FRAME_BYTES_MAX: Final = 64 * 1024
SILENT_SECONDS: Final = 5.0


class Presence:
    """A port that answers `hello`, until it is closed."""

    def __init__(self, zookeeper: str) -> None:
        """`zookeeper` tells the address: the one from which this machine reaches it. Raises OSError."""
        address = own_address(zookeeper)
        self._server = server = _Server((address, 0), _Answering)
        self.listener: Final = ListenerRecord(
            address=address, port=server.server_address[1], token=server.token, protocol="pull"
        )
        Thread(target=server.serve_forever, name="hoot-presence", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def own_address(zookeeper: str) -> str:
    """The address of this machine on the way to ZooKeeper; nothing is sent. Raises ConfigError."""
    for server in split_hosts(zookeeper)[0].split(","):
        host, _, port = server.rpartition(":")
        with contextlib.suppress(OSError):
            family, kind, _, _, peer = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(peer)
                return str(probe.getsockname()[0])
    return "127.0.0.1"


class _Server(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, place: tuple[str, int], handler: type[BaseRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        self.token: Final = secrets.token_hex(16)
        super().__init__(place, handler)


class _Answering(BaseRequestHandler):
    """One connection: its calls one after the other, until it falls silent or says what is no call."""

    request: socket.socket
    server: _Server

    def handle(self) -> None:
        """Answer `hello` with the token, and refuse all else."""
        self.request.settimeout(SILENT_SECONDS)
        buffer = FrameBuffer(FRAME_BYTES_MAX, small=4096)
        with contextlib.suppress(OSError, ProtocolError):
            while count := self.request.recv_into(buffer.space()):
                buffer.received(count)
                while (frame := buffer.next_frame()) is not None:
                    self.request.sendall(_answer(frame, self.server.token))


def _answer(frame: memoryview, token: str) -> bytes:
    call = decode_call("Listener", frame)
    known = call.method == "hello" and call.args is not None
    parts, _ = encode_result(call, token) if known else encode_refusal(call)
    return b"".join(parts)
