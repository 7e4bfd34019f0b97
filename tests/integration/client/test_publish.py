"""Publishing to a real region host in its own process."""

from __future__ import annotations

import os
import threading
import time

import pytest

from delivery import Client, MessageId, NewMessage, Queue, connect
from delivery.errors import Closed, MessageTooLarge, UnknownPartition, UnknownQueue
from delivery.local import HostProcess
from delivery.model import partition_of

pytestmark = pytest.mark.integration
SECONDS = 30.0


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_put_gives_id_partition_and_durability_and_the_message_can_be_read(queue: Queue) -> None:
    before = time.time()
    stored = queue.put(b"body", key=b"k", topic="t", headers={"h": b"v"})
    assert stored.partition == partition_of(b"k", 2)
    assert stored.durability == "fsync"
    with queue.partition_scanner(stored.partition) as scanner:
        message = scanner.next()
        assert scanner.next() is None
    assert message is not None
    assert (message.id, message.body, message.key, message.topic) == (stored.id, b"body", b"k", "t")
    assert (message.headers, message.queue) == ({"h": b"v"}, queue.name)
    assert before - 1 < message.publish_time < time.time() + 1


def test_put_many_keeps_the_order_of_each_partition(queue: Queue) -> None:
    messages = [NewMessage(body, key=b"%d" % (number % 5)) for number, body in enumerate(numbered(3000))]
    stored = queue.put_many(messages)
    assert len(stored) == 3000
    for partition in (0, 1):
        mine = [(one.id, m.body) for one, m in zip(stored, messages, strict=True) if one.partition == partition]
        assert mine == sorted(mine, key=lambda pair: pair[0])
        assert [(m.id, m.body) for m in queue.partition_scanner(partition)] == mine


def test_a_bad_message_among_many_changes_nothing(queue: Queue) -> None:
    with pytest.raises(MessageTooLarge):
        queue.put_many([b"good", bytes(2001)])
    with pytest.raises(UnknownPartition):
        queue.put_many([b"good", NewMessage(b"bad", partition=2)])
    with pytest.raises(TypeError):
        queue.put_many([b"good", "text"])  # type: ignore[list-item]
    assert queue.scanner().next() is None


def test_a_body_limit_raised_by_another_client_is_learned(address: str, queue: Queue) -> None:
    with connect(address) as other:
        other.update_queue(queue.name, body_bytes_max=3000)
    assert queue.put(bytes(3000)).id


def test_threads_publish_through_one_queue(queue: Queue) -> None:
    found: list[list[MessageId]] = []

    def work(number: int) -> None:
        found.append([queue.put(b"%d" % number, partition=0).id for _ in range(30)])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert all(ids == sorted(ids) for ids in found)
    assert len({one for ids in found for one in ids}) == 16 * 30


def test_messages_without_a_key_reach_every_partition(queue: Queue) -> None:
    with queue.publisher(batch_messages=5) as publisher:
        receipts = [publisher.put(b"x") for _ in range(500)]
    assert {receipt.result().partition for receipt in receipts} == {0, 1}


def test_a_killed_host_loses_nothing_that_was_acknowledged_and_stores_nothing_twice(
    host: HostProcess, queue: Queue
) -> None:
    bodies = numbered(4000)
    with queue.publisher(linger_ms=0, batch_messages=20) as publisher:
        receipts = [publisher.put(body, partition=0) for body in bodies[:2000]]
        receipts[500].result(SECONDS)
        host.kill()
        receipts += [publisher.put(body, partition=0) for body in bodies[2000:]]
        host.start()
        publisher.flush()
    ids = [receipt.id for receipt in receipts]
    assert ids == sorted(set(ids))
    assert [(message.id, message.body) for message in queue.partition_scanner(0)] == list(zip(ids, bodies, strict=True))
    assert queue.put(b"after", partition=0).id > ids[-1]


def test_a_publisher_of_a_deleted_queue_is_refused(client: Client, queue: Queue) -> None:
    queue.put(b"x")
    publisher = client.queue(queue.name).publisher()
    client.delete_queue(queue.name)
    with pytest.raises(Closed):
        publisher.put(b"y")
    with pytest.raises(Closed):
        queue.put(b"y")
    with pytest.raises(UnknownQueue):
        client.queue(queue.name)


def test_another_clients_queue_that_is_deleted_is_unknown_to_put(address: str, queue: Queue) -> None:
    queue.put(b"x", partition=0)
    with connect(address) as other:
        other.delete_queue(queue.name)

    deadline = time.monotonic() + SECONDS
    with pytest.raises(UnknownQueue):  # noqa: PT012 - the host learns of it within moments
        while time.monotonic() < deadline:
            queue.put(b"y", partition=0, timeout=5)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # that it has threads is the point
def test_a_program_that_forked_is_told_to_connect_again(queue: Queue) -> None:
    publisher = queue.publisher()
    publisher.put(b"x").result(SECONDS)
    child = os.fork()
    if child == 0:
        try:
            publisher.put(b"y", key=b"k")
        except Closed:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    publisher.close()
