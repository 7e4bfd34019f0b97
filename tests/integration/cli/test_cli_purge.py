"""`hoot queue purge`: what was deleted while no host ran goes from the disk, and nothing else ever does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery import connect
from delivery.local import HostProcess
from delivery.metastore.catalog import open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from tests.integration.cli.running import Hoot
from tests.integration.metastore import corrupt

pytestmark = pytest.mark.integration


class Folder:
    """A data folder whose host is stopped, and its ZooKeeper: `kept` is there, `gone` and an older `again` are not."""

    def __init__(self, zookeeper: str, data: Path) -> None:
        self.zookeeper, self.data = zookeeper, data
        self.hoot = Hoot(zookeeper)
        self.host = HostProcess(zookeeper, data)
        self.host.start()
        with connect(zookeeper) as client:
            for name in ("kept", "gone", "again"):
                client.create_queue(name).put(name.encode())
            self.host.stop()
            for name in ("gone", "again"):
                client.delete_queue(name)
            client.create_queue("again")
        self.full = self.queues()

    def queues(self) -> list[str]:
        """Whose data is there, by name."""
        return sorted(place.name.partition("~")[0] for place in (self.data / "queues").iterdir())

    def purge(self, *arguments: str) -> list[str]:
        found = self.hoot.json("queue", "purge", "--data", str(self.data), *arguments)
        return [one["queue"] for one in found]

    def refused(self, *arguments: str, at: str | None = None, status: int = 1) -> str:
        """The code of a purge's error; nothing was deleted."""
        hoot = Hoot(at or self.zookeeper)
        told = hoot.refused("queue", "purge", "--data", str(self.data), "--yes", *arguments, status=status)
        assert self.queues() == self.full
        return str(told["error"])

    def warned(self) -> bool:
        """Start the host, and stop it: whether it told of data that is left."""
        said = self.data.parent / f"{self.data.name}.log"
        before = len(said.read_text())
        self.host.start()
        self.host.stop()
        return "`hoot queue purge`" in said.read_text()[before:]


@pytest.fixture
def folder(zookeeper_hosts: str, tmp_path: Path) -> Iterator[Folder]:
    found = Folder(zookeeper_hosts, tmp_path / "data")
    yield found
    found.host.kill()


def test_what_was_deleted_while_no_host_ran_is_told_shown_and_deleted(folder: Folder) -> None:
    assert folder.warned()
    assert folder.full == ["again", "gone", "kept"]
    folder.host.start()  # hosts may run
    assert folder.purge("--dry-run") == ["again", "gone"]
    listed = folder.hoot("queue", "purge", "--data", str(folder.data), "--dry-run").stdout
    assert "gone" in listed
    assert "LAST WRITTEN" in listed
    assert folder.queues() == folder.full
    [one] = folder.hoot.json("queue", "purge", "gone", "--data", str(folder.data), "--yes")
    assert (one["queue"], one["deleted"]) == ("gone", True)
    assert one["bytes"] > 0
    assert folder.queues() == ["again", "kept"]
    with connect(folder.zookeeper) as client:
        client.queue("again").put(b"new")
        assert folder.purge("--yes") == ["again"]
        for name, body in (("kept", b"kept"), ("again", b"new")):
            assert [message.body for message in client.queue(name).scanner()] == [body]
    assert folder.queues() == ["again", "kept"]
    assert folder.purge("--yes") == []
    folder.host.stop()
    assert not folder.warned()


def test_the_wrong_zookeeper_deletes_nothing(folder: Folder, zookeeper_hosts: str) -> None:
    elsewhere = f"{zookeeper_hosts}-other"
    assert folder.refused(at=elsewhere) == folder.refused("--wiped", at=elsewhere) == "metadata_unavailable"
    with ZooKeeperClient(elsewhere) as session:
        open_catalog(session).ensure_layout()
        assert folder.refused(at=elsewhere) == "foreign_data"
        for name in ("kept", "gone", "again"):
            open_catalog(session).create_queue(name, QueueSettings())
        assert folder.refused(at=elsewhere) == "foreign_data", "a queue of the same name is another one"


def test_the_data_of_a_queue_whose_record_cannot_be_read_stays(folder: Folder, zk: ZooKeeperClient) -> None:
    corrupt(zk, "queues", "again", b"??")
    assert folder.purge("--yes") == ["gone"]
    corrupt(zk, "queues", "kept", b"??")
    assert folder.purge("--yes", "--wiped") == []
    assert folder.queues() == ["again", "kept"]


def test_wiped_metadata_has_to_be_told(folder: Folder) -> None:
    folder.hoot("metastore", "format", "--yes")
    assert folder.refused("--wiped") == "metadata_unavailable"
    folder.host.start()
    assert folder.refused() == "foreign_data"
    assert folder.purge("--wiped", "--yes") == folder.full
    assert folder.queues() == []


def test_what_is_not_left_over_cannot_be_named_and_no_folder_is_made(folder: Folder, tmp_path: Path) -> None:
    assert folder.refused("kept", status=2) == "invalid_request"
    folder.hoot.refused("queue", "purge", "--data", str(folder.data), status=2)  # nobody to ask
    told = folder.hoot.refused("queue", "purge", "--data", str(tmp_path / "none"), "--yes")
    assert told["error"] == "data_folder"
    assert not (tmp_path / "none").exists()
