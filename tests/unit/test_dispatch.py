"""What one subscription's callbacks are at costs the other subscriptions of a subscriber nothing."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from subscriber.dispatch import Dispatcher

SECONDS = 30.0
EACH = 200


@asynccontextmanager
async def dispatching(go: threading.Event) -> AsyncIterator[Dispatcher]:
    """A dispatcher, whose threads end once `go` is set."""
    dispatcher = Dispatcher()
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(dispatcher.run)
            try:
                yield dispatcher
            finally:
                go.set()
                dispatcher.stop()
                await dispatcher.idle()
            nursery.cancel_scope.cancel()


async def reached(told: threading.Event) -> None:
    assert await trio.to_thread.run_sync(told.wait, SECONDS)


def hanging_sync(_dispatcher: Dispatcher, go: threading.Event) -> Callable[[], object]:
    return partial(go.wait, SECONDS)


def hanging_async(dispatcher: Dispatcher, go: threading.Event) -> Callable[[], object]:
    async def wait(_argument: object) -> None:
        await trio.to_thread.run_sync(go.wait, SECONDS)

    return partial(dispatcher.hop, wait, None)


@pytest.mark.parametrize("hanging", [hanging_sync, hanging_async])
def test_callbacks_that_hang_hold_up_no_other_subscription_sync_or_async(
    hanging: Callable[[Dispatcher, threading.Event], Callable[[], object]],
) -> None:
    async def story() -> None:
        go, ended, hung = threading.Event(), threading.Event(), list[str]()
        done: dict[str, list[int]] = {"sync": [], "async": []}

        def note(name: str, number: int) -> None:
            done[name].append(number)
            if all(len(found) == EACH for found in done.values()):
                ended.set()

        async def awaited(number: int) -> None:
            await trio.lowlevel.checkpoint()
            note("async", number)

        async with dispatching(go) as dispatcher:
            hang = hanging(dispatcher, go)

            def begin() -> None:
                hung.append("began")
                hang()

            for name in ("stuck", "stuck too"):
                dispatcher.submit(name, begin)
                dispatcher.submit(name, lambda: hung.append("went on"))
            for number in range(EACH):
                dispatcher.submit("sync", partial(note, "sync", number))
                dispatcher.submit("async", partial(dispatcher.hop, awaited, number))
            await reached(ended)
            assert hung == ["began", "began"]
        assert done == {"sync": list(range(EACH)), "async": list(range(EACH))}
        assert hung == ["began"] * 2 + ["went on"] * 2

    trio.run(story)


def test_subscriptions_to_which_nothing_comes_cost_no_thread_and_quick_ones_share_one() -> None:
    async def story() -> None:
        go, threads = threading.Event(), set[int]()
        before = threading.active_count()
        async with dispatching(go) as dispatcher:
            assert threading.active_count() <= before
            for number in range(10 * EACH):
                dispatcher.submit(number % EACH, lambda: threads.add(threading.get_ident()))
            dispatcher.submit(0, go.set)
            await reached(go)
        assert len(threads) < EACH / 10

    trio.run(story)


def test_what_a_job_raises_ends_run_loudly_and_holds_up_nothing_until_then() -> None:
    async def story() -> None:
        done = list[int]()
        dispatcher = Dispatcher()

        def fail() -> None:
            raise ValueError("a defect")

        with trio.fail_after(SECONDS), pytest.raises(ExceptionGroup) as failed:  # noqa: PT012 - the nursery raises it
            async with trio.open_nursery() as nursery:
                await nursery.start(dispatcher.run)
                dispatcher.submit("a", fail)
                for number in range(EACH):
                    dispatcher.submit("a", partial(done.append, number))
        assert failed.group_contains(ValueError, match="a defect")
        await dispatcher.idle()
        assert done == list(range(EACH))

    trio.run(story)
