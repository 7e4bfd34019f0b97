"""What fails on a real subscriber's threads beside its listeners: an answer, or the end of `run`, and never silence."""

from __future__ import annotations

import logging

import pytest
import trio

from delivery.errors import HootError
from delivery.metastore.catalog import Catalog
from subscriber import AsyncSubscriber, Subscriber
from subscriber.inbox import Status
from subscriber.service import ListenerService
from tests.integration.embedded import eventually
from tests.integration.subscribing import NAME, QUEUE, Noted, attached, batch, ids, owner_of, play

pytestmark = pytest.mark.integration


class Broken(logging.Handler):
    """Cannot write what the subscriber warns of."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("subscriber") and record.levelno >= logging.WARNING:
            raise OSError("the log's disk is full")


def test_a_log_that_raises_while_a_failure_is_told_of_stalls_nothing(
    queue: Catalog, zookeeper_hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [Broken()])
    subscriber, noted = Subscriber(NAME, zookeeper_hosts), Noted(2)
    subscriber.subscribe(QUEUE, start="earliest", listener=noted)

    async def story() -> None:
        async with owner_of(attached(queue)) as owner:
            for run in range(1, 4):
                assert await owner.push(0, batch(1, 3), turn=(1, run)) == (Status.FAILED, 1)
            noted.failing.clear()
            assert await owner.push(1, batch(2, 2), turn=(1, 4)) == (Status.OK, 3)

    with subscriber:
        play(story)
    assert (noted.ids, subscriber.subscriptions[QUEUE].state) == (ids(1, 3), "stopped")


@pytest.fixture
def defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def do(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(ListenerService, "_do", do)


@pytest.mark.usefixtures("defect")
def test_a_defect_on_a_thread_is_raised_by_run_and_logged_for_who_does_not_call_it(
    queue: Catalog, zookeeper_hosts: str, caplog: pytest.LogCaptureFixture
) -> None:
    subscriber = Subscriber(NAME, zookeeper_hosts)
    subscription = subscriber.subscribe(QUEUE, start="earliest", listener=Noted())
    subscriber.start()

    async def story() -> None:
        async with owner_of(attached(queue)) as owner:
            assert isinstance(await (await owner.begin(0, batch(1, 3)))(), HootError)

    play(story)
    eventually(lambda: subscription.state == "stopped", "the subscriber has ended")
    with pytest.raises(ZeroDivisionError, match="planted"):
        subscriber.run()
    assert "ended unexpectedly" in caplog.text


@pytest.mark.usefixtures("defect")
def test_a_defect_on_a_thread_is_raised_by_run_of_the_trio_face(queue: Catalog, zookeeper_hosts: str) -> None:
    async def story() -> None:
        subscriber = AsyncSubscriber(NAME, zookeeper_hosts)
        await subscriber.subscribe(QUEUE, start="earliest", listener=Noted())
        with pytest.raises(ExceptionGroup) as failed:  # noqa: PT012 - the nursery raises it
            async with trio.open_nursery() as nursery:
                await nursery.start(subscriber.run)
                async with owner_of(attached(queue)) as owner:
                    await (await owner.begin(0, batch(1, 3)))()
                    await trio.sleep_forever()
        assert failed.group_contains(ZeroDivisionError, match="planted")

    play(story)
