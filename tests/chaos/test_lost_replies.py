"""Replies that are lost on the way: rows 8, 14 and 31 of the fault table, with real processes."""

from __future__ import annotations

import pytest

from delivery.errors import DeadlineExceeded
from tests.chaos.ports import new_port
from tests.chaos.proxy import HEALTHY, Faults
from tests.chaos.stage import (
    FOR_CLIENTS,
    LOOPBACK,
    QUEUE,
    SESSION_SECONDS,
    Host,
    Publishing,
    Stage,
    scanned,
    scanned_ids,
)
from tests.hosting import batch
from tests.integration.embedded import NEVER, eventually

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

DEAF = Faults(drop_replies=True)


def test_row_8_writes_to_zookeeper_whose_answers_are_lost_are_found_done_and_the_epoch_rises_by_as_much(
    stage: Stage,
) -> None:
    host = stage.host()
    queue = stage.queue()
    host.disturb("zookeeper", DEAF)
    with Publishing(queue) as publishing:
        NEVER.wait(SESSION_SECONDS / 3)
        host.disturb("zookeeper")
        publishing.more(20)
        first = stage.owner()
        host.disturb("zookeeper", DEAF)
        NEVER.wait(SESSION_SECONDS / 3)
        host.disturb("zookeeper")
        publishing.more(20)
    assert stage.owns(host)
    assert first.epoch <= 2
    assert stage.owner().epoch <= first.epoch + 1
    assert scanned_ids(queue) == publishing.stored


def publish_unheard(host: Host, data: bytes) -> None:
    """Have a batch stored whose publisher gets no answer: replies of this host are lost from now on."""
    host.disturb("clients", DEAF)
    with host.connect(through_proxy=True) as connection, pytest.raises(DeadlineExceeded):
        connection.call("publish", QUEUE, 0, data, None, deadline=1.0)


def test_row_14_a_publish_whose_reply_was_lost_is_stored_once_when_it_is_repeated(stage: Stage) -> None:
    host, queue = stage.host(), stage.queue()
    repeated = batch(b"once", producer=7, sequence=1)
    publish_unheard(host, repeated)
    assert [message.body for message in scanned(queue)] == [b"once"]
    host.disturb("clients")
    with host.connect(through_proxy=True) as connection:
        answers = [connection.call("publish", QUEUE, 0, repeated, None) for _ in range(3)]
    [message] = scanned(queue)
    assert all(answer.duplicate and answer.baseId == message.number for answer in answers)


def test_row_14_the_repeat_may_come_to_the_next_owner(stage: Stage) -> None:
    first, queue = stage.host(), stage.queue()
    repeated = batch(b"once", producer=7, sequence=1)
    publish_unheard(first, repeated)
    second = stage.host()
    first.process.kill()
    queue.put(b"to let the other one take over")
    assert stage.owns(second)
    with second.connect() as connection:
        assert connection.call("publish", QUEUE, 0, repeated, None).duplicate
    assert [message.body for message in scanned(queue)] == [b"once", b"to let the other one take over"]


def test_row_31_pushes_whose_acknowledgements_are_lost_come_again_and_no_checkpoint_counts_them(stage: Stage) -> None:
    stage.host()
    queue, port = stage.queue(), new_port()
    stage.proxy.add("pushes", FOR_CLIENTS, (LOOPBACK, port))
    listener = stage.listen(advertise=FOR_CLIENTS, port=port)
    with Publishing(queue) as publishing:
        publishing.more(20)
        listener.has_all(publishing.stored)
        stage.proxy.set("pushes", DEAF)
        NEVER.wait(0.5)
        deaf_at = stage.catalog.states(QUEUE, "listener")[0].position
        publishing.more(30)
        NEVER.wait(0.5)
        assert stage.catalog.states(QUEUE, "listener")[0].position == deaf_at
        stage.proxy.set("pushes", HEALTHY)
        publishing.more(20)
    ids = scanned_ids(queue)
    assert ids == publishing.stored
    listener.check(ids)
    eventually(lambda: stage.catalog.states(QUEUE, "listener")[0].position == ids[-1], "the checkpoint is at the end")
