"""A store watches some ten thousand entries: a host that reads one again and again takes the room of one."""

from __future__ import annotations

import pytest
import trio
from msgspec.structs import replace

from delivery.cluster import queues
from delivery.cluster.queues import QueueTable
from delivery.dispatch.watch import SubscriptionWatch
from delivery.errors import UnknownQueue
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.records import subscription_key
from delivery.metastore.records import QueueRecord
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version
from delivery.metastore.tables.zookeeper import ZooKeeperMetaStore
from delivery.model import QueueSettings
from delivery.testing.znodes import MemorySession, Tree
from tests.hosting import eventually
from tests.integration.metastore import listener, subscription

OFTEN = 20


class Site:
    """A catalog with a queue `q`, and how many entries its store watches."""

    def __init__(self) -> None:
        self.zk = MemorySession(Tree())
        self.store = ZooKeeperMetaStore(self.zk, self.zk)
        self.catalog = Catalog(self.zk, self.store)
        self.catalog.ensure_layout()
        self.catalog.create_queue("q", QueueSettings())

    @property
    def watched(self) -> int:
        return len(self.store._shots._armed)


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_queue_that_is_asked_for_under_a_generation_that_it_has_not_is_watched_once_and_still_heard_of(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_GONE_SECONDS", 0.0)
    ended: list[QueueRecord] = []

    async def story() -> None:
        table = QueueTable(site.catalog, list)
        table.on_change(lambda before, after: ended.append(before) if after is None else None)
        async with trio.open_nursery() as nursery:
            await nursery.start(table.run)
            for _ in range(2):
                for _ in range(OFTEN):
                    with pytest.raises(UnknownQueue):
                        await table.get("q", "nobodys")
                assert site.watched == 1
                site.catalog.delete_queue("q")
                await eventually(lambda: table.names() == [])
                site.catalog.create_queue("q", QueueSettings())
            nursery.cancel_scope.cancel()

    trio.run(story)
    assert len(ended) == 2


def test_a_subscription_with_damaged_preferences_is_watched_once_and_read_when_they_are_mended(site: Site) -> None:
    site.catalog.create_subscription(replace(subscription(), generation=site.catalog.queue("q").generation))
    site.catalog.attach("q", "s", listener())
    table, key = site.store.create_scannable_table("subscriptions"), subscription_key("q", "s")
    sound = table.get(key).value
    table.put(key, Value({"preferences": b"{}"}), Version.ANY, whole=True)

    async def story() -> None:
        watch = SubscriptionWatch(site.zk, site.catalog)
        watch.begin()
        for _ in range(OFTEN):
            assert await watch.read(frozenset()) == {"q": {}}
            watch.hint("q")
        assert site.watched == 1
        await watch.read(frozenset())
        table.put(key, sound, Version.ANY, whole=True)
        with trio.fail_after(10):
            await watch.changed(60)
        assert list((await watch.read(frozenset()))["q"]) == ["s"]
        assert site.watched == 1

    trio.run(story)
