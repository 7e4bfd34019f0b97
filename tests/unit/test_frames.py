"""Cutting a stream into frames: whatever the pieces, and with no more memory than the bytes that came."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from delivery.errors import ProtocolError
from delivery.rpc.frames import SMALL_BYTES, FrameBuffer, joined, rest


def framed(*contents: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(each)) + each for each in contents)


def feed(buffer: FrameBuffer, data: bytes, sizes: list[int]) -> list[bytes]:
    """Put `data` into a buffer in pieces of `sizes`, in turn, and take every frame out as soon as it is there."""
    found, at, turn = [], 0, 0
    while True:
        while (frame := buffer.next_frame()) is not None:
            found.append(bytes(frame))
        if at == len(data):
            return found
        space = buffer.space()
        assert len(space) > 0
        size = min(len(space), sizes[turn % len(sizes)], len(data) - at)
        space[:size] = data[at : at + size]
        buffer.received(size)
        at, turn = at + size, turn + 1


def test_frames_come_out_one_byte_at_a_time() -> None:
    contents = [b"a", bytes(300), b"bc" * 1000]
    assert feed(FrameBuffer(5000), framed(*contents), [1]) == contents


LENGTHS = st.one_of(st.integers(1, 100), st.integers(SMALL_BYTES - 10, SMALL_BYTES + 10), st.integers(1, 300_000))


@given(
    st.lists(LENGTHS, min_size=1, max_size=8), st.lists(st.integers(1, 200_000), min_size=1, max_size=5),
    st.sampled_from([64, 1024, SMALL_BYTES]),
)  # fmt: skip
def test_frames_come_out_however_they_arrive(lengths: list[int], sizes: list[int], small: int) -> None:
    contents = [bytes([n]) * length for n, length in enumerate(lengths, 1)]
    buffer = FrameBuffer(300_000, small)
    assert feed(buffer, framed(*contents), [size + sum(lengths) // 200 for size in sizes]) == contents
    assert not buffer.partial


@pytest.mark.parametrize("length", [0, -1, 5001, 2**31 - 1, -(2**31), struct.unpack(">i", b"GET ")[0]])
def test_a_frame_of_a_wrong_length_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match=str(length)):
        feed(FrameBuffer(5000), struct.pack(">i", length), [4])


def test_a_declared_length_alone_takes_no_memory() -> None:
    buffer = FrameBuffer(1 << 24)
    assert feed(buffer, struct.pack(">i", 1 << 24) + bytes(100_000), [70_000]) == []
    assert buffer.capacity <= 4 * SMALL_BYTES


def test_memory_is_kept_for_batches_and_given_back_when_quiet() -> None:
    buffer = FrameBuffer(1 << 24)
    feed(buffer, framed(bytes(256 * 1024)), [1 << 20])
    assert buffer.capacity > 256 * 1024
    assert buffer.release()
    assert buffer.capacity == SMALL_BYTES
    assert not buffer.release()
    assert feed(buffer, framed(b"next"), [3]) == [b"next"]


def test_memory_of_a_huge_frame_is_given_back_at_once() -> None:
    buffer = FrameBuffer(1 << 24)
    feed(buffer, framed(bytes(10 << 20)), [1 << 22])
    buffer.space()
    assert buffer.capacity == SMALL_BYTES


@given(st.lists(st.binary(min_size=1, max_size=10), min_size=1, max_size=5), st.data())
def test_the_rest_of_a_frame_is_what_was_not_sent(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    sent = data.draw(st.integers(0, len(whole)))
    assert b"".join(rest(list(parts), sent)) == whole[sent:]
    assert b"".join(joined(parts, len(whole))) == whole


def test_a_buffer_that_is_to_be_small_is_so_again_when_its_connection_falls_quiet() -> None:
    buffer = FrameBuffer(1 << 20, 1024)
    assert (buffer.capacity, buffer.release()) == (1024, False)
    assert feed(buffer, framed(bytes(5000)), [700]) == [bytes(5000)]
    assert buffer.capacity > 1024
    assert buffer.release()
    assert buffer.capacity == 1024
