"""A host that allows listeners in some networks only: who attaches from elsewhere is told, and nothing is written."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery import Client
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import ListenerRefused
from delivery.metastore.catalog import open_catalog
from delivery.metastore.records import ListenerRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.rpc.pool import Pool
from delivery.rpc.protocol import load_idl
from subscriber import Message, Subscriber
from tests.integration.embedded import eventually
from tests.integration.engine import Engine, hosted
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine")


@pytest.fixture(scope="module")
def running(zookeeper: EmbeddedZooKeeper, folder: Path) -> Iterator[Engine]:
    with hosted(zookeeper, folder, "--listener-networks", "127.0.0.9/32,10.0.0.0/8") as started:
        yield started


def ignore(message: Message) -> None: ...


def test_a_subscriber_elsewhere_is_refused_before_anything_is_written(running: Engine, client: Client) -> None:
    client.create_queue("refused")
    subscriber = Subscriber("mail", zookeeper=running.address)
    subscriber.subscribe("refused", start="earliest", listener=ignore)
    with pytest.raises(ListenerRefused, match=r"no listener at 127.0.0.1: it is outside of 127.0.0.9/32, 10.0.0.0/8"):
        subscriber.start()
    assert client.subscriptions("refused") == []


def test_a_subscriber_in_an_allowed_network_gets_its_messages(running: Engine, client: Client) -> None:
    client.create_queue("allowed").put(b"x")
    got: list[bytes] = []
    subscriber = Subscriber("mail", zookeeper=running.address, host="127.0.0.9")
    subscriber.subscribe("allowed", start="earliest", listener=lambda message: got.append(message.body))
    with subscriber:
        eventually(lambda: got == [b"x"], "the message comes")


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "localhost"])
def test_a_listener_of_the_thrift_calls_is_refused_too(client: Client, address: str) -> None:
    if "foreign" not in client.queues():
        client.create_queue("foreign")
        client.create_subscription("foreign", "mail")
    listener = load_idl("delivery").ListenerAddress(address=address, port=9, token="t" * 16)
    [host] = client.hosts()
    with contextlib.closing(Pool()) as pool, pytest.raises(ListenerRefused):
        pool.call(host.address, host.port, "attachListener", "foreign", "mail", listener, 30_000, False)
    assert client.subscription_info("foreign", "mail").listener is None


def test_a_listener_that_registers_by_itself_is_never_connected_to(
    running: Engine, client: Client, folder: Path
) -> None:
    """Whoever writes to ZooKeeper past the checks gains nothing by it."""
    client.create_queue("past")
    client.create_subscription("past", "mail")
    with socket.create_server(("127.0.0.1", 0)) as server, ZooKeeperClient(running.address) as session:
        record = ListenerRecord(address="localhost", port=server.getsockname()[1], token="t" * 16)
        open_catalog(session).attach("past", "mail", record)
        eventually(lambda: "localhost, which is" in (folder / "host.log").read_text(), "the host says why not")
        assert "localhost, which is" in judged(client, "past", "mail", "listener_unreachable").verdict.text
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
