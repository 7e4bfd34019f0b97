"""What the contract tests of the metadata managers share."""

from __future__ import annotations

from delivery.metastore.managers.changes import SaveState
from delivery.metastore.managers.records import OwnerInfo, PersistenceInfo, SealedRange, SubscriptionState
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.tables.versions import Version

OWNER = OwnerInfo("h1", 7, 1)
SEALED = PersistenceInfo((SealedRange(1, 10, 20), SealedRange(3, 21, 21)))


def preferences(name: str = "s", queue: str = "q", *, created_ms: int = 5, topic: str = "a") -> SubscriptionRecord:
    return SubscriptionRecord(
        name=name, queue=queue, generation="g", created_ms=created_ms,
        starts=dict.fromkeys(range(4), 100), all_partitions=True, topics=(topic,),
    )  # fmt: skip


def state(position: int, epoch: int = 1, created_ms: int = 5, *, moves: int = 0) -> SubscriptionState:
    return SubscriptionState(position, epoch, "g", created_ms, moves)


def save(position: int, version: Version, *, epoch: int = 1, partition: int = 0, name: str = "s") -> SaveState:
    return SaveState("q", name, partition, state(position, epoch), version)
