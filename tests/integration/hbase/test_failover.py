"""The store on an HBase of two region servers and two gateways, which are killed while it appends."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import happybase
import pytest

from delivery.errors import StorageUnavailable
from delivery.hbase import Admin, Tables
from delivery.model import QueueSettings
from delivery.storage.base import Append, MessageStore
from delivery.storage.hbase import HBaseStore
from tests.hbase.server import HBase
from tests.integration.embedded import eventually
from tests.stores import KEY, OTHER, batch, batches_of

pytestmark = [pytest.mark.hbase, pytest.mark.slow]
KEYS = (KEY, OTHER)
KEEP = QueueSettings(partitions=6)
SECONDS = 90.0


class Appending:
    """A thread that appends to two partitions, and opens them anew under a higher epoch when that fails."""

    def __init__(self, store: MessageStore) -> None:
        self.acknowledged: list[Append] = []
        self.errors: list[BaseException] = []
        self.epoch = 0
        self._store = store
        self._next_id = 1
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def more(self, count: int) -> None:
        """Return when so many more were acknowledged."""
        wanted = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= wanted or bool(self.errors), f"{count} more", SECONDS)
        assert not self.errors, self.errors

    def end(self) -> None:
        self._ending.set()
        self._thread.join(SECONDS)
        assert not self.errors, self.errors

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._open()
                while self._append() and not self._ending.is_set():
                    pass
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.errors.append(error)

    def _open(self) -> None:
        """Under the next epoch, as often as it takes."""
        while not self._ending.is_set():
            self.epoch += 1
            try:
                for key in KEYS:
                    self._store.open(key, self.epoch, KEEP)
            except StorageUnavailable:
                continue
            return

    def _append(self) -> bool:
        group = [batch(self._next_id, [b"a", b"b"], key=key, epoch=self.epoch) for key in KEYS]
        self._next_id += 2
        answers = self._store.append(group)
        self.acknowledged += [item for item, answer in zip(group, answers, strict=True) if answer is None]
        return not any(answers)


def regions(server: HBase) -> set[bytes]:
    """Where the regions of the queue's table begin."""
    host, port = server.gateways[0]
    with closing(happybase.Connection(host, port, transport="framed", protocol="binary")) as connection:
        return {region["start_key"] for region in connection.table(f"hoot.{KEY.generation}.{KEY.queue}").regions()}


def test_region_servers_and_gateways_killed_while_appending_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with HBase(tmp_path, region_servers=2, second=True) as server:
        assert server.second is not None
        admin = Admin([server.second], call_seconds=60)
        store = HBaseStore(Tables(server.gateways, call_seconds=60), admin=admin)
        with closing(store):
            appending = Appending(store)
            try:
                appending.more(100)
                assert regions(server) == {b"", *(b"\x00%c" % partition for partition in range(1, KEEP.partitions))}
                for killed, back in (("region-0", None), ("thrift-0", "region-0"), ("region-1", None)):
                    server.processes[killed].kill()
                    if back is not None:
                        server.processes[back].start()
                    appending.more(100)
            finally:
                appending.end()
        with closing(HBaseStore(Tables(server.gateways, call_seconds=60))) as later:
            for key in KEYS:
                later.open(key, appending.epoch + 1, KEEP)
                found = batches_of(later, key)
                acknowledged = [item.batch for item in appending.acknowledged if item.key == key]
                assert [one for one in found if one in set(acknowledged)] == acknowledged
                assert len(found) - len(acknowledged) <= appending.epoch
