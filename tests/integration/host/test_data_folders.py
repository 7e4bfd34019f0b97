"""A host that is started with another data folder: it says that it has nothing of the queues, and stores nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from delivery import connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import WrongStore
from delivery.local import HostProcess
from tests.integration.engine import hosted

pytestmark = pytest.mark.slow


def test_queues_stay_in_the_folder_in_which_they_began(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with hosted(zookeeper, tmp_path) as running, connect(running.address) as client:
        client.create_queue("orders")
        orders = client.queue("orders")
        first = orders.put(b"first")
        running.host.stop()
        other = HostProcess(running.address, tmp_path / "other", log=tmp_path / "other.log")
        other.start()
        try:
            with pytest.raises(WrongStore, match="hoot serve --data"):
                orders.put(b"lost", timeout=20)
            with pytest.raises(WrongStore), orders.scanner() as scanner:
                list(scanner)
            client.create_queue("later")
            client.queue("later").put(b"here")
        finally:
            other.stop()
        running.host.start()
        second = orders.put(b"second")
        with orders.scanner() as scanner:
            assert [(one.id, one.body) for one in scanner] == [(first.id, b"first"), (second.id, b"second")]
        with pytest.raises(WrongStore):
            client.queue("later").put(b"not here", timeout=20)
