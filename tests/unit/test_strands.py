"""Threads on which strands of jobs run side by side."""

from __future__ import annotations

import threading
from functools import partial
from queue import Empty, SimpleQueue

import pytest

from subscriber.staff import Staff
from subscriber.strands import Strands
from tests.integration.embedded import eventually

SECONDS = 30.0


def nothing(*_: object) -> None:
    """Somebody is told, and does nothing."""


def test_each_strand_keeps_its_order_and_strands_run_side_by_side() -> None:
    idle = threading.Event()
    strands = Strands(3, idle.set, on_error=nothing)
    together = threading.Barrier(3)
    done: dict[str, list[int]] = {"a": [], "b": [], "c": []}

    def job(strand: str, number: int) -> None:
        if number == 0:
            together.wait(SECONDS)
        done[strand].append(number)

    for number in range(200):
        for strand in done:
            strands.submit(strand, lambda strand=strand, number=number: job(strand, number))  # type: ignore[misc]
    strands.stop()
    assert idle.wait(SECONDS)
    assert all(found == list(range(200)) for found in done.values())
    assert strands.is_idle


def test_a_strand_that_hangs_holds_up_no_other() -> None:
    idle, go, seen = threading.Event(), threading.Event(), SimpleQueue[int]()
    strands = Strands(2, idle.set, on_error=nothing)
    strands.submit("stuck", lambda: seen.put(0) if go.wait(SECONDS) else None)
    strands.submit("stuck", lambda: seen.put(1))
    strands.submit(None, lambda: seen.put(2))
    for number in range(3, 50):
        strands.submit(number, lambda number=number: seen.put(number))  # type: ignore[misc]
    assert [seen.get(timeout=SECONDS) for _ in range(48)] == list(range(2, 50))
    go.set()
    assert [seen.get(timeout=SECONDS) for _ in range(2)] == [0, 1]
    strands.stop()
    assert idle.wait(SECONDS)


def test_what_jobs_submit_while_the_threads_end_still_runs() -> None:
    idle, begun, seen = threading.Event(), threading.Event(), list[int]()
    strands = Strands(2, idle.set, on_error=nothing)

    def first() -> None:
        begun.wait(SECONDS)
        strands.submit("then", lambda: seen.append(len(seen)))

    strands.submit("first", first)
    strands.stop()
    strands.stop()
    begun.set()
    assert idle.wait(SECONDS)
    assert seen == [0]


def test_a_strand_that_waits_gets_a_thread_once_the_others_are_with_jobs_that_do_not_end() -> None:
    idle, crowded, go, seen = threading.Event(), SimpleQueue[None](), threading.Event(), SimpleQueue[int]()
    strands = Strands(0, idle.set, on_crowded=lambda: crowded.put(None), on_error=nothing)
    assert strands.is_idle  # no thread before there is something to do
    for number in range(2):
        strands.submit(number, lambda: seen.put(-1) if go.wait(SECONDS) else None)
    crowded.get(timeout=SECONDS)
    strands.submit(2, lambda: seen.put(2))
    assert strands.relieve()
    assert strands.abreast == 2
    eventually(lambda: not strands.relieve(), "the third has a thread, and has ended")
    assert seen.get(timeout=SECONDS) == 2
    assert strands.abreast == 3
    assert crowded.empty()  # it was told that it is looked
    strands.submit(2, lambda: seen.put(2))
    assert seen.get(timeout=SECONDS) == 2
    go.set()
    strands.stop()
    assert idle.wait(SECONDS)


def test_strands_of_quick_jobs_share_a_thread_and_take_turns() -> None:
    idle, order, all_there = threading.Event(), list[str](), threading.Event()
    strands = Strands(0, idle.set, on_crowded=nothing, on_error=nothing)
    strands.submit("a", lambda: order.append("first") if all_there.wait(SECONDS) else None)
    for strand in "ab" * 3:
        strands.submit(strand, lambda strand=strand: order.append(strand))  # type: ignore[misc]
    all_there.set()
    eventually(lambda: len(order) == 7, "all")
    assert order == ["first", *"bababa"]
    strands.relieve()
    assert strands.abreast == 1
    strands.stop()
    assert idle.wait(SECONDS)


def test_a_thread_that_is_needed_no_more_ends_but_for_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subscriber.strands.SPARE_SECONDS", 0.01)
    go, ended = threading.Event(), SimpleQueue[bool]()
    strands = Strands(0, nothing, on_crowded=nothing, on_error=nothing)
    for number in range(3):
        strands.submit(number, lambda: ended.put(go.wait(SECONDS)))
    strands.relieve()
    strands.relieve()
    assert strands.abreast == 3
    go.set()
    assert all(ended.get(timeout=SECONDS) for _ in range(3))
    eventually(lambda: strands.abreast == 1, "one is left")
    strands.submit("after it", lambda: ended.put(True))
    assert ended.get(timeout=SECONDS)
    strands.stop()
    eventually(lambda: strands.is_idle, "they end")


class Told(Staff):
    """Says what it is told to."""

    def worked(self, messages: int, began: float, now: float, wanted: int) -> None:
        self.wanted = wanted


