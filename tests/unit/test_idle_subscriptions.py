"""What a subscription is to a host while nothing comes to it."""

from __future__ import annotations

from typing import Any

import msgspec
import trio
import trio.testing

from delivery.dispatch.background import Background
from delivery.dispatch.delivery import Delivery
from delivery.dispatch.lines import Lines
from tests.hosting import eventually
from tests.unit.test_delivery import RECORD, ScriptedOwned, ScriptedPartitions, ScriptedStates, attached, tools


class Quiet:
    """A connection to a listener that has said hello, and nothing since."""

    ready = True

    async def call(self, *_: str) -> str:
        await trio.lowlevel.checkpoint()
        return "t"

    async def run(self) -> None:
        await trio.sleep_forever()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def test_subscriptions_to_which_nothing_comes_are_a_task_each_and_share_one_for_their_connection() -> None:
    """A host has thousands of them, and tasks are most of what each costs."""

    async def story() -> None:
        opened: list[tuple[str, int]] = []

        async def connect(address: str, port: int) -> Any:
            opened.append((address, port))
            await trio.lowlevel.checkpoint()
            return Quiet()

        async with trio.open_nursery() as nursery:
            lines = Lines(connect, Background())
            await nursery.start(lines.background.run)
            before = trio.lowlevel.current_statistics().tasks_living
            for number in range(5):
                record = msgspec.structs.replace(RECORD, name=f"mail{number}")
                shared = tools(ScriptedStates(), ScriptedPartitions(ScriptedOwned()))
                delivery = Delivery(
                    msgspec.structs.replace(attached(), subscription=record),
                    msgspec.structs.replace(shared, lines=lines),
                )
                nursery.start_soon(delivery.run)
                await eventually(lambda: 0 in delivery.workers and (link := delivery.way(0).link) is not None  # noqa: B023
                                 and link.down_since is None)  # fmt: skip
            await trio.testing.wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().tasks_living - before == 5 + 1
            assert len(opened) == 1
            nursery.cancel_scope.cancel()

    trio.run(story)
