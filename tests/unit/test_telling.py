"""Events of a subscription are told in order; those of one whose callback hangs hold up nobody else's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue

import pytest
import trio

from subscriber.looking import Lookout
from subscriber.strands import Strands
from subscriber.subscription import Event, Kind
from subscriber.telling import EVENTS_MAX, Telling
from tests.integration.embedded import eventually

SECONDS = 30.0


def nothing(*_: object) -> None:
    """Somebody is told, and does nothing."""


def unseen(_queue: str, _partition: int) -> AbstractContextManager[None]:
    """Nobody looks."""
    return nullcontext()


class Application:
    """Its callback hangs for one queue until `go` is set; `told` is what it has heard to the end."""

    def __init__(self, hanging: str = "") -> None:
        self.go, self.hung = threading.Event(), threading.Event()
        self.told: dict[str, list[Event]] = {}
        self._hanging = hanging

    def __call__(self, event: Event) -> None:
        if event.queue == self._hanging:
            self.hung.set()
            self.go.wait(SECONDS)
        self.told.setdefault(event.queue, []).append(event)


def event(queue: str, number: int, kind: Kind = "failed") -> Event:
    return Event(kind, queue, partition=number)


def numbers(events: list[Event]) -> list[int | None]:
    return [one.partition for one in events]


def test_a_callback_that_hangs_holds_up_the_events_of_its_own_subscription_alone() -> None:
    application, idle = Application("stuck"), threading.Event()
    strands = Strands(2, idle.set, on_error=nothing)
    telling = Telling(application, strands.submit, unseen, nothing)
    telling.tell_soon(event("stuck", 0), "stuck")
    assert application.hung.wait(SECONDS)
    for number in range(1, 5):
        telling.tell_soon(event("stuck", number), "stuck")
        telling.tell_soon(event("other", 10 * number), "other")
        strands.submit("other", lambda number=number: telling.tell(event("other", 10 * number + 1)))  # type: ignore[misc]
    eventually(lambda: len(application.told.get("other", ())) == 8, "the other subscription's events are told")
    assert "stuck" not in application.told
    application.go.set()
    strands.stop()
    assert idle.wait(SECONDS)
    assert numbers(application.told["stuck"]) == list(range(5))


class Later:
    """Strands whose jobs the test does."""

    def __init__(self) -> None:
        self.jobs = SimpleQueue[Callable[[], None]]()

    def submit(self, _strand: Hashable, job: Callable[[], None]) -> None:
        self.jobs.put(job)

    def do(self) -> None:
        while not self.jobs.empty():
            self.jobs.get()()


def test_what_happened_before_is_told_first_whoever_tells() -> None:
    application, later = Application(), Later()
    telling = Telling(application, later.submit, unseen, nothing)
    telling.tell_soon(event("q", 1), "q")
    telling.tell(event("q", 2))
    telling.tell_soon(event("q", 3), "q")
    later.do()
    assert numbers(application.told["q"]) == [1, 2, 3]


def test_the_end_of_a_subscription_is_told_before_anything_of_the_one_that_comes_in_its_place() -> None:
    """A callback of the former one may take its time, and the new one has a strand of its own."""
    told: list[Kind] = []
    strands = {"former": Later(), "new": Later()}

    def submit(strand: Hashable, job: Callable[[], None]) -> None:
        strands[str(strand)].submit(strand, job)

    telling = Telling(lambda event: told.append(event.kind), submit, unseen, nothing)
    telling.tell_soon(event("q", 0, "deleted"), "former")
    telling.forget("q")
    telling.tell_soon(event("q", 0, "attached"), "new")
    strands["new"].do()
    strands["former"].do()
    assert told == ["deleted", "attached"]


def test_nothing_is_kept_of_a_subscription_whose_end_was_told() -> None:
    later = Later()
    telling = Telling(nothing, later.submit, unseen, nothing)
    for kind in ("attached", "deleted"):
        telling.tell_soon(event("q", 0, kind), "q")
    telling.forget("q")
    later.do()
    assert telling._tellers == {}


def test_changes_that_wait_are_bounded_the_last_ones_are_told_and_the_others_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    application, later = Application(), Later()
    telling = Telling(application, later.submit, unseen, nothing)
    for number in range(EVENTS_MAX + 3):
        telling.tell_soon(event("q", number, "suspended"), "q")
    assert later.jobs.qsize() == 1
    later.do()
    assert numbers(application.told["q"]) == list(range(3, EVENTS_MAX + 3))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3


def test_no_two_callbacks_of_a_subscription_run_at_the_same_time_however_many_threads_it_has() -> None:
    idle, running, most = threading.Event(), list[int](), list[int]()

    def callback(event: Event) -> None:
        running.append(1)
        most.append(len(running))
        threading.Event().wait(0.001)
        running.pop()

    strands = Strands(4, idle.set, on_error=nothing)
    telling = Telling(callback, strands.submit, unseen, nothing)
    for number in range(40):
        strands.submit(number, lambda number=number: telling.tell(event("q", number)))  # type: ignore[misc]
    strands.stop()
    assert idle.wait(SECONDS)
    assert (len(most), max(most)) == (40, 1)


def test_one_that_raises_is_logged_and_one_that_ends_the_program_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[BaseException] = [SystemExit(3), ValueError("no")]
    ended: list[BaseException] = []

    def callback(_event: Event) -> None:
        if errors:
            raise errors.pop()

    telling = Telling(callback, Later().submit, unseen, ended.append)
    for number in range(3):
        telling.tell(event("q", number))
    assert "a callback for events failed" in caplog.text
    assert [type(one) for one in ended] == [SystemExit]


@pytest.mark.parametrize("number", [None, 3])
def test_where_a_callback_hangs_is_told_to_who_looks(number: int | None) -> None:
    application, idle = Application("stuck"), threading.Event()
    strands, lookout = Strands(1, idle.set, on_error=nothing), Lookout(lambda _: None)
    telling = Telling(application, strands.submit, lookout.at, nothing)
    strands.submit("stuck", lambda: telling.tell(Event("attached", "stuck", partition=number)))
    assert application.hung.wait(SECONDS)
    [found] = trio.run(lookout.look)
    assert (found.queue, found.partition, found.moving) == ("stuck", -1 if number is None else number, False)
    assert "Application.__call__ (test_telling.py" in found.name
    assert "self.go.wait(SECONDS)" in found.stack
    application.go.set()
    strands.stop()
    assert idle.wait(SECONDS)
    assert trio.run(lookout.look) == []
