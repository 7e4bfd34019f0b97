"""The delivery of a subscription whose members share its partitions: where each of them begins."""

from __future__ import annotations

import msgspec
import trio

from delivery.dispatch.crew import Crew
from delivery.dispatch.delivery import Delivery
from delivery.dispatch.plan import Attached
from delivery.metastore.managers.records import Share
from delivery.metastore.records import ListenerRecord
from tests.hosting import eventually
from tests.unit.test_delivery import (
    RECORD,
    SAVED,
    WATERMARK,
    ScriptedOwned,
    ScriptedPartitions,
    ScriptedStates,
    tools,
)


def test_members_who_share_it_never_begin_beyond_what_is_stored_either() -> None:
    async def story() -> None:
        states = ScriptedStates(SAVED)
        states.shares = (
            Share("a", ((0, 2047),), SAVED), Share("b", ((2048, 4095),), WATERMARK + 1)
        )  # fmt: skip
        record = msgspec.structs.replace(RECORD, kind="key_shared")
        members = tuple(ListenerRecord(address="127.0.0.1", port=1, token=name, member=name) for name in "ab")
        delivery = Delivery(Attached("g", record, members), tools(states, ScriptedPartitions(ScriptedOwned())))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delivery.run)
            await eventually(lambda: bool(delivery.workers))
            crew = delivery.workers[0]
            assert isinstance(crew, Crew)
            await eventually(lambda: all(one.worker is not None for one in crew.served.values()) and bool(crew.served))
            begun = {name: one.worker and one.worker.position for name, one in crew.served.items()}
            assert (begun, crew.position) == ({"a": SAVED, "b": WATERMARK}, SAVED)
            nursery.cancel_scope.cancel()

    trio.run(story)
