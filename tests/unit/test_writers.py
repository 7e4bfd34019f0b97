"""Asking the manager on another host which transactions may write: each time, and once for all who ask together."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from delivery.api.rest.errors import error_response
from delivery.api.writers import Writers
from delivery.errors import HootError, NoHost
from delivery.transactions.errors import NoSuchWriter, TransactionFinished, TransactionInvalid
from delivery.transactions.pointers import first_run

NOW = 1_700_000_000_000
FIRST = first_run(0, NOW)


class Elsewhere:
    """The manager on another host, in the place of Calls."""

    def __init__(self, *standings: str) -> None:
        self.standings = {FIRST + number: standing for number, standing in enumerate(standings)}
        self.calls: list[Sequence[int]] = []
        self.error: HootError | None = None

    def call(self, queue: str, partition: int, method: str, pointers: Sequence[int], *, timeout: float) -> list[str]:
        assert (queue, partition, method) == ("transactions", 0, "mayWrite")
        self.calls.append(pointers)
        if self.error is not None:
            raise self.error
        return [self.standings.get(pointer, "unknown") for pointer in pointers]


def writers(elsewhere: Elsewhere) -> Writers:
    return Writers(cast("Any", SimpleNamespace(manages=False)), cast("Any", elsewhere))


def test_all_who_ask_at_the_same_moment_are_answered_by_one_call_and_later_ones_by_another() -> None:
    manager = Elsewhere(*["in_progress"] * 50)

    async def story() -> None:
        asking = writers(manager)
        async with trio.open_nursery() as nursery:
            for pointer in manager.standings:
                nursery.start_soon(asking.check, pointer, NOW)
        assert len(manager.calls) == 1
        assert sorted(manager.calls[0]) == sorted(manager.standings)
        manager.standings[FIRST] = "aborted"
        with pytest.raises(TransactionFinished):
            await asking.check(FIRST, NOW)
        await asking.check(NOW * 1_000_000, NOW)
        assert len(manager.calls) == 2, "those of another service are nobody's to ask for"

    trio.run(story)


def test_what_is_refused_has_a_status_of_its_own_and_a_silent_manager_is_503() -> None:
    manager = Elsewhere("committed", "invalid")
    asked: list[tuple[int, type[HootError], int]] = [
        (FIRST, TransactionFinished, 409), (FIRST + 1, TransactionInvalid, 409), (FIRST + 2, NoSuchWriter, 409)
    ]  # fmt: skip

    async def story() -> None:
        asking = writers(manager)
        for pointer, kind, status in asked:
            with pytest.raises(kind) as refused:
                await asking.check(pointer, NOW)
            assert error_response(refused.value, cast("Any", {})).status_code == status
        manager.error = NoHost("nobody is there")
        with pytest.raises(NoHost) as silent:
            await asking.check(FIRST, NOW)
        assert error_response(silent.value, cast("Any", {})).status_code == 503

    trio.run(story)
