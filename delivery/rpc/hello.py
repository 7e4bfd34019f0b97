"""Asking a listener whether it lives, as a host does before it pushes: what it answers to `hello` is its token."""

from __future__ import annotations

import logging
import socket
import time
from typing import Final, Protocol

from delivery.errors import HootError, ProtocolError
from delivery.rpc.frames import FrameBuffer
from delivery.rpc.protocol import decode_reply, encode_call

log = logging.getLogger(__name__)

PROBE_SECONDS: Final = 1.0

_HELLO_BYTES_MAX: Final = 64 * 1024


class Listener(Protocol):
    """Where a listener is said to be (metastore.records.ListenerRecord)."""

    @property
    def address(self) -> str:
        """Its host's name or address."""

    @property
    def port(self) -> int:
        """Where it listens."""

    @property
    def token(self) -> str:
        """What it proves itself with."""

    @property
    def protocol(self) -> str:
        """Which service of the IDL it has."""


def is_alive(listener: Listener, queue: str, subscription: str) -> bool:
    """Whether the listener answers at its address, or may be alive all the same; takes up to PROBE_SECONDS.

    It is not when nobody listens there, or somebody who does not know the token. Silence proves nothing.
    """
    try:
        return _hello(listener, queue, subscription) == listener.token
    except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError, HootError):
        return False
    except OSError as error:
        log.info("the listener at %s:%d does not answer: %s", listener.address, listener.port, error)
        return True


def _hello(listener: Listener, queue: str, subscription: str) -> object:
    end = time.monotonic() + PROBE_SECONDS
    service = "Listener" if listener.protocol == "packed" else "PlainListener"
    parts, _ = encode_call(service, "hello", 1, (queue, subscription))
    buffer = FrameBuffer(_HELLO_BYTES_MAX)
    with socket.create_connection((listener.address, listener.port), PROBE_SECONDS) as probe:
        probe.sendall(b"".join(parts))
        while (frame := buffer.next_frame()) is None:
            probe.settimeout(max(end - time.monotonic(), 0.001))
            count = probe.recv_into(buffer.space())
            if count == 0:
                raise ProtocolError("the connection was closed instead of an answer")
            buffer.received(count)
        return decode_reply(service, "hello", 1, frame)
