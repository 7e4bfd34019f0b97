"""`manual=True`: a message is handled when the application acknowledges it, later, from any thread or task."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from delivery import MessageId, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import HootError
from delivery.metastore.catalog import open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import Message
from subscriber import ManualMessage, RetryPolicy, Subscriber
from subscriber.inbox import Status
from tests.integration.embedded import eventually
from tests.integration.engine import hosted
from tests.integration.subscribing import Theatre, batch, ids, play
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration


class Kept:
    """A listener that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: dict[int, ManualMessage] = {}
        self.calls: list[int] = []

    def __call__(self, message: ManualMessage) -> None:
        self.calls.append(message.number)
        self.messages[message.number] = message


@pytest.mark.parametrize("more", [{}, {"concurrency": 2}, {"concurrency": 2, "retry": RetryPolicy(order="key")}])
def test_a_push_is_answered_when_the_last_of_its_messages_was_acknowledged_and_others_go_on(
    theatre: Theatre, more: dict[str, Any]
) -> None:
    async def story() -> None:
        kept = Kept()
        async with theatre.stage(kept, manual=True, **more) as stage:
            first = await stage.owner.begin(0, batch(1, 3))
            second = await stage.owner.begin(3, batch(4, 2))
            await trio.to_thread.run_sync(eventually, lambda: len(kept.calls) == 5, "the listener goes on")
            for number in (5, 4, 3, 1):
                await trio.to_thread.run_sync(kept.messages[number].ack)
            answers = [await second()]
            assert stage.owner.connection.unanswered == 1
            kept.messages[2].ack()
            answers.append(await first())
            assert [(one.status, one.position) for one in answers] == [(Status.OK, 5), (Status.OK, 3)]

    play(story)


def test_a_host_that_repeats_what_is_not_acknowledged_calls_nobody_and_waits(theatre: Theatre) -> None:
    async def story() -> None:
        kept = Kept()
        async with theatre.stage(kept, manual=True) as stage:
            first = await stage.owner.begin(0, batch(1, 3))
            await trio.to_thread.run_sync(eventually, lambda: len(kept.calls) == 3, "called")
            again = await stage.owner.begin(0, batch(1, 3), batch(4, 1), turn=(2, 1))
            await trio.to_thread.run_sync(eventually, lambda: len(kept.calls) == 4, "the new one")
            assert kept.calls == ids(1, 4)
            for one in kept.messages.values():
                one.ack()
            assert ((await first()).position, (await again()).position) == (3, 4)

    play(story)


def test_what_a_listener_fails_at_ends_the_run_when_all_before_it_is_acknowledged(theatre: Theatre) -> None:
    async def story() -> None:
        kept = Kept()

        def failing(message: Message) -> None:
            if message.number == 3 and 3 not in kept.calls:
                kept.calls.append(3)
                raise ValueError("once")

        async with theatre.stage(failing, kept, manual=True) as stage:
            first = await stage.owner.begin(0, batch(1, 4))
            await trio.to_thread.run_sync(eventually, lambda: kept.calls == [1, 2, 3], "called")
            kept.messages[1].ack()
            kept.messages[2].ack()
            answer = await first()
            assert (answer.status, answer.position) == (Status.FAILED, 2)
            assert (await stage.owner.push(4, batch(5, 1)))[0] == Status.SKIPPED
            again = await stage.owner.begin(2, batch(1, 4), turn=(1, 2))
            await trio.to_thread.run_sync(eventually, lambda: 4 in kept.messages, "called again")
            kept.messages[3].ack()
            kept.messages[4].ack()
            assert (await again()).position == 4

    play(story)


def test_what_is_not_acknowledged_at_the_end_is_no_longer_waited_for(theatre: Theatre) -> None:
    async def story() -> None:
        kept = Kept()
        async with theatre.stage(kept, manual=True, grace=1000) as stage:
            first = await stage.owner.begin(0, batch(1, 3))
            await trio.to_thread.run_sync(eventually, lambda: len(kept.calls) == 3, "called")
            await stage.subscriber.stop()
            assert isinstance(await first(), HootError)
        kept.messages[1].ack()

    play(story)


def test_what_is_refused_by_where_needs_no_acknowledgement_and_lists_are_acknowledged_message_by_message(
    theatre: Theatre,
) -> None:
    async def story() -> None:
        def take(messages: list[ManualMessage]) -> None:
            for message in messages:
                threading.Thread(target=message.ack).start()

        async with theatre.stage(take, batches=True, manual=True, where=lambda message: message.number != 2) as stage:
            assert await stage.owner.push(0, batch(1, 3)) == (Status.OK, 3)

    play(story)


def test_a_checkpoint_never_passes_what_is_not_acknowledged_and_it_comes_again_to_the_next_one(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    with (
        hosted(zookeeper, tmp_path) as running,
        connect(running.address) as client,
        ZooKeeperClient(running.address) as session,
    ):
        queue = client.create_queue("orders")
        catalog = open_catalog(session)
        first, second = Kept(), Kept()
        subscriber = Subscriber("mail", zookeeper=running.address)
        subscriber.subscribe("orders", start="earliest", manual=True, listener=first)
        with subscriber:
            stored: list[int] = []
            for body in (b"1", b"2", b"3"):
                stored.append(int(queue.put(body).id))
                eventually(lambda: len(first.messages) == len(stored), "delivered, in a push of its own")
            one, two, three = stored
            first.messages[one].ack()
            first.messages[three].ack()
            eventually(lambda: catalog.states("orders", "mail")[0].position == one, "the first is acknowledged")
            assert str(MessageId(two)) in judged(client, "orders", "mail", "handler_stuck").verdict.text
        subscriber = Subscriber("mail", zookeeper=running.address)
        subscriber.subscribe("orders", manual=True, listener=second)
        with subscriber:
            eventually(lambda: sorted(second.messages) == [two, three], "what was not, and what is behind it")
            for message in second.messages.values():
                message.ack()
            eventually(lambda: catalog.states("orders", "mail")[0].position == three, "all is acknowledged")
