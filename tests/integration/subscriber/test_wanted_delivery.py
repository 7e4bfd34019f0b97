"""stop_delivery and start_delivery: an application has messages kept while it cannot use them (Hedwig had it so)."""

from __future__ import annotations

import pytest
import trio

from delivery.errors import HootError
from delivery.model import Message, QueueSettings
from subscriber.inbox import Status
from tests.integration.embedded import eventually
from tests.integration.subscribing import QUEUE, Noted, Stage, Theatre, attached, batch, ids, owner_of, play

pytestmark = pytest.mark.integration


async def waiting(stage: Stage, count: int) -> None:
    """Return when so many pushes are kept."""
    assert stage.subscriber._runtime is not None
    attachment = stage.subscriber._runtime._service.attached[QUEUE]
    await trio.to_thread.run_sync(eventually, lambda: len(attachment.waiting) >= count, "the pushes are kept")


def test_messages_are_kept_while_none_are_wanted_and_then_come_in_order(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted) as stage:
            assert await stage.owner.push(0, batch(1, 2)) == (Status.OK, 2)
            stage.subscription.stop_delivery()
            stage.subscription.stop_delivery()
            kept = [await stage.owner.begin(after, batch(after + 1, 5)) for after in (2, 7)]
            other = await stage.owner.begin(0, batch(1, 3, partition=1), partition=1)
            await waiting(stage, 3)
            assert noted.ids == ids(1, 2)
            stage.subscription.start_delivery()
            stage.subscription.start_delivery()
            answers = [await answer() for answer in (*kept, other)]
            assert [(one.status, one.position) for one in answers] == [(Status.OK, 7), (Status.OK, 12), (Status.OK, 3)]
        assert noted.ids == [*ids(1, 12), *ids(1, 3)]

    play(story)


def test_one_that_is_stopped_from_the_start_delivers_nothing_and_another_subscription_goes_on(theatre: Theatre) -> None:
    async def story() -> None:
        theatre.catalog.create_queue("trains", QueueSettings(partitions=1))
        flights, trains = Noted(), Noted()
        async with theatre.stage(flights) as stage:
            stage.subscription.stop_delivery()
            await stage.subscriber.subscribe("trains", start="earliest", listener=trains)
            kept = await stage.owner.begin(0, batch(1, 3))
            await waiting(stage, 1)
            async with owner_of(attached(theatre.catalog, "trains"), "trains") as owner:
                assert await owner.push(0, batch(1, 2), queue="trains") == (Status.OK, 2)
            assert (flights.ids, trains.ids) == ([], ids(1, 2))
            stage.subscription.start_delivery()
            assert (await kept()).status == Status.OK
        assert flights.ids == ids(1, 3)

    play(story)


def test_a_listener_may_stop_its_delivery_its_push_goes_on_to_the_end(theatre: Theatre) -> None:
    async def story() -> None:
        taken: list[int] = []

        def once(message: Message) -> None:
            taken.append(message.number)
            if message.number in (1, 4):
                stage.subscription.stop_delivery()

        async with theatre.stage(once) as stage:
            assert await stage.owner.push(0, batch(1, 3)) == (Status.OK, 3)
            kept = [await stage.owner.begin(after, batch(after + 1, 3)) for after in (3, 6)]
            stage.subscription.start_delivery()
            assert (await kept[0]()).position == 6
            assert taken == ids(1, 6), "it has stopped again, behind the push"
            stage.subscription.start_delivery()
            assert (await kept[1]()).position == 9
        assert taken == ids(1, 9)

    play(story)


@pytest.mark.parametrize("end", ["stopped", "deleted"])
def test_what_is_kept_when_it_ends_is_not_acknowledged_and_holds_nothing_up(theatre: Theatre, end: str) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted, grace=1000) as stage:
            stage.subscription.stop_delivery()
            kept = await stage.owner.begin(0, batch(1, 3))
            await waiting(stage, 1)
            if end == "stopped":
                await stage.subscriber.stop()
                assert isinstance(await kept(), HootError)
            else:
                await stage.subscriber.unsubscribe(stage.subscription.queue)
                assert (await kept()).status == Status.UNKNOWN
        assert (noted.ids, stage.subscription.state) == ([], end)

    play(story)
