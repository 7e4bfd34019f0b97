"""A running subscriber that is pushed to: what reaches the listeners, and what is answered."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.lowlevel
import trio.testing

from delivery.model import Message
from subscriber import Event
from subscriber.inbox import Status
from tests.hosting import eventually
from tests.integration.subscribing import (
    NAME,
    QUEUE,
    Noted,
    Theatre,
    attached,
    batch,
    ids,
    numbers,
    only,
    owner_of,
    play,
)

pytestmark = pytest.mark.integration


def test_pushes_reach_the_listener_in_order_and_are_answered_with_the_last_id(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted) as stage:
            replies = [await stage.owner.begin(n, batch(n + 1, 100), batch(n + 101, 100)) for n in range(0, 2000, 200)]
            for number, reply in enumerate(replies, 1):
                answer = await reply()
                assert (answer.status, answer.position) == (Status.OK, number * 200)
        assert noted.ids == ids(1, 2000)
        assert noted.threads == {"subscriber-strand"}

    play(story)


def test_messages_carry_everything_that_was_published(theatre: Theatre) -> None:
    async def story() -> None:
        taken: list[Message] = []
        async with theatre.stage(taken.append) as stage:
            await stage.owner.push(0, batch(5, 2, partition=1), partition=1)
        assert [(m.number, m.body, m.topic, m.key, m.partition, m.queue) for m in taken] == [
            (5, b"5", "JFK", None, 1, QUEUE), (6, b"6", "LGA", None, 1, QUEUE),
        ]  # fmt: skip

    play(story)


def test_only_messages_above_after_are_meant(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted) as stage:
            assert await stage.owner.push(7, batch(1, 10)) == (Status.OK, 10)
        assert noted.ids == [8, 9, 10]

    play(story)


def test_a_batch_that_a_topic_filter_thinned_out_is_answered_with_the_last_id_it_covers(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted(13)
        async with theatre.stage(noted) as stage:
            assert await stage.owner.push(0, only(batch(1, 10), "JFK")) == (Status.OK, 10)
            assert await stage.owner.push(10, only(batch(11, 6), "JFK")) == (Status.FAILED, 12)
            noted.failing.clear()
            assert await stage.owner.push(12, only(batch(11, 6), "JFK"), turn=(1, 2)) == (Status.OK, 16)
        assert noted.ids == [1, 3, 5, 7, 9, 11, 13, 15]

    play(story)


# -- failures


def test_a_failing_message_ends_the_run_and_the_next_run_goes_on_with_it(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted(154)
        async with theatre.stage(noted) as stage:
            first, second, third = [await stage.owner.begin(n, batch(n + 1, 100)) for n in (0, 100, 200)]
            assert (await first()).status == Status.OK
            answer = await second()
            assert (answer.status, answer.position) == (Status.FAILED, 153)
            assert answer.failures[0].error == "ValueError: 154 is no good"
            assert (await third()).status == Status.SKIPPED
            assert await stage.owner.push(200, batch(201, 100)) == (Status.SKIPPED, 200)
            assert noted.ids == ids(1, 153)

            noted.failing.clear()
            assert await stage.owner.push(153, batch(101, 100), turn=(1, 2)) == (Status.OK, 200)
            assert await stage.owner.push(200, batch(201, 100), turn=(1, 2)) == (Status.OK, 300)
            await eventually(lambda: [event.kind for event in stage.events] == ["failed"])
            assert (stage.events[0].partition, str(stage.events[0].error)) == (0, "154 is no good")
        assert noted.ids == ids(1, 300)

    play(story)


def test_a_failure_in_one_partition_leaves_the_other_alone(theatre: Theatre) -> None:
    async def story() -> None:
        async with theatre.stage(Noted(5)) as stage:
            assert await stage.owner.push(0, batch(1, 10)) == (Status.FAILED, 4)
            assert await stage.owner.push(0, batch(11, 10, partition=1), partition=1) == (Status.OK, 20)

    play(story)


def test_the_error_text_is_limited_and_an_error_that_cannot_say_what_it_is_counts_too(theatre: Theatre) -> None:
    class Dumb(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    errors = [ValueError("x" * 5000), Dumb()]

    def listener(message: Message) -> None:
        raise errors.pop(0)

    async def story() -> None:
        async with theatre.stage(listener) as stage:
            answer = await (await stage.owner.begin(0, batch(1, 1)))()
            assert (answer.status, len(answer.failures[0].error)) == (Status.FAILED, 1000)
            answer = await (await stage.owner.begin(0, batch(1, 1), turn=(1, 2)))()
            assert (answer.status, answer.failures[0].error) == (Status.FAILED, "Dumb")

    play(story)


@pytest.mark.parametrize("batches", [False, True])
def test_a_damaged_batch_is_never_skipped_what_is_before_it_is_handled(theatre: Theatre, batches: bool) -> None:
    async def story() -> None:
        taken: list[int] = []

        def one(message: Message) -> None:
            taken.append(message.number)

        def many(messages: list[Message]) -> None:
            taken.extend(numbers(messages))

        async with theatre.stage(many if batches else one, batches=batches) as stage:
            damaged = bytearray(batch(11, 10))
            damaged[-1] ^= 1
            answer = await (await stage.owner.begin(0, batch(1, 10), bytes(damaged), batch(21, 10)))()
            assert (answer.status, answer.position) == (Status.FAILED, 10)
            assert "checksum" in answer.failures[0].error
            assert await stage.owner.push(10, batch(11, 10), batch(21, 10), turn=(1, 2)) == (Status.OK, 30)
        assert taken == ids(1, 30)

    play(story)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (batch(1, 10)[:-1], "no whole batch"),
        (b"HooB", "no whole batch"),
        (b"x" * 100, "no record batch"),
        (batch(1, 10, partition=1), "partition 1"),
    ],
    ids=["cut short", "a stump", "something else", "another partition's"],
)
def test_a_push_that_does_not_hold_whole_batches_of_its_partition_fails(
    theatre: Theatre, data: bytes, text: str
) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted) as stage:
            answer = await (await stage.owner.begin(0, data))()
            assert (answer.status, answer.position) == (Status.FAILED, 0)
            assert text in answer.failures[0].error
        assert noted.ids == []

    play(story)


# -- turns and identity


def test_an_owner_that_was_replaced_and_a_run_that_is_over_are_stale(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted) as stage:
            assert await stage.owner.push(0, batch(1, 10), turn=(2, 5)) == (Status.OK, 10)
            assert (await stage.owner.push(10, batch(11, 10), turn=(1, 9)))[0] == Status.STALE
            assert (await stage.owner.push(10, batch(11, 10), turn=(2, 4)))[0] == Status.STALE
        assert noted.ids == ids(1, 10)

    play(story)


def test_after_a_failover_what_this_subscriber_handled_is_not_handed_out_again(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted) as stage:
            assert await stage.owner.push(0, batch(1, 100)) == (Status.OK, 100)
            async with owner_of(attached(theatre.catalog)) as other:
                assert await other.push(40, batch(31, 50), batch(81, 50), turn=(2, 1)) == (Status.OK, 130)
        assert noted.ids == ids(1, 130)

    play(story)


def test_each_move_of_a_partition_is_one_event_before_the_first_message_that_comes_from_there(
    theatre: Theatre,
) -> None:
    async def story() -> None:
        seen: list[object] = []
        async with theatre.stage(lambda message: seen.append(message.number)) as stage:
            stage.subscriber.on_event(lambda event: seen.append(event) if event.kind == "moved" else None)
            owner = stage.owner
            await owner.push(0, batch(1, 1), turn=(2, 1))
            await owner.push(0, batch(1, 1, partition=1), partition=1, turn=(7, 1))
            await owner.push(1, batch(2, 1), turn=(2, 2))
            await owner.push(2, batch(3, 1), turn=(5, 1))
            await owner.push(3, batch(4, 1), turn=(5, 1))
            assert (await owner.push(4, batch(5, 1), turn=(2, 3)))[0] == Status.STALE
            await owner.push(1, batch(2, 1, partition=1), partition=1, turn=(8, 1))
            assert stage.subscriber.counters.pushes == 6, "a listener for events does not end the subscriber"
        assert seen == [
            1, 1, 2,
            Event("moved", QUEUE, partition=0, former_epoch=2, epoch=5), 3, 4,
            Event("moved", QUEUE, partition=1, former_epoch=7, epoch=8), 2,
        ]  # fmt: skip

    play(story)


def test_a_subscription_that_is_attached_anew_is_told_of_no_former_owner(theatre: Theatre) -> None:
    async def story() -> None:
        for epoch in (1, 2):
            async with theatre.stage(Noted()) as stage:
                assert await stage.owner.push(0, batch(1, 1), turn=(epoch, 1)) == (Status.OK, 1)
            assert "moved" not in {event.kind for event in stage.events}

    play(story)


@pytest.mark.parametrize("wrong", [{"queue": "other"}, {"name": "other"}, {"partition": 3}, {"partition": -1}])
def test_a_push_for_something_else_is_unknown_here(theatre: Theatre, wrong: dict[str, object]) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted) as stage:
            assert (await stage.owner.push(0, batch(1, 1), **wrong))[0] == Status.UNKNOWN
            assert await stage.owner.push(0, batch(1, 1)) == (Status.OK, 1)
        assert noted.ids == [1]

    play(story)


def test_hello_gives_no_token_for_another_subscription(theatre: Theatre) -> None:
    async def story() -> None:
        async with theatre.stage(Noted()) as stage:
            assert await stage.owner.connection.call("Listener", "hello", QUEUE, "other") == ""
            assert await stage.owner.connection.call("Listener", "hello", "other", NAME) == ""
            assert len(attached(theatre.catalog).token) == 32

    play(story)


def test_hostile_bytes_cost_their_connection_and_nothing_else(theatre: Theatre) -> None:
    async def story() -> None:
        noted = Noted()
        async with theatre.stage(noted) as stage:
            for hostile in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\x08garbage!"):
                with socket.create_connection(("127.0.0.1", stage.subscriber.port)) as client:
                    client.sendall(hostile)
                    client.settimeout(5)
                    assert await trio.to_thread.run_sync(client.recv, 1) == b""
            assert await stage.owner.push(0, batch(1, 3)) == (Status.OK, 3)

    play(story)
