"""What is asked for many times and done once."""

from __future__ import annotations

import threading

import pytest

from delivery.rpc.together import soon, together


def test_outside_of_everything_a_call_is_made_at_once() -> None:
    made: list[str] = []
    soon(lambda: made.append("now"))
    assert made == ["now"]


def test_what_is_asked_for_together_is_done_once_in_the_order_of_asking_and_at_the_very_end() -> None:
    made: list[str] = []
    first, second = (lambda: made.append("first")), (lambda: made.append("second"))
    with together():
        soon(first)
        with together():
            soon(second)
            soon(first)
        assert made == []
    assert made == ["first", "second"]
    soon(first)
    assert made == ["first", "second", "first"]


def test_what_was_asked_for_is_done_when_the_rest_fails() -> None:
    made: list[str] = []

    def fail() -> None:
        with together():
            soon(lambda: made.append("done"))
            raise ValueError("it was asked for by then")

    with pytest.raises(ValueError, match="by then"):
        fail()
    assert made == ["done"]


def test_other_threads_do_not_wait_for_the_end() -> None:
    made: list[str] = []
    with together():
        other = threading.Thread(target=soon, args=(lambda: made.append("now"),))
        other.start()
        other.join()
        assert made == ["now"]
