"""Hostile bytes to the port of a real region host and to the listener of a real subscriber.

The connection ends where it must, nothing is stored, memory stays bounded, and the service goes on at once.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from thrift.Thrift import TApplicationException, TType

from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import HootError, OutOfSequence
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from delivery.rpc.blocking import BlockingConnection
from delivery.rpc.protocol import load_idl
from tests.integration import hostile
from tests.integration.apache import Client
from tests.integration.embedded import eventually
from tests.integration.engine import Engine, RecordingSubscriber, hosted
from tests.integration.hostile import GOOD, ROWS, Peer

pytestmark = pytest.mark.integration

MIB = 1 << 20
CONNECTIONS_MAX = 20
FRAME_SECONDS = 4.0
AT_ONCE_SECONDS = 3.5
"""Less than the time of a frame: what is wrong is seen when it is there, and not when the time is over."""
RSS_GROWTH_MAX, PEAK_GROWTH_MAX = 32 * MIB, 64 * MIB
"""Of a process over the whole corpus, and at its worst moment; a frame may have 16 MiB, and buffers double."""
QUEUE = "flights"
LISTENER = load_idl("subscriber")


class Site:
    """An engine with one queue, and a subscriber of it."""

    def __init__(self, running: Engine, catalog: Catalog, subscriber: RecordingSubscriber) -> None:
        self.catalog, self.subscriber = catalog, subscriber
        self.host_pid = running.host.pid
        (self.host,) = catalog.hosts()
        listener = catalog.listener(QUEUE, "recorder")
        assert listener is not None
        self.listener = listener

    def connect(self) -> BlockingConnection:
        return BlockingConnection("127.0.0.1", self.host.port)

    def publish(self) -> int:
        """Publish on a new connection; the last id."""
        with self.connect() as connection:
            reply = connection.call("publish", QUEUE, 0, GOOD, None, deadline=5.0)
        return int(reply.baseId) + len(ROWS) - 1

    def ask_listener(self) -> None:
        with Client(self.listener.port) as client:
            token = client.result("hello", (TType.STRING, QUEUE), (TType.STRING, "recorder"))
        assert token.decode() == self.listener.token

    def stored(self) -> int:
        with self.connect() as connection:
            messages: int = connection.call("partitionInfo", QUEUE, 0).messages
        return messages

    def check_arrived(self, last_id: int) -> None:
        """Everything up to this id reaches the subscriber's callbacks, each message once."""
        eventually(lambda: self.subscriber.ids().get(0, [0])[-1] == last_id, "the last message reaches its callback")
        ids = self.subscriber.ids()[0]
        assert len(ids) == len(set(ids)) == self.stored()


