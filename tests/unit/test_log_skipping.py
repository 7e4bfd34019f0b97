"""Refused batches in the log: their beginnings alone are read, and none is taken for refused that is damaged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from delivery.batch import select
from delivery.batch.layout import HEADERS
from delivery.errors import CorruptRecord
from delivery.filters import Filter, Topics, filter_of
from delivery.model import QueueSettings
from delivery.storage.base import Append
from delivery.storage.log import SegmentedLog
from delivery.storage.log.reader import BEGINNINGS_MAX
from tests.stores import KEY, log_files, sized, store_all
from tests.strategies import stamped


def filled(data: Path, *topics: str, size: int = 4000) -> SegmentedLog:
    """A log with a batch of one message for each topic."""
    log = SegmentedLog(data)
    log.open(KEY, 1, QueueSettings())
    store_all(log, [sized(place, size, topic=topic) for place, topic in enumerate(topics, start=1)])
    return log


def scanned(log: SegmentedLog, chosen: Filter) -> list[int]:
    """The base ids of the batches that a scanner takes; it has seen one of each topic already."""
    taken, after = [], 0
    while (chunk := log.read(KEY, after, 10_000, chosen.refuses)) is not None:
        at = 0
        for header in chunk.headers:
            if select(header, chunk.data[at : at + header.length], chosen) is not None:
                taken.append(header.base_id)
            at += header.length
        after = chunk.last_id
    return taken


def damaged(data: Path, word: bytes, by: bytes, time: int) -> None:
    """Change a word in the log where it stands for the so-manieth time."""
    [path] = log_files(data)
    raw, at = path.read_bytes(), -1
    for _ in range(time):
        at = raw.index(word, at + 1)
    path.write_bytes(raw[:at] + by + raw[at + len(word) :])


def test_a_refused_batch_is_passed_by_its_beginning(tmp_path: Path) -> None:
    log = filled(tmp_path, "LGA", "LGA", "JFK", "LGA", "LGA", "JFK")
    assert scanned(log, Filter(Topics(("JFK",)))) == [3, 6]
    chunk = log.read(KEY, 0, 10_000, lambda _, topics: topics == b"\x03LGA")
    assert chunk is not None
    assert ([header.base_id for header in chunk.headers], chunk.last_id) == ([3, 6], 6)


def test_a_dictionary_that_fell_over_to_another_topic_is_damage_and_not_refused(tmp_path: Path) -> None:
    """Only a dictionary that was under a right checksum before is believed without one."""
    log = filled(tmp_path, "LGA", "JFK", "JFK")
    damaged(tmp_path, b"JFK", b"JFX", time=2)
    with pytest.raises(CorruptRecord, match="checksum of the batch at id 3"):
        scanned(log, Filter(Topics(("JFK",))))


def test_a_long_dictionary_is_read_with_its_batch(tmp_path: Path) -> None:
    topics = [letter * 240 for letter in "abcdefgh"]
    log = SegmentedLog(tmp_path)
    log.open(KEY, 1, QueueSettings())
    header, data = stamped([(b"x", None, topic, b"") for topic in topics], 1, partition=KEY.partition)
    store_all(log, [Append(KEY, 1, header, data, "fsync"), sized(100, 10, topic="JFK")])
    assert scanned(log, Filter(Topics(("JFK",)))) == [100]


def test_one_read_looks_at_a_bounded_number_of_batches(tmp_path: Path) -> None:
    log = filled(tmp_path, *["LGA"] * (BEGINNINGS_MAX + 5), size=1)
    chunk = log.read(KEY, 0, 10_000, lambda *_: True)
    assert chunk is not None
    assert (chunk.headers, chunk.data, chunk.last_id) == ((), b"", BEGINNINGS_MAX)
    assert scanned(log, Filter(Topics(("JFK",)))) == []


def test_what_flags_tell_is_part_of_what_is_remembered(tmp_path: Path) -> None:
    """A batch without headers is refused for a header; one of the same topics with headers is not for that."""
    log = filled(tmp_path, "LGA", "LGA")
    chosen = filter_of((), "colour = 'red'")
    assert chosen is not None
    assert scanned(log, chosen) == []
    chunk = log.read(KEY, 0, 10)
    assert chunk is not None
    bare = chunk.headers[0]
    assert chosen.refuses(bare, b"\x03LGA")
    assert not chosen.refuses(msgspec.structs.replace(bare, flags=bare.flags | HEADERS), b"\x03LGA")
