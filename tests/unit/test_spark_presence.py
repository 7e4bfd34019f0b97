"""The port of a stream that reads a subscription: it proves that the stream lives, and does nothing else."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import msgspec
import pytest

from delivery.errors import ProtocolError
from delivery.networks import Networks
from delivery.rpc.frames import FrameBuffer
from delivery.rpc.hello import is_alive
from delivery.rpc.protocol import decode_reply, encode_call
from delivery.spark.presence import Presence, own_address

NETWORKS = [Networks()]


@pytest.fixture
def presence() -> Iterator[Presence]:
    made = Presence("127.0.0.1:2181")
    with contextlib.closing(made):
        yield made


def test_it_is_alive_until_it_is_closed_and_to_who_knows_its_token_alone(presence: Presence) -> None:
    listener = presence.listener
    assert listener.pulls
    assert is_alive(listener, "q", "s", NETWORKS)
    assert not is_alive(msgspec.structs.replace(listener, token="another's"), "q", "s", NETWORKS)
    presence.close()
    assert not is_alive(listener, "q", "s", NETWORKS)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\0\0\0\4abcd", b"\0\1\0\0"], ids=str)
def test_what_is_no_call_ends_its_connection_and_nothing_else(presence: Presence, said: bytes) -> None:
    with socket.create_connection((presence.listener.address, presence.listener.port), 10) as caller:
        caller.sendall(said)
        caller.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert caller.recv(100) == b""
    assert is_alive(presence.listener, "q", "s", NETWORKS)


def test_it_takes_no_push(presence: Presence) -> None:
    parts, _ = encode_call("Listener", "running", 1, ("q", "s", ""))
    buffer = FrameBuffer(1000)
    with socket.create_connection((presence.listener.address, presence.listener.port), 10) as caller:
        caller.sendall(b"".join(parts))
        while (frame := buffer.next_frame()) is None:
            buffer.received(caller.recv_into(buffer.space()))
        assert isinstance(decode_reply("Listener", "running", 1, frame), ProtocolError)


def test_its_address_is_the_one_from_which_zookeeper_is_reached() -> None:
    assert own_address("127.0.0.1:1/folder") == "127.0.0.1"
    assert own_address("no.such.host.invalid:1,[::1]:1") in {"::1", "127.0.0.1"}