@pytest.fixture(scope="module")
def site(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("hostile")
    options = (f"--set=connections_max={CONNECTIONS_MAX}", f"--set=frame_seconds={FRAME_SECONDS}")
    with hosted(zookeeper, folder, *options) as running, ZooKeeperClient(running.address) as session:
        catalog = open_catalog(session)
        catalog.create_queue(QUEUE, QueueSettings(partitions=2, body_bytes_max=1000))
        subscriber = RecordingSubscriber(running, QUEUE, folder)
        subscriber.start()
        try:
            yield Site(running, catalog, subscriber)
        finally:
            subscriber.kill()


def check_memory(pid: int, run: Callable[[], object]) -> None:
    """Run something that must not cost a process memory for good, nor much while it lasts."""
    before = hostile.memory_bytes(pid)
    hostile.forget_peak(pid)
    run()
    peak, after = hostile.memory_bytes(pid, "VmHWM"), hostile.memory_bytes(pid)
    assert after - before < RSS_GROWTH_MAX, f"{(after - before) / MIB:.0f} MiB were kept"
    assert peak - before < PEAK_GROWTH_MAX, f"{(peak - before) / MIB:.0f} MiB were needed"


# -- frames ---------------------------------------------------------------------------------------------------------


def test_hostile_frames_end_their_connection_at_a_host_and_publishing_goes_on(site: Site) -> None:
    publish = hostile.proper("RegionHost", "publish", QUEUE, 0, GOOD, None)
    whole = list(hostile.truncated(publish))
    stored, last_id, sent = site.stored(), 0, 0

    def corpus() -> None:
        nonlocal last_id, sent
        for name, data in itertools.chain(hostile.frames("putMessages"), whole):
            with Peer(site.host.port, AT_ONCE_SECONDS) as peer:
                peer.send(data, more=not name.startswith(("a length cut", "a stream that")))
                assert peer.until_closed() == b"", f"{name} was answered"
            last_id, sent = site.publish(), sent + len(ROWS)

    check_memory(site.host_pid, corpus)
    assert site.stored() == stored + sent, "something hostile was stored"
    site.check_arrived(last_id)


def test_hostile_frames_end_their_connection_at_a_subscriber_and_delivery_goes_on(site: Site) -> None:
    process = site.subscriber.process
    assert process is not None
    hello = hostile.proper("Listener", "hello", QUEUE, "recorder")

    def corpus() -> None:
        for name, data in itertools.chain(hostile.frames("hello"), hostile.truncated(hello)):
            with Peer(site.listener.port) as peer:
                peer.send(data, more=not name.startswith(("a length cut", "a stream that")))
                assert peer.until_closed() == b"", f"{name} was answered"
            site.ask_listener()

    check_memory(process.pid, corpus)
    site.check_arrived(site.publish())


def test_random_streams_end_their_connection(site: Site) -> None:
    """Half of them are followed by the end of the stream, as of a program that gave up."""
    rng = random.Random(hostile.SEED)
    stored = site.stored()
    for n in range(60):
        data = rng.randbytes(rng.choice((1, 3, 4, 5, 100, 70_000)))
        if n % 2:
            data = struct.pack(">i", rng.randrange(-(2**31), 2**31)) + data
        for port in (site.host.port, site.listener.port):
            with Peer(port) as peer:
                peer.send(data, more=False)
                assert peer.until_closed() == b"", data[:20]
    assert site.stored() == stored
    site.check_arrived(site.publish())


@pytest.mark.parametrize("where", ["host", "listener"])
def test_an_unknown_method_is_refused_by_name_and_the_connection_stays(site: Site, where: str) -> None:
    port, known = (site.host.port, "getQueueLocations") if where == "host" else (site.listener.port, "hello")
    with Client(port) as client:
        for method in ("dropEverything", "", "__init__", "publish_args", "push " * 30):
            with pytest.raises(TApplicationException) as caught:
                client.call(method, {1: (TType.STRING, QUEUE)})
            assert caught.value.type == TApplicationException.UNKNOWN_METHOD
            assert client.result(known, (TType.STRING, QUEUE), (TType.STRING, "recorder"))


# -- slow and many --------------------------------------------------------------------------------------------------


def test_a_frame_that_comes_byte_by_byte_is_given_up_in_time_and_holds_nobody_up(site: Site) -> None:
    """Its first byte begins the time that it has, however regularly the others come."""
    frame = hostile.proper("RegionHost", "publish", QUEUE, 0, GOOD, None)
    stored = site.stored()
    with ExitStack() as others:
        silent = [others.enter_context(Peer(site.host.port)) for _ in range(10)]
        for peer in silent:
            peer.send(struct.pack(">i", 12 * MIB) + bytes(MIB // 4))
        with Peer(site.host.port) as slow:
            site.publish()
            seconds = hostile.elapsed_until_closed(slow, frame, pause_seconds=0.1)
        assert FRAME_SECONDS <= seconds < FRAME_SECONDS + 10
        for peer in silent:
            assert peer.until_closed() == b""
    assert site.stored() == stored + len(ROWS)
    site.check_arrived(site.publish())


def test_a_connection_over_the_cap_is_closed_and_the_others_are_served(site: Site) -> None:
    ask = hostile.proper("RegionHost", "getQueueLocations", QUEUE)

    def served(peer: Peer) -> bool:
        peer.send(ask)
        try:
            return bool(peer.socket.recv(65_536))
        except ConnectionError:
            return False

    def open_peers(count: int, stack: ExitStack) -> list[Peer]:
        """As many peers as asked for, all served: the host may not have noticed yet that earlier ones are gone."""
        peers: list[Peer] = []

        def one_more() -> bool:
            peer = stack.enter_context(Peer(site.host.port))
            if served(peer):
                peers.append(peer)
            else:
                peer.socket.close()
            return len(peers) == count

        eventually(one_more, f"{count} connections are served")
        return peers

    with ExitStack() as stack:
        peers = open_peers(CONNECTIONS_MAX, stack)
        for _ in range(3):
            with Peer(site.host.port) as one_too_many:
                assert not served(one_too_many)
        assert all(served(peer) for peer in peers)
        peers[0].socket.close()
        open_peers(1, stack)
    eventually(lambda: _publishes(site), "a place is free again")


def _publishes(site: Site) -> bool:
    try:
        return site.publish() > 0
    except HootError:
        return False


# -- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_that_lies_is_refused_with_its_reason_and_nothing_of_it_is_stored(site: Site) -> None:
    stored = site.stored()
    with site.connect() as connection:
        for name, batch, code in hostile.lying_batches():
            with pytest.raises(HootError) as caught:
                connection.call("publish", QUEUE, 0, batch, None)
            assert (caught.value.code, caught.value.retryable) == (code, False), f"{name}: {caught.value}"
            assert "\n" not in caught.value.message
        assert site.stored() == stored
        reply = connection.call("publish", QUEUE, 0, GOOD, None)
    assert site.stored() == stored + len(ROWS)
    site.check_arrived(reply.baseId + len(ROWS) - 1)


def test_batches_flipped_at_random_are_refused_and_the_connection_goes_on(site: Site) -> None:
    rng = random.Random(hostile.SEED)
    stored = site.stored()
    with site.connect() as connection:
        for _ in range(300):
            with pytest.raises(HootError) as caught:
                connection.call("publish", QUEUE, 0, hostile.flipped(rng.randrange(len(GOOD))), None)
            assert caught.value.code == "corrupt_record"
        assert connection.usable
    assert site.stored() == stored


def test_extreme_producer_numbers_are_a_producers_own_affair(site: Site) -> None:
    last = 2**63 - 1
    with site.connect() as connection:
        first = connection.call(
            "publish", QUEUE, 0, hostile.relabelled(GOOD, producer_id=last, producer_sequence=last), None
        )
        again = connection.call(
            "publish", QUEUE, 0, hostile.relabelled(GOOD, producer_id=last, producer_sequence=last), None
        )
        assert (again.baseId, again.duplicate) == (first.baseId, True)
        connection.call("publish", QUEUE, 0, hostile.relabelled(GOOD, producer_id=1, producer_sequence=0), None)
        with pytest.raises(OutOfSequence):
            connection.call("publish", QUEUE, 0, hostile.relabelled(GOOD, producer_id=1, producer_sequence=last), None)
    site.check_arrived(site.publish())


def test_a_push_that_is_not_the_owners_calls_nothing(site: Site) -> None:
    """Of an epoch that is over, of a partition or a name that is not subscribed to, or without its fields."""
    site.check_arrived(site.publish())
    before = site.subscriber.count()
    batch = hostile.relabelled(GOOD, base_id=2**61, epoch=1)

    def push(name: str, partition: int, epoch: int) -> dict[int, tuple[int, object]]:
        return {
            1: (TType.STRING, QUEUE), 2: (TType.STRING, name), 3: (TType.I32, partition), 4: (TType.I64, epoch),
            5: (TType.I64, 0), 6: (TType.I64, 2**61 - 1), 7: (TType.STRING, batch),
        }  # fmt: skip

    with Client(site.listener.port) as client:
        for fields, status in (
            (push("recorder", 0, 0), LISTENER.STALE),
            (push("recorder", 0, -(2**63)), LISTENER.STALE),
            (push("recorder", 7, 9), LISTENER.UNKNOWN),
            (push("recorder", -1, 9), LISTENER.UNKNOWN),
            (push("auditor", 0, 9), LISTENER.UNKNOWN),
        ):
            assert client.result("push", (TType.STRUCT, fields))[1] == status
        for missing in range(1, 8):
            fields = push("recorder", 0, 0)
            del fields[missing]
            if missing != 2:  # a name that is not there is another name
                with pytest.raises(TApplicationException, match="invalid_request"):
                    client.result("push", (TType.STRUCT, fields))
        with pytest.raises(TApplicationException, match="invalid_request"):
            client.result("push", None)
    assert site.subscriber.count() == before
    site.check_arrived(site.publish())
