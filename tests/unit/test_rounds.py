"""Asking together: who comes while a round is on its way is in the next one, and each has an answer of its own."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from delivery.cluster.rounds import Rounds
from delivery.errors import HootError, NotOwner
from tests.hosting import eventually


class Oracle:
    """Answers with the double; a round waits for the gate."""

    def __init__(self) -> None:
        self.rounds: list[list[int]] = []
        self.gate = threading.Event()
        self.fail: Exception | None = None

    def __call__(self, items: Sequence[int]) -> list[int | HootError]:
        self.rounds.append(list(items))
        assert self.gate.wait(10)
        if self.fail is not None:
            raise self.fail
        return [NotOwner("odd") if item % 2 else 2 * item for item in items]


class Asker:
    """Asks, and keeps what it hears."""

    def __init__(self, rounds: Rounds[int, int]) -> None:
        self._rounds = rounds
        self.heard: dict[int, object] = {}
        self.scopes: dict[int, trio.CancelScope] = {}

    async def ask(self, item: int) -> None:
        with trio.CancelScope() as self.scopes[item]:
            try:
                self.heard[item] = await self._rounds.ask(item)
            except (HootError, ArithmeticError) as error:
                self.heard[item] = error


Story = Callable[[Oracle, Asker, Callable[..., None]], Awaitable[None]]


def tell(story: Story) -> None:
    async def run() -> None:
        oracle = Oracle()
        asker = Asker(Rounds[int, int](oracle))
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:

                def ask(*items: int) -> None:
                    for item in items:
                        nursery.start_soon(asker.ask, item)

                await story(oracle, asker, ask)

    trio.run(partial(run), strict_exception_groups=True)


def test_those_of_a_moment_go_together_and_those_who_come_meanwhile_in_the_next_round() -> None:
    async def story(oracle: Oracle, asker: Asker, ask: Callable[..., None]) -> None:
        ask(0, 2)
        await eventually(lambda: len(oracle.rounds) == 1)
        ask(4, 6, 8)
        await wait_all_tasks_blocked()
        assert len(oracle.rounds) == 1
        oracle.gate.set()
        await eventually(lambda: len(asker.heard) == 5)
        assert [sorted(one) for one in oracle.rounds] == [[0, 2], [4, 6, 8]]
        assert asker.heard == {item: 2 * item for item in (0, 2, 4, 6, 8)}

    tell(story)


def test_an_error_is_that_of_one_and_what_the_call_raises_that_of_all() -> None:
    async def story(oracle: Oracle, asker: Asker, ask: Callable[..., None]) -> None:
        oracle.gate.set()
        ask(1, 2)
        await eventually(lambda: len(asker.heard) == 2)
        assert asker.heard[2] == 4
        assert isinstance(asker.heard[1], NotOwner)
        oracle.fail = NotOwner("all")
        ask(4, 6)
        await eventually(lambda: len(asker.heard) == 4)
        assert isinstance(asker.heard[4], NotOwner)
        assert asker.heard[4] is not asker.heard[6], "tracebacks of several tasks would gather in one"
        oracle.fail = ArithmeticError("a mistake")
        ask(8)
        await eventually(lambda: asker.heard.get(8) is oracle.fail)

    tell(story)


@pytest.mark.parametrize("gone", [2, 4, 6])
def test_who_is_cancelled_before_the_round_is_left_out_and_the_others_go_on(gone: int) -> None:
    async def story(oracle: Oracle, asker: Asker, ask: Callable[..., None]) -> None:
        ask(0)
        await eventually(lambda: len(oracle.rounds) == 1)
        ask(2, 4, 6)
        await wait_all_tasks_blocked()
        asker.scopes[gone].cancel()
        await wait_all_tasks_blocked()
        oracle.gate.set()
        await eventually(lambda: len(asker.heard) == 3)
        assert sorted(oracle.rounds[1]) == sorted({2, 4, 6} - {gone})

    tell(story)


def test_who_is_cancelled_when_it_would_lead_leaves_the_round_to_the_next() -> None:
    async def story(oracle: Oracle, asker: Asker, ask: Callable[..., None]) -> None:
        oracle.gate.set()
        with trio.CancelScope() as scope:
            scope.cancel()
            await asker.ask(0)
        ask(2)
        await eventually(lambda: 2 in asker.heard)
        assert oracle.rounds == [[2]]

    tell(story)


def test_a_round_on_its_way_is_waited_for_also_by_who_is_cancelled() -> None:
    async def story(oracle: Oracle, asker: Asker, ask: Callable[..., None]) -> None:
        ask(0, 2)
        await eventually(lambda: len(oracle.rounds) == 1)
        for scope in asker.scopes.values():
            scope.cancel()
        await wait_all_tasks_blocked()
        assert not asker.heard
        oracle.gate.set()
        await eventually(lambda: asker.heard == {0: 0, 2: 4})

    tell(story)
