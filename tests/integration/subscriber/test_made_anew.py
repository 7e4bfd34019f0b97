"""A queue that is deleted and created again is another one from its first message on, however late a host hears."""

from __future__ import annotations

import pytest

from delivery import connect
from delivery.cluster.queues import QueueTable
from delivery.config import HostConfig
from delivery.errors import UnknownQueue
from subscriber import Message, Subscriber
from tests.integration.embedded import eventually
from tests.integration.hosts import RunningHost

pytestmark = pytest.mark.integration


def test_what_is_put_before_the_host_hears_of_the_new_queue_is_the_new_queue_s(
    zookeeper_hosts: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(QueueTable, "_changed", lambda *_: None)  # no watch ever tells this host of a change
    config = HostConfig(zookeeper=zookeeper_hosts, data=tmp_path_factory.mktemp("data"), grace_seconds=1.0)
    seen: list[bytes] = []

    def hear(message: Message) -> None:
        seen.append(message.body)

    with RunningHost(config), connect(zookeeper_hosts) as client, connect(zookeeper_hosts) as unaware:
        client.create_queue("orders").put(b"old")
        old = unaware.queue("orders")
        client.delete_queue("orders")
        new = client.create_queue("orders")
        new.put(b"new")
        with pytest.raises(UnknownQueue, match="another one of this name"):
            old.put(b"for the old one")
        with new.scanner() as scanner:
            assert [message.body for message in scanner] == [b"new"]
        subscriber = Subscriber("audit", zookeeper_hosts)
        subscriber.subscribe("orders", start="earliest", listener=hear)
        with subscriber:
            eventually(lambda: bool(seen), "it is delivered")
        assert seen == [b"new"]
