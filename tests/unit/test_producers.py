"""A producer's batches are stored once and in order, however often and in whatever order they are sent."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, strategies as st

from delivery.batch.sequences import begun_anew
from delivery.errors import AnsweredLongAgo, InvalidRequest, OutOfSequence, SequenceReused
from delivery.publish.producers import Producers
from delivery.storage import producers as memory
from delivery.storage.base import StoredBatch
from delivery.storage.producers import BATCHES_PER_PRODUCER, PRODUCERS_MAX, SILENT_MAX


def stored(sequence: int, producer: int = 1) -> StoredBatch:
    return StoredBatch(producer, sequence, base_id=1000 + sequence, count=1)


def store(producers: Producers[str], sequence: int, producer: int = 1) -> None:
    assert producers.find(producer, sequence) is None
    producers.take(producer, sequence, f"publish {sequence}")
    producers.stored(stored(sequence, producer))


def test_a_new_producer_may_begin_anywhere_and_goes_on_by_one() -> None:
    producers: Producers[str] = Producers(())
    store(producers, 41)
    store(producers, 42)
    with pytest.raises(OutOfSequence):
        producers.find(1, 44)


def test_a_producer_that_begins_anew_leaves_a_gap_behind_which_nothing_earlier_is_taken() -> None:
    producers: Producers[str] = Producers(())
    store(producers, 1)
    anew = begun_anew(1)
    with pytest.raises(OutOfSequence):
        producers.find(1, anew + 2)
    store(producers, anew + 1)
    store(producers, anew + 2)
    assert producers.find(1, 1) == stored(1)
    for late in (2, 3):
        with pytest.raises(InvalidRequest):
            producers.find(1, late)
    with pytest.raises(OutOfSequence):
        producers.find(1, anew + 4)


def test_a_repeated_batch_is_answered_with_the_one_that_is_stored() -> None:
    producers: Producers[str] = Producers(())
    store(producers, 0)
    assert producers.find(1, 0) == stored(0)


def test_a_repeated_batch_that_is_under_way_leads_to_that_one() -> None:
    producers: Producers[str] = Producers(())
    producers.take(1, 0, "the first")
    assert producers.find(1, 0) == "the first"
    assert producers.find(1, 1) is None


def test_another_payload_under_a_number_that_was_taken_is_refused() -> None:
    producers: Producers[str] = Producers([StoredBatch(1, 1, base_id=10, count=1, crc=77), stored(2)])
    producers.take(1, 3, "under way", 79)
    assert producers.find(1, 1, 77) is not None
    assert producers.find(1, 3, 79) == "under way"
    assert producers.find(1, 2, 78) == stored(2), "of which nothing else is known"
    for sequence in (1, 3):
        with pytest.raises(SequenceReused):
            producers.find(1, sequence, 80)


def test_what_the_store_remembered_is_known_after_a_restart() -> None:
    producers: Producers[str] = Producers([stored(7), stored(8), stored(3, producer=2)])
    assert producers.find(1, 7) == stored(7)
    assert producers.find(1, 9) is None
    assert producers.find(2, 4) is None
    with pytest.raises(OutOfSequence):
        producers.find(2, 5)


def test_a_batch_from_too_long_ago_is_an_error_that_is_not_tried_again() -> None:
    producers: Producers[str] = Producers(())
    for sequence in range(BATCHES_PER_PRODUCER + 1):
        store(producers, sequence)
    assert producers.find(1, 1) == stored(1)
    with pytest.raises(AnsweredLongAgo) as caught:
        producers.find(1, 0)
    assert not caught.value.retryable


def test_of_those_silent_for_longest_the_last_batch_is_known_and_in_the_end_nothing() -> None:
    producers: Producers[str] = Producers(())
    for producer in (1, 2):
        store(producers, 0, producer)
        store(producers, 1, producer)
    for producer in range(3, PRODUCERS_MAX + 2):
        store(producers, 0, producer)
    assert producers.find(1, 1) == stored(1)
    with pytest.raises(AnsweredLongAgo):
        producers.find(1, 0)
    assert producers.find(2, 0) == stored(0, producer=2)
    store(producers, 2)
    for producer in range(PRODUCERS_MAX + 2, PRODUCERS_MAX + SILENT_MAX + 2):
        store(producers, 0, producer)
    assert producers.find(2, 0) is None
    assert producers.find(1, 2) == stored(2)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), max_size=60))
def test_what_was_noted_in_order_is_remembered_alike_from_a_snapshot(noted: list[tuple[int, int]]) -> None:
    with mock.patch.multiple(memory, PRODUCERS_MAX=3, SILENT_MAX=3):
        remembered = memory.Producers()
        for place, (producer, sequence) in enumerate(noted):
            remembered.keep(StoredBatch(producer, sequence, place, 1))
        again = memory.Producers(remembered.snapshot())
        assert again.snapshot() == remembered.snapshot()
        for producer in range(10, 13):
            for one in (remembered, again):
                one.keep(StoredBatch(producer, 1, 100 + producer, 1))
            assert again.snapshot() == remembered.snapshot()


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6)), max_size=60))
def test_whatever_is_sent_each_producer_s_batches_are_taken_once_and_in_order(sent: list[tuple[int, int]]) -> None:
    producers: Producers[str] = Producers(())
    taken: dict[int, list[int]] = {}
    for producer, sequence in sent:
        try:
            found = producers.find(producer, sequence)
        except (OutOfSequence, InvalidRequest):
            continue
        if found is None:
            producers.take(producer, sequence, "under way")
            producers.stored(stored(sequence, producer))
            taken.setdefault(producer, []).append(sequence)
    for sequences in taken.values():
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
