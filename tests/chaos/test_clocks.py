"""Wall clocks that are set while hosts run: rows 18 to 21 of the fault table, with real processes."""

from __future__ import annotations

import pytest

from delivery.errors import ClockWrong
from delivery.ids import SEQUENCES_PER_MS, MessageId
from tests.chaos.stage import QUEUE, Stage, scanned, scanned_ids
from tests.hosting import batch
from tests.integration.embedded import eventually

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

AROUND_OVERFLOW = (32_766, 1, 1, 1, 32_765, 1, 1, 1, 4_463)
"""Messages of batches: they end at sequence 32,765, 32,766, 32,767, 0 and so on, and there are 70,000 of them."""
YEAR_SECONDS = 365 * 24 * 3600.0


def test_row_18_ids_rise_while_the_clock_steps_back_and_forth(stage: Stage) -> None:
    host, queue, listener = stage.host(), stage.queue(), stage.listen()
    stored = []
    for step in (0.0, -0.001, 0.0, -1.0, 60.0, -60.0, 600.0, -600.0, 0.0):
        host.step_clock(step)
        stored += [int(message.id) for message in queue.put_many([b"%g/%d" % (step, n) for n in range(20)])]
    assert stored == sorted(set(stored)) == scanned_ids(queue)
    listener.has_all(stored)
    assert listener.ids == stored


def test_row_19_after_a_year_too_far_a_right_clock_is_refused_for_publishing_and_reading_goes_on(stage: Stage) -> None:
    host, queue, listener = stage.host(), stage.queue(), stage.listen()
    host.step_clock(YEAR_SECONDS)
    ahead = queue.put(b"ahead")
    host.step_clock(0.0)
    with pytest.raises(ClockWrong, match="clock"):
        queue.put(b"now", timeout=2.0)
    assert [message.body for message in scanned(queue)] == [b"ahead"]
    listener.has_all({int(ahead.id)})
    host.step_clock(YEAR_SECONDS)
    assert queue.put(b"ahead again").id > ahead.id


def test_row_20_a_successor_whose_clock_is_a_minute_behind_goes_on_above_the_last_id(stage: Stage) -> None:
    first, queue = stage.host(), stage.queue()
    stored = [int(message.id) for message in queue.put_many([b"%d" % number for number in range(100)])]
    second = stage.host()
    second.step_clock(-60.0)
    first.process.kill()
    stored += [int(message.id) for message in queue.put_many([b"next %d" % number for number in range(100)])]
    assert stage.owns(second)
    assert stored == sorted(set(stored)) == scanned_ids(queue)
    eventually(lambda: queue.bounds(0).last == stored[-1], "the partition ends there")


def test_row_21_what_a_millisecond_cannot_number_goes_on_in_the_next_while_the_clock_stands(stage: Stage) -> None:
    host, queue, listener = stage.host(), stage.queue(), stage.listen()
    now_ms = host.stop_clock()
    with host.connect() as connection:
        bases = [
            int(connection.call("publish", QUEUE, 0, batch(*[b""] * count), None, deadline=30.0).baseId)
            for count in AROUND_OVERFLOW
        ]
    assert bases == [now_ms * SEQUENCES_PER_MS + sum(AROUND_OVERFLOW[:number]) for number in range(len(bases))]
    ids = scanned_ids(queue)
    assert ids == list(range(bases[0], bases[0] + sum(AROUND_OVERFLOW)))
    assert {MessageId(number).timestamp_ms for number in ids} == {now_ms, now_ms + 1, now_ms + 2}
    assert ids == sorted(ids, key=lambda number: number.to_bytes(8, "big"))
    listener.has_all(ids)
    assert listener.ids == ids
