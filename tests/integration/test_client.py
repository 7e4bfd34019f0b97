"""The client against a real region host in its own process and a real ZooKeeper: publish, scan, administer."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio

from delivery import Client, MessageId, NewMessage, Queue, connect
from delivery.client import aio
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import (
    Closed,
    HootError,
    InvalidRequest,
    MessageTooLarge,
    MetadataUnavailable,
    NoHost,
    QueueExists,
    ScannerClosed,
    UnknownPartition,
    UnknownQueue,
    UnknownSubscription,
)
from delivery.local import HostProcess
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import Checkpoint, SubscriptionRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings, partition_of

pytestmark = pytest.mark.integration
SECONDS = 30.0


@pytest.fixture(scope="module")
def address(zookeeper: EmbeddedZooKeeper) -> str:
    return f"{zookeeper.address}/client-{secrets.token_hex(6)}"


@pytest.fixture(scope="module")
def host(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    process = HostProcess(address, tmp_path_factory.mktemp("host") / "data", "--session-timeout", "2s")
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def client(address: str, host: HostProcess) -> Iterator[Client]:
    with connect(address) as connected:
        yield connected


@pytest.fixture
def queue(client: Client) -> Iterator[Queue]:
    """Two partitions."""
    made = client.create_queue(f"orders-{secrets.token_hex(4)}", partitions=2, body_bytes_max=2000)
    yield made
    if made.name in client.queues():
        client.delete_queue(made.name)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# -- publishing -----------------------------------------------------------------------------------------------------


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

    def gone() -> bool:
        try:
            queue.put(b"y", partition=0, timeout=5)
        except HootError as error:
            assert isinstance(error, UnknownQueue)
            return True
        return False

    eventually(gone)


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


# -- scanning -------------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(queue: Queue) -> list[tuple[MessageId, bytes]]:
    """30 messages in two partitions, some with a topic, in the order in which they were stored."""
    stored = []
    for number in range(30):
        one = queue.put(b"%d" % number, partition=number % 2, topic="three" if number % 3 == 0 else "")
        stored.append((one.id, b"%d" % number))
    return stored


def bodies(messages: object) -> list[bytes]:
    return [message.body for message in messages]  # type: ignore[attr-defined]


def test_a_queue_scanner_merges_all_partitions_by_id(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    found = [(message.id, message.body) for message in queue.scanner()]
    assert sorted(found) == sorted(filled)
    assert [one for one, _ in found] == sorted(one for one, _ in found)


def test_scanners_of_partitions(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    assert bodies(queue.partition_scanner(1)) == [body for _, body in filled[1::2]]
    assert bodies(queue.combined_scanner([0])) == [body for _, body in filled[::2]]
    assert sorted(bodies(queue.combined_scanner([1, 0, 1]))) == sorted(body for _, body in filled)
    with pytest.raises(UnknownPartition):
        queue.partition_scanner(2)
    with pytest.raises(InvalidRequest):
        queue.combined_scanner([])


def test_start_and_stop_are_ids_times_or_ends(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    mine = filled[::2]
    first, last = mine[3][0], mine[9][0]
    assert bodies(queue.partition_scanner(0, start=first, stop=last)) == [body for _, body in mine[3:9]]
    assert bodies(queue.partition_scanner(0, start=int(first))) == [body for _, body in mine[3:]]
    assert bodies(queue.partition_scanner(0, start=first.time)) == [
        body for one, body in mine if one.timestamp_ms >= first.timestamp_ms
    ]
    assert bodies(queue.partition_scanner(0, stop="latest")) == [body for _, body in mine]
    assert bodies(queue.partition_scanner(0, start="latest")) == []
    assert bodies(queue.partition_scanner(0, start=last, stop=first)) == []


def test_a_start_in_the_future_is_refused(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    for start in (datetime.now(UTC) + timedelta(hours=1), MessageId.of(2**43), 2**62 - 1):
        with pytest.raises(InvalidRequest, match="future"):
            queue.partition_scanner(0, start=start)
    for nonsense in ("soon", -1, 2**63, True, None):
        with pytest.raises(InvalidRequest, match="no place"):
            queue.partition_scanner(0, start=nonsense)


def test_topics_choose(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    assert sorted(bodies(queue.scanner(topics=["three"]))) == sorted(b"%d" % n for n in range(0, 30, 3))
    assert bodies(queue.scanner(topics=["none"])) == []


def test_the_end_is_not_for_ever(queue: Queue) -> None:
    scanner = queue.scanner()
    assert scanner.next() is None
    queue.put(b"later")
    assert bodies([scanner.next()]) == [b"later"]
    assert scanner.next() is None


def test_lists_have_the_size_asked_for(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    with queue.partition_scanner(0) as scanner:
        assert bodies(scanner.get_list(4)) == [body for _, body in filled[::2]][:4]
        assert len(scanner.next_batch(100)) == 11
        assert scanner.next_batch(100) == []
        for count in (0, -1, 10**6):
            with pytest.raises(InvalidRequest):
                scanner.next_batch(count)


@pytest.mark.parametrize("kind", ["partition", "queue"])
def test_closing_twice_is_fine_and_next_after_it_is_an_error(queue: Queue, kind: str) -> None:
    scanner = queue.partition_scanner(0) if kind == "partition" else queue.scanner()
    scanner.close()
    scanner.close()
    with pytest.raises(ScannerClosed):
        scanner.next()
    with pytest.raises(ScannerClosed):
        scanner.next_batch(1)


@pytest.mark.parametrize("kind", ["partition", "queue"])
def test_following_waits_for_what_comes(queue: Queue, kind: str) -> None:
    options = {"start": "latest", "follow": True}
    scanner = queue.partition_scanner(0, **options) if kind == "partition" else queue.scanner(**options)
    assert scanner.next(timeout=0.05) is None
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.extend(bodies([scanner.next(SECONDS) for _ in range(2)])))
    reader.start()
    queue.put(b"one", partition=0)
    queue.put(b"two", partition=0)
    reader.join(SECONDS)
    assert found == [b"one", b"two"]
    assert scanner.next(timeout=0.05) is None
    scanner.close()


def test_closing_ends_a_scanner_that_waits(queue: Queue) -> None:
    scanner, ended = queue.partition_scanner(0, follow=True), threading.Event()

    def wait() -> None:
        with pytest.raises(ScannerClosed):
            scanner.next()
        ended.set()

    threading.Thread(target=wait).start()
    scanner.close()
    assert ended.wait(SECONDS)


def test_a_following_scanner_that_has_its_stop_ends(queue: Queue, filled: list[tuple[MessageId, bytes]]) -> None:
    stop = filled[4][0]
    assert bodies(queue.partition_scanner(0, stop=stop, follow=True)) == [body for _, body in filled[:4:2]]


def test_large_queues_are_read_whole(queue: Queue) -> None:
    sent = [os.urandom(200) for _ in range(20_000)]
    queue.put_many(sent)
    assert sorted(bodies(queue.scanner())) == sorted(sent)


# -- administration -------------------------------------------------------------------------------------------------


def test_queues_are_made_changed_listed_and_deleted(client: Client) -> None:
    made = client.create_queue("admin-a", QueueSettings(partitions=3), ttl_seconds=60)
    assert (made.partitions, made.settings.ttl_seconds) == (3, 60)
    assert client.queue("admin-a") is made
    with pytest.raises(QueueExists):
        client.create_queue("admin-a")
    record = client.update_queue("admin-a", ttl_seconds=None, durability="os")
    assert (record.settings.partitions, record.settings.ttl_seconds, record.settings.durability) == (3, None, "os")
    assert client.queue("admin-a").settings.durability == "os"
    assert "admin-a" in client.queues()
    assert client.queue_record("admin-a") in client.queue_records()
    with pytest.raises(InvalidRequest, match="partitions"):
        client.update_queue("admin-a", partitions=4)
    with pytest.raises(InvalidRequest, match="no setting colour"):
        client.update_queue("admin-a", colour="red")
    with pytest.raises(InvalidRequest):
        client.update_queue("admin-a", ttl_seconds="soon")
    client.delete_queue("admin-a")
    with pytest.raises(UnknownQueue):
        client.delete_queue("admin-a")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "%2e%2e", "a\r\nb", "a\0b", "x" * 250, "x" * 10_000, "ü"])
def test_names_that_cannot_be_are_refused(client: Client, name: str) -> None:
    for call in (client.create_queue, client.queue, client.delete_queue, client.subscriptions):
        with pytest.raises(InvalidRequest, match="queue name"):
            call(name)


def test_an_unknown_queue_comes_with_near_names(client: Client, queue: Queue) -> None:
    with pytest.raises(UnknownQueue, match=queue.name):
        client.queue(queue.name[:-1])


def test_queue_info_tells_what_each_partition_holds(client: Client, queue: Queue) -> None:
    stored = queue.put_many([NewMessage(b"x", partition=1)] * 5)
    info = client.queue_info(queue.name)
    assert info.record == queue.record
    empty, full = info.partitions
    assert (empty.messages, empty.last) == (0, 0)
    assert (full.messages, full.first, full.last) == (5, stored[0].id, stored[-1].id)
    assert full.bytes > 0
    assert full.epoch >= 1
    [live] = client.hosts()
    assert full.host == f"{live.address}:{live.port}"
    assert queue.bounds(1).last == stored[-1].id
    assert queue.count(1, stored[1].id) == 3


def test_a_subscription_is_shown_with_position_end_and_lag(address: str, client: Client, queue: Queue) -> None:
    stored = queue.put_many([NewMessage(b"x", partition=0)] * 10)
    record = SubscriptionRecord(
        name="audit", queue=queue.name, generation=queue.record.generation, created_ms=1, starts={0: 0, 1: 0},
        all_partitions=True, topics=(),
    )  # fmt: skip
    with ZooKeeperClient(address) as session:
        catalog = Catalog(session)
        catalog.put_subscription(record, create=True)
        session.create(
            f"/hoot/queues/{queue.name}/subscriptions/audit/00000", b'{"id": %d, "epoch": 1}' % stored[3].id
        )
        assert catalog.checkpoints(queue.name, "audit") == {0: Checkpoint(stored[3].id, 1)}
    assert client.subscriptions(queue.name) == ["audit"]
    info = client.subscription_info(queue.name, "audit")
    zero, one = info.partitions
    assert (zero.position, zero.end, zero.lag) == (stored[3].id, stored[-1].id, 6)
    assert zero.lag_seconds is not None
    assert 0 < zero.lag_seconds < 60
    assert (one.position, one.lag, one.lag_seconds) == (0, 0, 0.0)
    assert (info.lag, info.lag_seconds, info.listener) == (6, zero.lag_seconds, None)
    client.delete_subscription(queue.name, "audit")
    with pytest.raises(UnknownSubscription):
        client.subscription_info(queue.name, "audit")
    with pytest.raises(UnknownSubscription):
        client.delete_subscription(queue.name, "audit")
    with pytest.raises(UnknownQueue):
        client.subscription_info("nowhere", "audit")


# -- connecting -----------------------------------------------------------------------------------------------------


def test_a_wrong_zookeeper_is_told_within_the_deadline() -> None:
    begun = time.monotonic()
    with pytest.raises(MetadataUnavailable, match="127.0.0.1:1"):
        connect("127.0.0.1:1", deadline=0.5)
    assert time.monotonic() - begun < 10


def test_without_a_host_put_and_scan_end_with_an_error(zk: ZooKeeperClient, zookeeper_hosts: str) -> None:
    Catalog(zk).ensure_layout()
    with connect(zookeeper_hosts) as lonely:
        queue = lonely.create_queue("orders")
        with pytest.raises(NoHost):
            queue.put(b"x", timeout=0.5)
        with pytest.raises(NoHost):
            queue.partition_scanner(0, timeout=0.5).next()


def test_a_closed_client_refuses_everything(address: str, host: HostProcess) -> None:
    closed = connect(address)
    queue = closed.create_queue(f"closed-{secrets.token_hex(4)}")
    publisher = queue.publisher(linger_ms=1000)
    receipt = publisher.put(b"x")
    closed.close()
    closed.close()
    assert receipt.result(0).id, "closing flushed it"
    for call in (lambda: queue.put(b"x"), lambda: publisher.put(b"x"), closed.queues, queue.publisher):
        with pytest.raises(Closed):
            call()
    with connect(address) as again:
        again.delete_queue(queue.name)


def test_importing_delivery_loads_neither_zookeeper_nor_trio() -> None:
    program = "import sys, delivery, delivery.errors; delivery.MessageId; print({'kazoo', 'trio', 'thriftpy2'} & set(sys.modules))"
    root = Path(__file__).resolve().parents[2]
    found = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


# -- the trio face --------------------------------------------------------------------------------------------------


def test_the_trio_face_does_the_same(address: str, host: HostProcess) -> None:
    name = f"trio-{secrets.token_hex(4)}"

    async def story() -> None:
        with trio.fail_after(SECONDS):
            async with await aio.connect(address) as client:
                queue = await client.create_queue(name, partitions=2)
                stored = await queue.put(b"one", key=b"k")
                async with await queue.publisher(linger_ms=1) as publisher:
                    receipts = [await publisher.put(body) for body in numbered(2000)]
                    results = [await receipt.result() for receipt in receipts]
                assert len({(one.partition, one.id) for one in results}) == 2000
                await queue.put_many([b"last"])
                async with await queue.scanner() as scanner:
                    found = [message.body async for message in scanner]
                assert sorted(found) == sorted([b"one", b"last", *numbered(2000)])
                assert (await queue.bounds(stored.partition)).messages > 0
                with pytest.raises(ScannerClosed):
                    await scanner.next()
                async with await queue.partition_scanner(0, start="latest", follow=True) as scanner:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(lambda: queue.put(b"new", partition=0))
                        message = await scanner.next()
                    assert message is not None
                    assert message.body == b"new"
                    with trio.move_on_after(0.1) as scope:
                        await scanner.next()
                    assert scope.cancelled_caught
                assert name in await client.queues()
                assert (await client.queue_info(name)).record.settings.partitions == 2
                await client.delete_queue(name)

    trio.run(story)


def eventually(condition: Callable[[], bool]) -> None:
    deadline, never = time.monotonic() + SECONDS, threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        never.wait(0.05)
