"""A subscriber that stands still, beside one that does not (I12; row 33 of the fault table), with real processes."""

from __future__ import annotations

import signal

import pytest

from delivery import connect
from tests.chaos import listening, role
from tests.chaos.children import Child
from tests.chaos.neighbours import FELT_SECONDS, LEAST, TIMES
from tests.chaos.ports import new_port
from tests.chaos.quantiles import quantile
from tests.chaos.stage import LOOPBACK, QUEUE, Publishing, Stage
from tests.integration.embedded import eventually
from tests.integration.verdicts import judged

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

SOME = 4 * LEAST


def test_row_33_while_a_subscriber_stands_still_with_a_full_window_the_others_are_as_fast_as_before(
    stage: Stage,
) -> None:
    stage.host("window_messages=20", "buffer_messages=20")
    queue, listener = stage.queue(), stage.listen()
    orders = listening.Orders(stage.zookeeper, QUEUE, "stuck", str(stage.folder / "stuck"), new_port(), LOOPBACK)
    arguments = role.arguments(orders)
    stuck = Child("stuck", stage.keeper, stage.folder / "stuck.log", lambda _: arguments)
    try:
        stuck.start()
        with Publishing(queue) as publishing:
            publishing.more(20)
            eventually(lambda: stage.position("stuck") > 0, "it goes along at first")
            publishing.more(SOME)
            stuck.signal(signal.SIGSTOP)
            at = len(publishing.stored)
            publishing.more(SOME)
        ids = publishing.stored
        listener.check(ids)
        reached = stage.position("stuck")
        with connect(stage.zookeeper) as client:
            judged(client, QUEUE, "stuck", "listener_unreachable")
    finally:
        stuck.close()
    assert reached < ids[at + 50], "it stood still indeed"
    took = {message.number: seconds for message, seconds in zip(listener.messages, listener.took, strict=True)}
    peace, meanwhile = ([took[number] for number in part] for part in (ids[at - SOME : at], ids[at:]))
    assert quantile(meanwhile, 0.99) <= max(TIMES * quantile(peace, 0.99), FELT_SECONDS)
