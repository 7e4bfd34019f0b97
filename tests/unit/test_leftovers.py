"""What a store holds of queues that are gone is told from all that may still be somebody's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from delivery.cluster.leftovers import sort_out
from delivery.errors import CorruptRecord, MetadataUnavailable
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers import layout
from delivery.metastore.records import QueueRecord
from delivery.metastore.tables.zookeeper import ZooKeeperMetaStore
from delivery.model import QueueSettings
from tests.znodes import FakeZNodes


def record(name: str, generation: str) -> QueueRecord:
    return QueueRecord(name, generation, 1, QueueSettings())


class Records(dict[str, QueueRecord | CorruptRecord]):
    def read_queues(self, names: Sequence[str]) -> list[QueueRecord | CorruptRecord | None]:
        return [self.get(name) for name in names]


def test_a_generation_without_a_record_is_left_over_and_a_damaged_record_keeps_its_data() -> None:
    records = Records(kept=record("kept", "a"), again=record("again", "new"), damaged=CorruptRecord("?"))
    stored = [("kept", "a"), ("gone", "b"), ("again", "old"), ("again", "new"), ("damaged", "c")]
    held = sort_out(stored, records)
    assert held.left == [("again", "old"), ("gone", "b")]
    assert sorted(one.name for one in held.known) == ["again", "kept"]
    assert held.related


def test_before_records_are_compared_a_write_makes_sure_that_they_are_not_stale() -> None:
    """A read may be answered by a ZooKeeper that lags behind: there a queue that was just created is missing."""
    zk = FakeZNodes()
    catalog = Catalog(zk, ZooKeeperMetaStore(zk, zk))
    with pytest.raises(MetadataUnavailable):
        catalog.catch_up()
    assert not zk.exists("/hoot"), "and nothing is made where nothing is"
    catalog.ensure_layout()
    before = zk.get(layout.PATH)
    assert before is not None
    catalog.catch_up()
    assert zk.get(layout.PATH) == (before[0], before[1] + 1)


def test_queues_of_the_same_names_prove_nothing() -> None:
    held = sort_out([("kept", "a"), ("gone", "b")], Records(kept=record("kept", "other")))
    assert held.left == [("gone", "b"), ("kept", "a")]
    assert not held.related
    assert not sort_out([], Records()).related
