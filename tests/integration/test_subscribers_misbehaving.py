"""Subscribers that hang, crawl, raise or are not who they seem: others go on, memory stays bounded, nothing is lost."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Self

import pytest

from delivery import Client, MessageId
from delivery.client import Limits
from delivery.metastore.catalog import open_catalog
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import ListenerRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.integration.embedded import eventually
from tests.integration.engine import Engine, RecordingSubscriber, by_partition, check_checkpoints, check_delivered
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration

MIB = 1 << 20


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> str:
    return f"q{abs(hash(request.node.name)) % 10**9}"


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


def test_a_subscriber_that_never_answers_keeps_its_position_and_others_get_everything(
    running: Engine, client: Client, queue_name: str, tmp_path: Path
) -> None:
    queue = client.create_queue(queue_name, partitions=1)
    hanging = RecordingSubscriber(running, queue_name, tmp_path, name="hanging")
    healthy = RecordingSubscriber(running, queue_name, tmp_path, name="healthy")
    hanging.start(hang_at=1)
    healthy.start()
    try:
        before = memory(running.host.pid)
        published = by_partition(queue.put_many([bytes(1000)] * 40_000))
        eventually(lambda: healthy.distinct() == 40_000, "everything at the healthy subscriber", 60)
        eventually(lambda: hanging.count() >= 1, "its first message")
        assert hanging.count() == 1
        check_checkpoints(running.address, queue_name, "hanging", published, hanging.ids())
        seen = judged(client, queue_name, "hanging", "handler_stuck").observation
        assert seen.callback is not None
        assert seen.callback.message == published[0][0]
        assert "NEVER.wait(3600)" in seen.callback.stack
        judged(client, queue_name, "healthy", "healthy", Limits())
        assert memory(running.host.pid) - before < 150 * MIB
    finally:
        hanging.kill()
        healthy.kill()


def test_a_listener_that_raises_gets_the_message_again_in_order_and_nothing_twice_that_it_handled(
    running: Engine, client: Client, queue_name: str, tmp_path: Path
) -> None:
    queue = client.create_queue(queue_name, partitions=2)
    subscriber = RecordingSubscriber(running, queue_name, tmp_path)
    subscriber.start(fail_every=30, retry=RetryPolicy(first_seconds=0.2))
    try:
        published = by_partition(queue.put_many([b"%d" % number for number in range(200)]))
        eventually(lambda: subscriber.distinct() == 200, "all of them", 60)
        assert check_delivered(published, subscriber.ids()) == 0
        assert judged(client, queue_name, "recorder", "idle").observation.failures == 0
    finally:
        subscriber.kill()


class Impostor:
    """A socket that takes what comes on a port, slowly or not at all, and remembers it."""

    def __init__(self, reply: bytes = b"", bytes_per_read: int = 4096, pause_seconds: float = 0.0) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._reply, self._bytes, self._pause = reply, bytes_per_read, pause_seconds
        self.received = bytearray()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._listening.shutdown(socket.SHUT_RDWR)  # a thread in accept is not woken by a close
        self._listening.close()
        self._thread.join(10)

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(30)
            while not self._stop.is_set():
                try:
                    data = connection.recv(self._bytes)
                except OSError:
                    return
                if not data:
                    return
                if not self.received and self._reply:
                    connection.sendall(self._reply)
                self.received += data
                self._stop.wait(self._pause)


def register(running: Engine, queue: str, name: str, port: int) -> ZooKeeperClient:
    """An attached listener at `port`, as a subscriber would register it; gone when the session is stopped."""
    from delivery.metastore.records import SubscriptionRecord

    session = ZooKeeperClient(running.address)
    session.start()
    catalog = open_catalog(session)
    record = catalog.queue(queue)
    catalog.create_subscription(
        SubscriptionRecord(
            name=name, queue=queue, generation=record.generation, created_ms=0, starts={0: 0}, all_partitions=True,
            topics=(),
        )
    )  # fmt: skip
    catalog.attach(queue, name, ListenerRecord(address="127.0.0.1", port=port, token="the-right-token"), replace=None)
    return session


def hello_reply(token: bytes) -> bytes:
    """The framed answer to the first call on a connection, `hello`, with sequence number 1."""
    body = b"\x80\x01\x00\x02\x00\x00\x00\x05hello\x00\x00\x00\x01\x0b\x00\x00" + len(token).to_bytes(4, "big") + token
    body += b"\x00"
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("reply", [b"", hello_reply(b"another-token"), b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_another_program_on_the_port_of_a_listener_gets_no_message(
    running: Engine, client: Client, queue_name: str, reply: bytes
) -> None:
    queue = client.create_queue(queue_name, partitions=1)
    secret = b"SECRET-" * 20
    queue.put(secret)
    with Impostor(reply) as impostor:
        session = register(running, queue_name, "victim", impostor.port)
        try:
            eventually(lambda: b"hello" in impostor.received, "the host says hello")
            queue.put(secret)
            eventually(lambda: impostor.received.count(b"hello") >= (2 if reply else 1), "it tries again", 40)
            judged(client, queue_name, "victim", "listener_unreachable")
            assert b"SECRET-" not in impostor.received
        finally:
            session.stop()


def test_a_listener_that_reads_a_kilobyte_per_second_costs_the_others_nothing(
    running: Engine, client: Client, queue_name: str, tmp_path: Path
) -> None:
    queue = client.create_queue(queue_name, partitions=1)
    healthy = RecordingSubscriber(running, queue_name, tmp_path, name="healthy")
    healthy.start()
    with Impostor(hello_reply(b"the-right-token"), bytes_per_read=1024, pause_seconds=1.0) as crawling:
        session = register(running, queue_name, "crawling", crawling.port)
        try:
            before = memory(running.host.pid)
            published = by_partition(queue.put_many([bytes(1000)] * 40_000))
            eventually(lambda: healthy.distinct() == 40_000, "everything at the healthy subscriber", 60)
            assert memory(running.host.pid) - before < 150 * MIB
            check_delivered(published, healthy.ids())
            judged(client, queue_name, "crawling", "listener_unreachable")
            with ZooKeeperClient(running.address) as zookeeper:
                assert not any(one.position for one in open_catalog(zookeeper).states(queue_name, "crawling").values())
        finally:
            session.stop()
            healthy.kill()


def test_a_subscription_goes_on_from_a_given_id_and_only_with_its_topics(
    running: Engine, client: Client, queue_name: str, tmp_path: Path
) -> None:
    from delivery import NewMessage

    queue = client.create_queue(queue_name, partitions=1)
    stored = queue.put_many([NewMessage(b"x", topic="JFK" if number % 3 else "LGA") for number in range(90)])
    subscriber = RecordingSubscriber(running, queue_name, tmp_path, topics=["LGA"])
    subscriber.start()
    try:
        expected = [int(one.id) for number, one in enumerate(stored) if number % 3 == 0]
        eventually(lambda: subscriber.count() == 30, "its thirty")
        assert subscriber.ids() == {0: expected}
        assert MessageId(expected[0]) == stored[0].id
    finally:
        subscriber.kill()
