"""Acknowledgements that come out of order, twice, late or never: rows 30 to 32 of the fault table, real processes.

A connection's answers have the order of its calls. A listener that does otherwise is not one, whatever it says of what
it handled: its connection ends, no checkpoint counts what it said, and everything comes again.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from delivery.client import Queue
from delivery.metastore.managers.records import SubscriptionState
from tests.chaos import listening, role
from tests.chaos.children import Child
from tests.chaos.history import events
from tests.chaos.oddly import Odd
from tests.chaos.ports import new_port
from tests.chaos.stage import LOOPBACK, QUEUE, SESSION_SECONDS, TAKEOVER_SECONDS, Publishing, Stage, scanned_ids
from tests.integration.embedded import NEVER, eventually

pytestmark = [pytest.mark.integration, pytest.mark.chaos]


def put_apart(queue: Queue, count: int) -> list[int]:
    """Messages of a batch each."""
    return [int(queue.put(b"%d" % number).id) for number in range(count)]


@pytest.mark.parametrize("order", [(2, 1), (1,), (0, 2)], ids=["backwards", "a later one", "a gap"])
def test_row_32_answers_out_of_order_move_the_checkpoint_over_what_was_answered_in_order_and_no_further(
    stage: Stage, order: tuple[int, ...]
) -> None:
    stage.host("push_bytes=1")
    stored = put_apart(stage.queue(), 3)
    in_order = stored[0] if order[0] == 0 else 0
    with Odd(stage.catalog, QUEUE) as odd:
        odd.has(3)
        odd.answer(*order)
        eventually(lambda: odd.position() == in_order, "the checkpoint is behind what was answered in order")
        NEVER.wait(1.0)
        assert odd.position() == in_order
        odd.answer(*(place for place in range(3) if place not in order))
        eventually(lambda: odd.position() == stored[-1], "the checkpoint is at the end")
        assert odd.connections == 1


def test_row_31_an_answer_that_comes_twice_ends_the_connection_and_moves_the_checkpoint_once(stage: Stage) -> None:
    stage.host("push_bytes=1")
    stored = put_apart(stage.queue(), 3)
    with Odd(stage.catalog, QUEUE) as odd:
        odd.has(3)
        odd.answer(0, 0)
        eventually(lambda: odd.connections == 2, "the host connects anew")
        odd.has(2)
        assert [push.last_id for push in odd.waiting] == stored[1:]
        eventually(lambda: odd.position() == stored[0], "the checkpoint is behind what was answered")
        odd.answer(0, 1)
        eventually(lambda: odd.position() == stored[-1], "the checkpoint is at the end")


def test_row_31_an_acknowledgement_that_comes_to_a_former_owner_moves_no_checkpoint(stage: Stage) -> None:
    first = stage.host()
    queue, listener = stage.queue(), stage.listen()
    listener.gate.clear()
    put_apart(queue, 3)
    assert stage.owns(first)
    second = stage.host()
    eventually(lambda: listener.messages != [], "the first callback has begun")
    first.process.signal(signal.SIGSTOP)
    eventually(lambda: stage.owns(second), "the other one takes over", TAKEOVER_SECONDS)
    listener.gate.set()
    put_apart(queue, 3)
    ids = scanned_ids(queue)

    def state() -> SubscriptionState:
        return stage.catalog.states(QUEUE, "listener")[0]

    eventually(lambda: state().position == ids[-1], "the checkpoint is at the end")
    before = state()
    first.process.signal(signal.SIGCONT)
    with Publishing(queue) as publishing:
        for _ in range(10):
            NEVER.wait(SESSION_SECONDS / 10)
            after = state()
            assert (after.epoch, after.position) >= (before.epoch, before.position)
            before = after
        publishing.more(20)
    listener.check(scanned_ids(queue))
    assert before.epoch == stage.owner().epoch


def test_row_30_a_subscriber_that_dies_between_a_callback_and_its_acknowledgement_gets_that_message_again(
    stage: Stage, tmp_path: Path
) -> None:
    """Its callback takes so long that it surely dies in it."""
    stage.host("push_bytes=1")
    queue, file = stage.queue(), tmp_path / "listening"
    orders = listening.Orders(stage.zookeeper, QUEUE, "dying", str(file), new_port(), LOOPBACK, pause=600.0)
    arguments = role.arguments(orders)
    child = Child("dying", stage.keeper, tmp_path / "dying.log", lambda _: arguments)

    def called() -> list[int]:
        return [int(words[3]) for words in events(file) if words[0] == "call"]

    def dies_at_call(times: int) -> None:
        child.start()
        eventually(lambda: len(called()) == times, f"it is called {times} times")
        assert stage.position("dying") < number
        child.kill()

    try:
        [number] = put_apart(queue, 1)
        for times in (1, 2, 3):
            dies_at_call(times)
        assert called() == [number] * 3
    finally:
        child.close()
