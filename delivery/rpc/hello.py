"""Asking a listener whether it lives, as a host does before it pushes: what it answers to `hello` is its token."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Final, Protocol

from delivery import logs
from delivery.errors import HootError, ListenerRefused, ProtocolError, SubscriberUnreachable
from delivery.networks import Networks
from delivery.rpc.frames import FrameBuffer
from delivery.rpc.pinned import allowed_now
from delivery.rpc.protocol import decode_reply, encode_call

log = logs.logger(__name__)

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


def is_alive(listener: Listener, queue: str, subscription: str, networks: Sequence[Networks]) -> bool:
    """Whether the listener answers at its address, or may be alive all the same; takes up to PROBE_SECONDS.

    It is not when nobody listens there, or somebody who does not know the token. Silence proves nothing. Where one of
    `networks` refuses the address, or it cannot be looked up, nobody is asked.
    """
    end = time.monotonic() + PROBE_SECONDS
    try:
        addresses = allowed_now(networks, listener.address)
    except (ListenerRefused, SubscriberUnreachable) as error:
        log.info("the listener at %s:%d is not asked whether it lives: %s", listener.address, listener.port, error)
        return True
    return any(_answers(listener, address, queue, subscription, end) for address in addresses)


def _answers(listener: Listener, address: str, queue: str, subscription: str, end: float) -> bool:
    try:
        return _hello(listener, address, queue, subscription, end) == listener.token
    except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError, HootError):
        return False
    except OSError as error:
        log.info("the listener at %s:%d does not answer: %s", listener.address, listener.port, error)
        return True


def _hello(listener: Listener, address: str, queue: str, subscription: str, end: float) -> object:
    service = "PlainListener" if listener.protocol == "plain" else "Listener"
    parts, _ = encode_call(service, "hello", 1, (queue, subscription))
    buffer = FrameBuffer(_HELLO_BYTES_MAX)
    with socket.create_connection((address, listener.port), max(end - time.monotonic(), 0.001)) as probe:
        probe.sendall(b"".join(parts))
        while (frame := buffer.next_frame()) is None:
            probe.settimeout(max(end - time.monotonic(), 0.001))
            count = probe.recv_into(buffer.space())
            if count == 0:
                raise ProtocolError("the connection was closed instead of an answer")
            buffer.received(count)
        return decode_reply(service, "hello", 1, frame)
