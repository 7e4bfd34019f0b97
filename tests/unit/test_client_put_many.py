"""Messages that are put together: stored as if each had been put by itself, and told the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from delivery.client.accumulator import Limits
from delivery.client.aio_publisher import PUTS_AT_ONCE, AsyncPublisher
from delivery.client.direct import DirectPublisher
from delivery.client.outgoing import NewMessage, Plain
from delivery.client.publisher import Publisher
from delivery.client.receipts import PublishedMessage
from delivery.errors import DeadlineExceeded, HootError, InvalidRequest, MessageTooLarge
from tests.scripted_host import ScriptedHost, target
from tests.threads import interrupting

SECONDS = 20.0


def publisher(host: ScriptedHost, limits: Limits, *, hop: bool = False, timeout: float = SECONDS) -> Publisher:
    return Publisher(target(host), limits, timeout=timeout, hop=hop)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("limits", [Limits(linger=0.001, batch_messages=7), Limits(linger=0.001, buffer_bytes=500)])
def test_all_are_stored_in_order_and_each_receipt_has_its_own_id(limits: Limits) -> None:
    bodies = numbered(1000)
    behind: list[bytes | NewMessage] = [b"behind", NewMessage(b"last", key=b"k")]
    with ScriptedHost() as host, publisher(host, limits) as under_test:
        before = under_test.put(b"before")
        found = under_test.put_many(bodies)
        rest = under_test.put_many(iter(behind))
        ids = [int(receipt.id) for receipt in (before, *found, *rest)]
        assert ids == list(range(1, 1004))
        assert host.bodies == [b"before", *bodies, b"behind", b"last"]


def test_one_that_is_refused_leaves_all_of_them_out() -> None:
    with ScriptedHost() as host, publisher(host, Limits(linger=0.001)) as under_test:
        with pytest.raises(MessageTooLarge):
            under_test.put_many([b"fine", bytes((1 << 20) + 1)])
        with pytest.raises(TypeError):
            under_test.put_many([b"fine", "text"])  # type: ignore[list-item]
        assert under_test.put_many([]) == []
        under_test.flush()
        assert host.bodies == []


@pytest.mark.parametrize("limits", [Limits(linger=0.001, batch_messages=7), Limits(linger=0.001, buffer_bytes=500)])
def test_messages_with_keys_and_topics_are_stored_in_order_and_each_has_its_own_id(limits: Limits) -> None:
    messages = [NewMessage(b"%d" % at, key=b"k" if at % 3 else None, topic="ab"[at % 2]) for at in range(1000)]
    with ScriptedHost() as host, publisher(host, limits) as under_test:
        found = under_test.put_many(messages)
        assert [int(receipt.id) for receipt in found] == list(range(1, 1001))
        assert host.bodies == [message.body for message in messages]


def test_a_list_without_a_linger_leaves_at_once() -> None:
    with ScriptedHost() as host, publisher(host, Limits(linger=0)) as under_test:
        found = under_test.put_many([NewMessage(b"a", key=b"k"), NewMessage(b"b", key=b"k")])
        assert [int(receipt.result(SECONDS).id) for receipt in found] == [1, 2]
        assert host.sizes[0] == 2


def test_what_is_no_bytes_object_is_stored_as_bytes() -> None:
    class Body(bytes):
        pass

    with ScriptedHost() as host, publisher(host, Limits(linger=0.001)) as under_test:
        [*receipts] = under_test.put_many([bytearray(b"a"), memoryview(b"b"), Body(b"c"), b"d"])
        assert [receipt.result().id for receipt in receipts] == [1, 2, 3, 4]
        assert host.bodies == [b"a", b"b", b"c", b"d"]


def test_what_a_host_refuses_is_told_by_every_receipt_of_that_batch_alone() -> None:
    def act(number: int) -> str | HootError:
        return InvalidRequest("not this one") if number == 1 else "store"

    with ScriptedHost(act) as host, publisher(host, Limits(linger=0.001, batch_messages=3)) as under_test:  # type: ignore[arg-type]
        found = under_test.put_many(numbered(9))
        with pytest.raises(InvalidRequest):
            under_test.flush()
        told = [_told(receipt.result) for receipt in found]
        assert told == [1, 2, 3, "invalid_request", "invalid_request", "invalid_request", 4, 5, 6]
        assert host.bodies == [b"0", b"1", b"2", b"6", b"7", b"8"]


def test_a_queue_s_own_put_many_waits_for_all() -> None:
    with ScriptedHost() as host:
        under_test = DirectPublisher(target(host))
        found = under_test.publish_plain(Plain(numbered(20_000)), SECONDS)
        assert [int(one.id) for one in found] == list(range(1, 20_001))
        assert host.bodies == numbered(20_000)
        assert len(host.sizes) == 3, "as few batches as the limits allow"
        under_test.close()


def test_threads_that_put_lists_at_once_get_the_ids_of_their_own_messages() -> None:
    with ScriptedHost() as host, publisher(host, Limits(linger=0.001, batch_messages=50)) as under_test:
        found: dict[bytes, int] = {}

        def story(name: int) -> None:
            for number in range(100):
                bodies = [b"%d/%d/%d" % (name, number, each) for each in range(17)]
                receipts = under_test.put_many(bodies)
                single = b"%d/%d" % (name, number)
                found[single] = int(under_test.put(single).id)
                found.update(zip(bodies, (int(receipt.id) for receipt in receipts), strict=True))

        interrupting(story, range(4), SECONDS * 3)
        assert len(host.bodies) == len(found) == 4 * 100 * 18
        assert all(host.bodies[number - 1] == body for body, number in found.items())


def test_tasks_that_wait_for_one_batch_each_get_their_own_id() -> None:
    async def story(host: ScriptedHost) -> None:
        found: dict[bytes, int] = {}
        asked: list[int] = []

        async def put(under_test: AsyncPublisher, body: bytes) -> None:
            receipt = await under_test.put(body)
            asked.append(1)
            found[body] = int((await receipt.result()).id)
            assert (await receipt.result(0)).id == found[body]

        async with AsyncPublisher(publisher(host, Limits(linger=0.05), hop=True)) as under_test:
            host.held.clear()
            async with trio.open_nursery() as nursery:
                for body in numbered(100):
                    nursery.start_soon(put, under_test, body)
                await trio.testing.wait_all_tasks_blocked()
                assert len(asked) == 100
                assert not found
                host.held.set()
        assert {host.bodies[number - 1]: number for number in found.values()} == found

    with ScriptedHost() as host:
        trio.run(story, host)


def test_a_task_waits_no_longer_than_it_says_and_one_that_is_cancelled_leaves_the_others_alone() -> None:
    async def story(host: ScriptedHost) -> None:
        async with AsyncPublisher(publisher(host, Limits(linger=0), hop=True)) as under_test:
            host.held.clear()
            receipt = await under_test.put(b"a")
            with trio.CancelScope() as scope:
                scope.cancel()
                await receipt.result()
            assert scope.cancelled_caught
            with pytest.raises(DeadlineExceeded):
                await receipt.result(0.01)
            host.held.set()
            assert (await receipt.result(SECONDS)).id == 1

    with ScriptedHost() as host:
        trio.run(story, host)


def test_a_put_in_a_loop_gives_other_tasks_a_turn_and_hears_of_a_cancellation() -> None:
    async def story(host: ScriptedHost) -> None:
        turns: list[int] = []

        async def other() -> None:
            while True:
                turns.append(1)
                await trio.lowlevel.checkpoint()

        async with AsyncPublisher(publisher(host, Limits(linger=0.001), hop=True)) as under_test:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other)
                for _ in range(PUTS_AT_ONCE * 5):
                    await under_test.put(b"x")
                nursery.cancel_scope.cancel()
            assert len(turns) >= 4
            with trio.CancelScope() as scope:
                scope.cancel()
                await under_test.put(b"never")
            assert scope.cancelled_caught
        assert host.bodies == [b"x"] * PUTS_AT_ONCE * 5

    with ScriptedHost() as host:
        trio.run(story, host)


def _told(result: Callable[[], PublishedMessage]) -> int | str:
    try:
        return int(result().id)
    except HootError as error:
        return error.code
