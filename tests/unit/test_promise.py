"""A promise: kept once, and everyone who asked hears of it, before or after."""

from __future__ import annotations

import pytest
import trio

from delivery.errors import Fenced, HootError
from delivery.rpc.promise import Promise


def test_who_asked_before_and_who_asks_after_hear_the_outcome_in_the_order_of_asking() -> None:
    promise, heard = Promise[int](), []
    promise.then(lambda outcome: heard.append(("first", outcome)))
    promise.then(lambda outcome: heard.append(("second", outcome)))
    assert heard == []
    promise.give(7)
    promise.then(lambda outcome: heard.append(("late", outcome)))
    assert heard == [("first", 7), ("second", 7), ("late", 7)]


def test_a_promise_is_kept_once() -> None:
    promise = Promise[int]()
    promise.give(7)
    with pytest.raises(AssertionError):
        promise.give(8)


def test_a_change_is_made_to_a_result_and_an_error_stays_as_it_is() -> None:
    kept, broken = Promise[int](), Promise[int]()
    changed, unchanged = kept.map(str), broken.map(str)
    error = Fenced("a newer owner")
    kept.give(7)
    broken.give(error)
    assert changed.outcome == "7"
    assert unchanged.outcome is error


def test_several_may_wait_each_gets_an_error_of_its_own_and_cancelling_one_leaves_the_others() -> None:
    errors: list[HootError] = []

    async def wait(promise: Promise[int]) -> None:
        with pytest.raises(Fenced) as caught:
            await promise.wait()
        errors.append(caught.value)

    async def story() -> None:
        promise = Promise[int]()
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait, promise)
                nursery.start_soon(wait, promise)
                with trio.move_on_after(0):
                    await promise.wait()
                promise.give(Fenced("a newer owner"))
            await wait(promise)

    trio.run(story)
    assert len({id(error) for error in errors}) == 3
