"""What the engine keeps between the messages of a partition: in its own batches, and in nobody's hands."""

from __future__ import annotations

import msgspec
import pytest
import trio

from delivery.api.scanners import Cursor, Range
from delivery.batch import HEADER_BYTES, Header, encode, is_aside, peek, select, stamp, without_asides
from delivery.batch.layout import OWN
from delivery.errors import CorruptRecord, InvalidRequest
from delivery.filters import Filter, filter_of
from delivery.messaging import marks
from delivery.model import QueueSettings, check_topic
from delivery.publish.admission import admit
from delivery.storage.base import Chunk
from tests.hosting import batch

GROUP = encode([marks.marker(5, [marks.Range(1, 2)])], 0, span=3)
ASIDES = [
    encode(marks.stored([b"a", b"b"], 5), 0),
    encode([marks.marker(5, [marks.Range(1, 2)])], 0),
    encode([marks.rolled_back(marks.Rollback(5, 1, 2))], 0),
]
MESSAGES = [
    encode(marks.published([b"a"], 5), 0),
    batch(b"x", topic="hoot"),
    batch(b"hoot.stored"),
    encode([(b"a", None, "a", b""), (b"b", None, "b", b"")], 0),
]


def header_of(data: bytes) -> Header:
    header = peek(data)
    assert header is not None
    return header


def test_batches_aside_are_told_by_their_headers_and_are_no_messages() -> None:
    assert [is_aside(header_of(data)) for data in ASIDES + MESSAGES] == [True] * 3 + [False] * 4
    assert [header_of(data).shown for data in ASIDES] == [0, 0, 0]
    marker = header_of(stamp(header_of(GROUP), GROUP, 100, 1)[1])
    assert (marker.count, marker.span, marker.shown) == (1, 3, 2)
    assert [marker.shown_up_to(number) for number in (99, 100, 101, 102, 103)] == [0, 0, 1, 2, 2]


def test_no_publisher_passes_its_messages_off_as_such() -> None:
    header = header_of(MESSAGES[1])
    forged = msgspec.structs.replace(header, flags=header.flags | OWN).pack() + MESSAGES[1][HEADER_BYTES:]
    for aside in (False, True):
        with pytest.raises(CorruptRecord, match="engine's own"):
            admit(forged, 0, QueueSettings(), aside=aside)
    own = header_of(ASIDES[0])
    hidden = msgspec.structs.replace(own, flags=own.flags & ~OWN).pack() + ASIDES[0][HEADER_BYTES:]
    for aside in (False, True):
        with pytest.raises(InvalidRequest, match="engine's own"):
            admit(hidden, 0, QueueSettings(), aside=aside)


def test_they_are_taken_out_of_what_readers_get_with_a_filter_or_without() -> None:
    mixed = [MESSAGES[0], ASIDES[0], ASIDES[1], MESSAGES[1], ASIDES[2]]
    headers = [header_of(data) for data in mixed]
    data, kept = without_asides(b"".join(mixed), headers)
    assert data == MESSAGES[0] + MESSAGES[1]
    assert list(kept) == [headers[0], headers[3]]
    only = b"".join(MESSAGES)
    assert without_asides(only, [header_of(data) for data in MESSAGES])[0] is only
    everything = filter_of(("*",), None)
    assert everything is not None
    assert [select(header_of(data), data, everything) for data in ASIDES] == [None] * 3
    assert select(header_of(MESSAGES[1]), MESSAGES[1], everything) is MESSAGES[1]


@pytest.mark.parametrize("wanted", [None, filter_of(("*",), None)])
def test_a_plain_scanner_passes_over_them(wanted: Filter | None) -> None:
    mixed = [ASIDES[0], MESSAGES[1], ASIDES[2]]
    chunks = [Chunk(b"".join(mixed), tuple(header_of(data) for data in mixed))]

    async def read(*_: object) -> Chunk | None:
        return chunks.pop() if chunks else None

    cursor = Cursor("q", 0, Range(filter=wanted))
    assert trio.run(cursor.fill, read)
    assert (cursor.pop().body, cursor.head) == (b"x", None)


def test_only_the_engine_stores_them() -> None:
    settings = QueueSettings()
    for data in ASIDES:
        with pytest.raises(InvalidRequest, match="the engine's own"):
            admit(data, 0, settings)
        assert admit(data, 0, settings, aside=True).count >= 1
    with pytest.raises(InvalidRequest):
        admit(encode([(b"", None, "hoot.x", b""), (b"", None, "", b"")], 0), 0, settings, aside=True)
    with pytest.raises(InvalidRequest):
        check_topic("hoot.stored")
    assert check_topic("hoot") == "hoot"
