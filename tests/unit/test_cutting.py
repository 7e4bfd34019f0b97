"""Cutting what is too large to go out at once."""

from __future__ import annotations

from hypothesis import given, strategies as st

from delivery.batch import encode, headers_in, open_batch, peek, stamp
from delivery.batch.pick import pick
from delivery.dispatch.buffer import Buffer, Piece
from delivery.model import Message

BODIES = st.lists(st.binary(max_size=60), min_size=1, max_size=30)


def batch_of(base: int, bodies: list[bytes]) -> bytes:
    rows = [(body, body[:1] or None, "ab"[len(body) % 2], b"") for body in bodies]
    data = encode(rows, 3)
    header = peek(data)
    assert header is not None
    return stamp(header, data, base, 5)[1]


def messages_of(data: bytes) -> list[Message]:
    return [
        message
        for at, header in headers_in(data)
        for message in open_batch(data[at : at + header.length], header).messages("orders")
    ]


def piece_of(batches: list[list[bytes]], thin: bool) -> Piece:
    """A piece of batches; with `thin` of every second message of each, as a filter leaves them."""
    parts, messages = [], 0
    for number, bodies in enumerate(batches):
        data = batch_of(1000 * (number + 1), bodies)
        if thin:
            data = pick(open_batch(data), open_batch(data).ids()[::2])
        header = peek(data)
        assert header is not None
        messages += header.count
        parts.append(data)
    return Piece(1000 * len(batches) + 999, messages, b"".join(parts))


@given(
    st.lists(BODIES, min_size=1, max_size=4),
    st.booleans(),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 3000)), min_size=1),
)
def test_the_parts_are_the_piece_in_order_and_none_is_too_large(
    batches: list[list[bytes]], thin: bool, limits: list[tuple[int, int]]
) -> None:
    piece = piece_of(batches, thin)
    buffer = Buffer(10**6, 10**9, lambda: None)
    buffer.add(piece)
    found, last_id, turn = list[Message](), 0, 0
    while True:
        messages_max, bytes_max = limits[turn % len(limits)]
        turn += 1
        part = buffer.first(messages_max, bytes_max)
        if part is None:
            break
        assert buffer.take() is part
        assert part.messages == len(messages_of(part.data)) > 0
        assert part.messages <= messages_max
        assert last_id < part.last_id
        assert messages_of(part.data)[-1].number <= part.last_id
        last_id = part.last_id
        found += messages_of(part.data)
    assert found == messages_of(piece.data)
    assert last_id == piece.last_id
    assert (buffer.messages, buffer.is_full) == (0, False)


@given(BODIES, st.integers(1, 5), st.integers(1, 5))
def test_a_part_that_waits_is_cut_again_when_less_may_go_out(bodies: list[bytes], first: int, then: int) -> None:
    buffer = Buffer(10**6, 10**9, lambda: None)
    piece = piece_of([bodies], thin=False)
    buffer.add(piece)
    buffer.first(first)
    found = list[Message]()
    while (part := buffer.first(then)) is not None:
        assert part.messages <= then
        found += messages_of(buffer.take().data)
    assert found == messages_of(piece.data)


@given(st.lists(BODIES, min_size=1, max_size=3), st.booleans(), st.integers(990, 3040), st.integers(1, 6))
def test_the_parts_of_a_run_that_begins_in_the_midst_of_a_batch_lie_behind_its_begin(
    batches: list[list[bytes]], thin: bool, after: int, messages_max: int
) -> None:
    piece = piece_of(batches, thin)
    if after >= piece.last_id:
        return
    buffer = Buffer(10**6, 10**9, lambda: None, after=after)
    buffer.add(piece)
    found, last_id = list[Message](), after
    while (part := buffer.first(messages_max)) is not None:
        buffer.take()
        assert part.last_id > last_id
        last_id = part.last_id
        found += messages_of(part.data)
    assert [one for one in found if one.number > after] == [
        one for one in messages_of(piece.data) if one.number > after
    ]  # fmt: skip
    assert (last_id, buffer.messages) == (piece.last_id, 0)


def test_what_fits_is_not_touched() -> None:
    buffer = Buffer(10**6, 10**9, lambda: None)
    piece = piece_of([[b"one", b"two"], [b"three"]], thin=False)
    buffer.add(piece)
    assert buffer.first(3, 10_000) is piece
    assert buffer.take() is piece


def test_one_message_goes_out_however_large_and_a_damaged_batch_stays_whole() -> None:
    buffer = Buffer(10**6, 10**9, lambda: None)
    large = piece_of([[bytes(5000)]], thin=False)
    damaged = Piece(1999, 3, batch_of(1000, [b"a", b"b", b"c"])[:-1] + b"!")
    buffer.add(large)
    buffer.add(damaged)
    assert buffer.first(1, 1) is large
    buffer.take()
    part = buffer.first(1, 1)
    assert part is not None
    assert (part.last_id, part.messages, part.data) == (1999, 3, damaged.data)
