"""Wall clocks that are set while hosts run: rows 18 to 20 of the fault table, with real processes."""

from __future__ import annotations

import pytest

from delivery.errors import ClockWrong
from tests.chaos.stage import Stage, scanned, scanned_ids
from tests.integration.embedded import eventually

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

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