def test_there_come_and_go_threads_as_the_staff_says_and_a_strand_keeps_its_order() -> None:
    idle, staff = threading.Event(), Told()
    strands = Strands(1, idle.set, staff, on_error=nothing)
    order, ended = list[int](), SimpleQueue[None]()

    def grow() -> None:
        staff.size = 3
        strands.worked(1, 0.0)

    strands.submit("first", grow)
    together = threading.Barrier(3)
    for strand in "abc":
        strands.submit(strand, lambda: ended.put(None) if together.wait(SECONDS) >= 0 else None)
    for _ in "abc":
        ended.get(timeout=SECONDS)
    assert strands.abreast == 3
    assert staff.wanted >= 1
    staff.size = 1
    strands.worked(1, 0.0)
    for number in range(100):
        strands.submit("a", lambda number=number: order.append(number))  # type: ignore[misc]
    strands.stop()
    assert idle.wait(SECONDS)
    assert (order, strands.is_idle) == (list(range(100)), True)


def test_another_thread_goes_on_in_the_place_of_each_that_hangs_until_that_returns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("subscriber.strands.HUNG_MAX", 3)
    idle, go, seen = threading.Event(), threading.Event(), SimpleQueue[str]()
    strands = Strands(2, idle.set, on_error=nothing)

    def hang() -> None:
        strands.hung(True)
        seen.put("hangs")
        go.wait(SECONDS)
        strands.hung(False)

    for number in range(4):
        strands.submit(number, hang)
        assert seen.get(timeout=SECONDS) == "hangs"
        assert strands.abreast == 2
        assert bool(caplog.records) == (number == 3)
        strands.submit("others", lambda: seen.put("goes on"))
        assert seen.get(timeout=SECONDS) == "goes on"
    strands.submit(5, hang)
    assert seen.get(timeout=SECONDS) == "hangs"
    strands.submit("others", lambda: seen.put("goes on"))
    with pytest.raises(Empty):
        seen.get(timeout=0.1)
    assert "5 callbacks hang" in caplog.records[-1].getMessage()
    go.set()
    assert seen.get(timeout=SECONDS) == "goes on"
    eventually(lambda: len(strands._threads) == 2, "those that hung, or as many, have ended")
    assert strands.abreast == 2
    strands.stop()
    assert idle.wait(SECONDS)


def test_one_that_hangs_at_the_end_is_waited_for_like_any_other() -> None:
    idle, hangs, go = threading.Event(), threading.Event(), threading.Event()
    strands = Strands(1, idle.set, on_error=nothing)

    def hang() -> None:
        strands.hung(True)
        hangs.set()
        go.wait(SECONDS)
        strands.hung(False)

    strands.submit("hangs", hang)
    assert hangs.wait(SECONDS)
    strands.stop()
    strands.hung(True)
    assert not strands.is_idle
    strands.hung(False)
    go.set()
    assert idle.wait(SECONDS)
    assert strands.is_idle


def test_threads_that_have_nothing_to_do_end_at_once_and_know_themselves() -> None:
    idle, here = threading.Event(), SimpleQueue[bool]()
    strands = Strands(4, idle.set, on_error=nothing)
    strands.submit(1, lambda: here.put(strands.is_here))
    assert here.get(timeout=SECONDS)
    assert not strands.is_here
    strands.stop()
    assert idle.wait(SECONDS)


def test_a_job_that_raises_costs_its_strand_and_its_thread_nothing_and_is_told_of() -> None:
    idle, failed, done, threads = threading.Event(), list[BaseException](), list[int](), set[int]()
    strands = Strands(1, idle.set, on_error=failed.append)

    def job(number: int) -> None:
        threads.add(threading.get_ident())
        done.append(number)
        if number == 1:
            raise ValueError(number)
        if number == 2:
            raise SystemExit(number)

    for number in range(5):
        strands.submit("a", partial(job, number))
        strands.submit(number, partial(job, number + 10))
    strands.stop()
    assert idle.wait(SECONDS)
    assert sorted(done) == [*range(5), *range(10, 15)]
    assert [number for number in done if number < 10] == list(range(5))
    assert len(threads) == 1
    assert [type(error) for error in failed] == [ValueError, SystemExit]


def refusing(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Threads do not begin while this is not empty."""
    refuses, begin = [True], threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if refuses and thread.name == "subscriber-strand":
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return refuses


def test_what_is_submitted_while_the_system_gives_no_thread_is_refused_and_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle, seen, refuses = threading.Event(), SimpleQueue[int](), refusing(monkeypatch)
    strands = Strands(0, idle.set, on_error=nothing)
    with pytest.raises(RuntimeError, match="new thread"):
        strands.submit("a", lambda: seen.put(1))
    refuses.clear()
    strands.submit("a", lambda: seen.put(2))
    assert seen.get(timeout=SECONDS) == 2
    strands.stop()
    assert idle.wait(SECONDS)


def test_with_fewer_threads_than_are_wanted_it_goes_on_with_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    idle, go, seen = threading.Event(), threading.Event(), SimpleQueue[int]()
    strands = Strands(0, idle.set, on_error=nothing, on_crowded=nothing)
    strands.submit("stuck", lambda: seen.put(0) if go.wait(SECONDS) else None)
    strands.submit("waits", lambda: seen.put(1))
    refuses = refusing(monkeypatch)
    assert strands.relieve()
    assert strands.relieve()
    assert strands.abreast == 1
    refuses.clear()
    assert strands.relieve()
    assert seen.get(timeout=SECONDS) == 1
    go.set()
    strands.stop()
    assert idle.wait(SECONDS)
    assert strands.is_idle
