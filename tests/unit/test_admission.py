"""What a region host lets in: whole, correct batches within the limits, and nothing else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from delivery.batch import Header, encode, peek, select, stamp
from delivery.errors import CorruptRecord, HootError, InvalidRequest, MessageTooLarge
from delivery.filters import Filter, Topics
from delivery.model import KEY_BYTES_MAX, QueueSettings
from delivery.publish.admission import admit
from tests.hosting import batch

SETTINGS = QueueSettings(body_bytes_max=100)


def header_of(data: bytes) -> Header:
    header = peek(data)
    assert header is not None
    return header


def test_a_batch_within_the_limits_is_admitted() -> None:
    data = batch(b"a", b"x" * 100, partition=3, producer=7, sequence=2, topic="JFK")
    header = admit(data, 3, SETTINGS)
    assert (header.count, header.producer_id, header.producer_sequence) == (2, 7, 2)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (batch(b"x" * 101), MessageTooLarge),
        (encode([(b"", b"k" * (KEY_BYTES_MAX + 1), "", b"")], 0), MessageTooLarge),
        (encode([(b"", None, "", b"h" * 70_000)], 0), MessageTooLarge),
        (batch(b"a", partition=1), InvalidRequest),
        (batch(b"a", topic="bad/name"), InvalidRequest),
        (batch(b"a", topic=".."), InvalidRequest),
        (b"", CorruptRecord),
        (b"not a batch at all", CorruptRecord),
        (batch(b"a") + b"more", CorruptRecord),
    ],
    ids=["body", "key", "headers", "partition", "topic", "dots", "nothing", "noise", "trailing bytes"],
)
def test_what_is_over_a_limit_or_wrong_is_refused(data: bytes, error: type[HootError]) -> None:
    with pytest.raises(error):
        admit(data, 0, SETTINGS)


def test_a_batch_that_was_stored_before_is_refused() -> None:
    data = batch(b"a")
    with pytest.raises(InvalidRequest, match="stored already"):
        admit(stamp(header_of(data), data, 5, 1)[1], 0, SETTINGS)


def test_what_a_filter_left_of_a_batch_is_refused() -> None:
    data = encode([(b"a", None, "JFK", b""), (b"b", None, "LGA", b"")], 0)
    part = select(header_of(data), data, Filter(Topics(("LGA",))))
    assert part is not None
    with pytest.raises(InvalidRequest, match="gaps"):
        admit(part, 0, SETTINGS)


@given(st.data())
def test_no_damage_gets_in(data: st.DataObject) -> None:
    """A flipped bit anywhere is an error that says so, never another exception."""
    good = bytearray(encode([(b"body", b"key", "JFK", b""), (b"", None, "LGA", b"")], 0))
    place = data.draw(st.integers(0, len(good) * 8 - 1))
    good[place // 8] ^= 1 << place % 8
    with pytest.raises(HootError):
        admit(bytes(good), 0, SETTINGS)


@given(st.binary(max_size=300), st.integers(1, 5000), st.integers(0, 31))
def test_a_payload_of_noise_under_right_checksums_is_an_error_or_a_batch(noise: bytes, count: int, flags: int) -> None:
    import google_crc32c

    payload = noise or b"\0"
    header = Header(flags, 1, 64 + len(payload), count, 0, 0, 0, 0, 0, count, google_crc32c.value(payload))
    try:
        admitted = admit(header.pack() + payload, 0, msgspec.structs.replace(SETTINGS, body_bytes_max=1000))
    except HootError:
        return
    assert admitted == header
