"""What a worker notes as it goes, and the observation that this makes."""

from __future__ import annotations

import pytest

from delivery.dispatch.pulse import MARK_SECONDS, Pulse
from delivery.dispatch.window import Window


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Heard:
    """The host's counters, and who is told of positions."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pushed(self, queue: str, subscription: str, messages: int, size: int) -> None:
        self.calls.append(f"pushed {messages}")

    def acknowledged(self, queue: str, subscription: str, messages: int) -> None:
        self.calls.append(f"acknowledged {messages}")

    def failed(self, queue: str, subscription: str) -> None:
        self.calls.append("failed")

    def note(self, position: int) -> None:
        self.calls.append(f"at {position}")


class Stage:
    """A window and its pulse, pushed and answered as a sender does it."""

    def __init__(self, position: int = 100) -> None:
        self.clock, self.heard, self.window = Clock(), Heard(), Window(position, 1000, 100_000)
        self.pulse = Pulse(self.heard, self.window, self.heard.note, self.clock)

    def push(self, last_id: int, messages: int = 10) -> None:
        self.window.admit(last_id, messages, 100)
        self.pulse.pushed("orders", "billing", messages, 100)

    def answer(self, messages: int = 10) -> None:
        self.pulse.acknowledged("orders", "billing", messages)
        sent = self.window._sent[0]
        self.window.finish(sent)
        self.pulse.moved(self.window.position)


def test_all_goes_on_to_the_host_and_to_the_ledger() -> None:
    stage = Stage()
    stage.push(110)
    stage.answer()
    stage.pulse.failed("orders", "billing")
    assert stage.heard.calls == ["pushed 10", "acknowledged 10", "at 110", "failed"]


def test_the_first_push_that_is_out_waits_since_nothing_is_before_it() -> None:
    stage = Stage()
    stage.push(110)
    stage.clock.now += 5
    stage.push(120)
    assert stage.pulse.first_out_since == 1000
    stage.clock.now += 5
    stage.answer()
    assert stage.pulse.first_out_since == stage.pulse.acknowledged_at == 1010
    stage.answer()
    stage.clock.now += 50
    stage.push(130)
    assert stage.pulse.first_out_since == stage.pulse.delivered_at == 1060


def test_an_answer_to_a_later_push_does_not_hide_how_long_the_first_one_waits() -> None:
    stage = Stage()
    stage.push(110)
    stage.push(120)
    stage.clock.now += 40
    stage.pulse.acknowledged("orders", "billing", 10)
    stage.window.finish(stage.window._sent[1])
    assert (stage.pulse.first_out_since, stage.pulse.acknowledged_at) == (1000, 1040)
    stage.clock.now += 1
    stage.push(130)
    assert stage.pulse.first_out_since == 1000


def test_only_what_was_pushed_before_is_redelivered() -> None:
    stage = Stage()
    stage.push(110)
    stage.push(120, 7)
    assert stage.pulse.redelivered == 0
    stage.window.rewind()
    stage.push(110)
    stage.push(120, 7)
    stage.push(130)
    assert stage.pulse.redelivered == 17


@pytest.mark.parametrize(("milliseconds", "trend"), [(500, 0.5), (1000, 0.0), (3000, -2.0)])
def test_the_trend_is_how_fast_the_position_comes_along_in_the_time_of_the_ids(milliseconds: int, trend: float) -> None:
    start = 1_700_000_000_000
    stage = Stage(position=start << 15)
    assert stage.pulse.trend is None
    for second in range(1, 31):
        stage.clock.now += 1
        stage.push(start + second * milliseconds << 15)
        stage.answer()
        assert (stage.pulse.trend is None) == (second < MARK_SECONDS)
    assert stage.pulse.trend == pytest.approx(trend)


def test_a_position_that_moves_no_more_falls_behind_by_a_second_each_second() -> None:
    stage = Stage(position=1_700_000_000_000 << 15)
    for _ in range(30):
        stage.clock.now += 1
        stage.push(stage.window.position + (3000 << 15))
        stage.answer()
    assert stage.pulse.trend is not None
    assert stage.pulse.trend < 0
    stage.clock.now += 10_000
    assert stage.pulse.trend == pytest.approx(1, abs=0.02)
