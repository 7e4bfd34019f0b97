"""Publishers at their limits: full buffers, bad messages, closing, callbacks."""

from __future__ import annotations

import threading
from time import monotonic

import pytest

from delivery.client.accumulator import Limits
from delivery.client.direct import DirectPublisher
from delivery.client.outgoing import NewMessage
from delivery.client.publisher import Publisher, Receipt
from delivery.errors import (
    Closed,
    HootError,
    InvalidRequest,
    MessageTooLarge,
    QueueFull,
    Throttled,
    UnknownOutcome,
    UnknownPartition,
)
from tests.scripted_host import ScriptedHost, target

SECONDS = 20.0
SMALL = Limits(linger=0.001, batch_messages=3)


def publisher(*hosts: ScriptedHost, limits: Limits = SMALL, timeout: float = SECONDS, in_flight: int = 4) -> Publisher:
    return Publisher(target(*hosts), limits, timeout=timeout, in_flight=in_flight)


def test_put_waits_while_the_buffer_is_full() -> None:
    with ScriptedHost() as host:
        host.held.clear()
        with publisher(host, limits=Limits(batch_messages=10, buffer_bytes=2000)) as under_test:
            put_all = threading.Thread(target=lambda: [under_test.put(bytes(100)) for _ in range(100)])
            put_all.start()
            put_all.join(0.3)
            assert put_all.is_alive()
            assert not under_test.has_room()
            host.held.set()
            put_all.join(SECONDS)
            assert not put_all.is_alive()
        assert len(host.bodies) == 100


def test_a_buffer_that_stays_full_is_an_error() -> None:
    with ScriptedHost(lambda number: "ignore") as host:
        under_test = publisher(host, limits=Limits(batch_messages=1, buffer_bytes=200), timeout=0.5)
        with pytest.raises(Throttled):
            under_test.put_many([bytes(90)] * 50)
        with pytest.raises(HootError):
            under_test.close()


def test_a_full_queue_is_waited_for_and_told_when_there_was_no_room_in_time() -> None:
    full = QueueFull("partition orders/0 is full")
    with ScriptedHost(lambda number: full if number < 4 else "store") as host, publisher(host) as under_test:
        receipts = under_test.put_many([b"a", b"b"])
        assert [receipt.result(SECONDS).partition for receipt in receipts] == [0, 0]
        assert host.published > 4
    with ScriptedHost(lambda number: full) as host:
        under_test = publisher(host, timeout=2)
        receipt = under_test.put(b"c")
        with pytest.raises(QueueFull, match="orders/0 is full"):
            receipt.result(SECONDS)
        with pytest.raises(QueueFull):
            under_test.close()
    assert host.bodies == []


def leave(under_test: Publisher, kind: type[BaseException]) -> None:
    with under_test:
        raise kind


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_who_is_interrupted_does_not_wait_for_a_host_that_does_not_answer(kind: type[BaseException]) -> None:
    with ScriptedHost(lambda number: "ignore") as host:
        begun, under_test = monotonic(), publisher(host, timeout=SECONDS)
        receipt = under_test.put(b"x")
        host.received.wait(SECONDS)
        with pytest.raises(kind):
            leave(under_test, kind)
        assert monotonic() - begun < SECONDS / 2
        with pytest.raises(UnknownOutcome):
            receipt.result(0)


def test_what_was_put_before_an_exception_or_an_interrupt_is_stored() -> None:
    for kind in (KeyError, KeyboardInterrupt):
        with ScriptedHost() as host:
            under_test = publisher(host)
            under_test.put(b"x")
            with pytest.raises(kind):
                leave(under_test, kind)
            assert host.bodies == [b"x"]


def test_bad_messages_are_refused_before_anything_is_sent() -> None:
    with ScriptedHost() as host, publisher(host) as under_test:
        with pytest.raises(TypeError, match=r"encode it first"):
            under_test.put("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="key"):
            under_test.put(b"", key="text")  # type: ignore[arg-type]
        with pytest.raises(MessageTooLarge):
            under_test.put(bytes((1 << 20) + 1))
        with pytest.raises(MessageTooLarge):
            under_test.put(b"", key=bytes(40_000))
        with pytest.raises(MessageTooLarge):
            under_test.put(b"", headers={"a": bytes(70_000)})
        with pytest.raises(InvalidRequest):
            under_test.put(b"", topic="a topic")
        with pytest.raises(UnknownPartition):
            under_test.put(b"", partition=1)
        with pytest.raises(UnknownPartition):
            under_test.put_many([b"good", NewMessage(b"bad", partition=7)])
    assert host.published == 0


def test_keys_topics_and_headers_travel() -> None:
    with ScriptedHost() as host, publisher(host) as under_test:
        under_test.put(bytearray(b"a"), key=memoryview(b"k"), topic="t", headers={"h": b"v"})
        under_test.put(b"b")
    assert host.bodies == [b"a", b"b"]


def test_after_close_put_is_refused_and_closing_twice_is_fine() -> None:
    with ScriptedHost() as host:
        under_test = publisher(host)
        under_test.put(b"x")
        under_test.close()
        under_test.close()
        under_test.flush()
        assert host.bodies == [b"x"]
        with pytest.raises(Closed):
            under_test.put(b"y")


def test_closing_the_direct_publisher_ends_a_put_under_way() -> None:
    with ScriptedHost(lambda number: "ignore") as host:
        under_test = DirectPublisher(target(host))
        ended: list[HootError] = []

        def wait() -> None:
            try:
                under_test.publish([((b"x", None, "", b""), 1, None)], SECONDS)
            except HootError as error:
                ended.append(error)

        waiting = [threading.Thread(target=wait) for _ in range(3)]
        for one in waiting:
            one.start()
        deadline = threading.Event()
        while not host.published:
            deadline.wait(0.01)
        under_test.close()
        for one in waiting:
            one.join(SECONDS)
        assert len(ended) == 3
        assert all(isinstance(error, UnknownOutcome | Closed) for error in ended)


def test_callbacks_are_called_once_the_outcome_is_known_and_may_raise() -> None:
    with ScriptedHost() as host, publisher(host) as under_test:
        told: list[Receipt] = []

        def raising(receipt: Receipt) -> None:
            told.append(receipt)
            raise ZeroDivisionError

        receipt = under_test.put(b"x")
        receipt.add_done_callback(raising)
        receipt.result(SECONDS)
        under_test.put(b"y").result(SECONDS)
        receipt.add_done_callback(told.append)
        assert told == [receipt, receipt]


@pytest.mark.parametrize(
    "limits",
    [Limits(linger=-1), Limits(batch_bytes=0), Limits(batch_messages=10**6), Limits(buffer_bytes=0)],
    ids=lambda limits: str(limits)[:40],
)
def test_settings_out_of_bounds_are_refused(limits: Limits) -> None:
    with pytest.raises(InvalidRequest, match="must be"):
        publisher(limits=limits)
    with pytest.raises(InvalidRequest, match="in_flight"):
        publisher(in_flight=17)
