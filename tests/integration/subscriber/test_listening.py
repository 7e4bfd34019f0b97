"""Kinds of listeners, slow ones, and those under way when the subscriber ends."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.lowlevel
import trio.testing

from delivery.errors import HootError
from delivery.model import Message
from subscriber import AsyncSubscriber
from subscriber.inbox import Status
from tests.integration.subscribing import (
    NAME,
    QUEUE,
    Noted,
    Theatre,
    attached,
    batch,
    ids,
    in_thread,
    numbers,
    owner_of,
    play,
)

pytestmark = pytest.mark.integration


# -- kinds of listeners


def test_a_batch_listener_gets_all_batches_of_a_push_in_one_list(theatre: Theatre) -> None:
    async def story() -> None:
        taken: list[list[int]] = []
        async with theatre.stage(lambda messages: taken.append(numbers(messages)), batches=True) as stage:
            assert await stage.owner.push(2, batch(1, 3), batch(4, 3)) == (Status.OK, 6)
        assert taken == [[3, 4, 5, 6]]

    play(story)


def test_async_listeners_run_in_the_programs_loop_and_sync_ones_in_one_thread(theatre: Theatre) -> None:
    async def story() -> None:
        main = threading.current_thread()
        order: list[tuple[str, int]] = []
        threads: dict[str, set[threading.Thread]] = {"sync": set(), "async": set()}
        running = [0]

        async def asynchronous(message: Message) -> None:
            running[0] += 1
            assert running[0] == 1
            await trio.lowlevel.checkpoint()
            order.append(("async", message.number))
            threads["async"].add(threading.current_thread())
            running[0] -= 1

        def synchronous(message: Message) -> None:
            assert running[0] == 0
            order.append(("sync", message.number))
            threads["sync"].add(threading.current_thread())

        async with theatre.stage(asynchronous, synchronous) as stage:
            for after in (0, 10):
                assert (await stage.owner.push(after, batch(after + 1, 10)))[0] == Status.OK
            reply = await stage.owner.push(0, batch(1, 10, partition=1), partition=1)
            assert reply == (Status.OK, 10)
        assert order == [(kind, number) for number in [*ids(1, 20), *ids(1, 10)] for kind in ("async", "sync")]
        assert threads["async"] == {main}
        assert len(threads["sync"]) == 1
        assert threads["sync"] != {main}

    play(story)


def test_an_async_listener_that_raises_fails_its_message(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted(4)

        async def listener(message: Message) -> None:
            await trio.lowlevel.checkpoint()
            noted(message)

        async with theatre.stage(listener) as stage:
            assert await stage.owner.push(0, batch(1, 10)) == (Status.FAILED, 3)
            noted.failing.clear()
            assert await stage.owner.push(3, batch(1, 10), turn=(1, 2)) == (Status.OK, 10)
        assert noted.ids == ids(1, 10)

    play(story)


def test_a_listener_that_is_added_later_is_called_from_the_next_push_on(theatre: Theatre) -> None:
    async def story() -> None:
        first, second = Noted(), Noted()
        async with theatre.stage(first) as stage:
            await stage.owner.push(0, batch(1, 3))
            stage.subscriber.listener(second)
            await stage.owner.push(3, batch(4, 3))
        assert (first.ids, second.ids) == (ids(1, 6), ids(4, 3))

    play(story)


# -- slow listeners and the end


def test_while_a_listener_is_slow_the_connection_lives_and_others_are_answered(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted) as stage:
            noted.gate.clear()
            reply = await stage.owner.begin(0, batch(1, 3))
            await in_thread(noted.entered)
            async with owner_of(attached(theatre.catalog)):  # says hello meanwhile
                noted.gate.set()
            assert (await reply()).status == Status.OK

    play(story)


def test_a_push_that_is_repeated_while_its_callback_still_runs_calls_nobody_twice(theatre: Theatre) -> None:
    """A host that lost patience, or its connection, comes back with the same messages in a new run."""

    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted) as stage:
            noted.gate.clear()
            await stage.owner.begin(0, batch(1, 10))
            await in_thread(noted.entered)
            await stage.owner.connection.aclose()
            async with owner_of(attached(theatre.catalog)) as again:
                reply = await again.begin(0, batch(1, 10), batch(11, 10), turn=(1, 2))
                noted.gate.set()
                answer = await reply()
                assert (answer.status, answer.position) == (Status.OK, 20)
        assert noted.ids == ids(1, 20)

    play(story)


def test_pushes_beyond_the_cap_are_not_read_before_others_are_answered(theatre: Theatre) -> None:
    """A host without a window pushes 200 MB at a listener that hangs; what the subscriber takes in stays bounded."""

    async def story() -> None:
        noted = Noted()
        data = batch(1, 20_000)
        count = 200_000_000 // len(data)
        async with theatre.stage(noted) as stage:
            noted.gate.clear()
            sent = 0
            with trio.move_on_after(2):
                for _ in range(count):
                    await stage.owner.begin(0, data)
                    sent += 1
            assert 0 < sent * len(data) < 100_000_000
            noted.gate.set()

    play(story)


def test_stop_lets_the_callback_under_way_end_and_acknowledges_it(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted) as stage:
            noted.gate.clear()
            first = await stage.owner.begin(0, batch(1, 3))
            second = await stage.owner.begin(3, batch(4, 3))
            await in_thread(noted.entered)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.subscriber.stop)
                await trio.testing.wait_all_tasks_blocked()
                noted.gate.set()
            answer = await first()
            assert (answer.status, answer.position) == (Status.OK, 3)
            assert isinstance(await second(), HootError)
        assert noted.ids == ids(1, 3)
        assert stage.subscription.state == "stopped"
        assert theatre.catalog.listener(QUEUE, NAME) is None
        assert theatre.catalog.subscription(QUEUE, NAME) is not None

    play(story)


def test_stop_leaves_a_callback_to_itself_when_the_grace_is_over(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted, grace=0.2) as stage:
            noted.gate.clear()
            await stage.owner.begin(0, batch(1, 1))
            await in_thread(noted.entered)
            await stage.subscriber.stop()
            assert theatre.catalog.listener(QUEUE, NAME) is None
            assert noted.ids == []
        noted.gate.set()

    play(story)


def test_cancelling_cancels_an_async_listener_and_nothing_is_acknowledged(theatre: Theatre) -> None:
    async def story() -> None:
        entered, ended = trio.Event(), []

        async def listener(message: Message) -> None:
            entered.set()
            try:
                await trio.sleep_forever()
            finally:
                ended.append(message.number)

        subscriber = AsyncSubscriber(NAME, theatre.zookeeper_hosts)
        await subscriber.subscribe(QUEUE, start="earliest", listener=listener)
        async with trio.open_nursery() as nursery:
            await subscriber.start(nursery)
            async with owner_of(attached(theatre.catalog)) as owner:
                reply = await owner.begin(0, batch(1, 1))
                await entered.wait()
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    assert isinstance(await reply(), HootError)
        assert ended == [1]
        assert theatre.catalog.listener(QUEUE, NAME) is None

    play(story)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_listener_may_stop_its_subscriber(theatre: Theatre, kind: str) -> None:
    async def story() -> None:
        subscriber = AsyncSubscriber(NAME, theatre.zookeeper_hosts)
        seen: list[int] = []

        def synchronous(message: Message) -> None:
            seen.append(message.number)
            subscriber.stop_soon()

        async def asynchronous(message: Message) -> None:
            seen.append(message.number)
            await subscriber.stop()

        await subscriber.subscribe(QUEUE, start="earliest", listener=synchronous if kind == "sync" else asynchronous)
        async with trio.open_nursery() as nursery:
            await subscriber.start(nursery)
            async with owner_of(attached(theatre.catalog)) as owner:
                assert await owner.push(0, batch(1, 2)) == (Status.OK, 2)
        assert seen == [1, 2]

    play(story)


def test_a_listener_that_exits_ends_the_subscriber_and_its_message_is_not_acknowledged(theatre: Theatre) -> None:
    def listener(message: Message) -> None:
        raise SystemExit(3)

    async def story() -> None:
        subscriber = AsyncSubscriber(NAME, theatre.zookeeper_hosts)
        await subscriber.subscribe(QUEUE, start="earliest", listener=listener)
        replies: list[tuple[int, int]] = []

        async def push() -> None:
            async with owner_of(attached(theatre.catalog)) as owner:
                replies.append(await owner.push(0, batch(1, 2)))

        with pytest.raises(SystemExit, match="3"):
            await trio_run_with(subscriber, push)
        assert replies == [(Status.FAILED, 0)]

    async def trio_run_with(subscriber: AsyncSubscriber, push: object) -> None:
        try:
            async with trio.open_nursery() as nursery:
                await subscriber.start(nursery)
                nursery.start_soon(push)  # type: ignore[arg-type]
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    play(story)
