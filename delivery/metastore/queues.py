"""Queues in ZooKeeper: a record, and folders for what belongs to the queue."""

from __future__ import annotations

import secrets
import time

import msgspec

from delivery.errors import BadVersion, CorruptRecord, InvalidRequest, MetadataUnavailable, QueueExists
from delivery.metastore import records
from delivery.metastore.access import ATTEMPTS, Access, crowded
from delivery.metastore.ops import Create, NodeExists, Op
from delivery.metastore.records import QueueRecord
from delivery.model import QueueSettings, check_name, check_settings


class Queues(Access):
    """Creating, changing and deleting queues."""

    def create_queue(self, name: str, settings: QueueSettings) -> QueueRecord:
        """A new queue, with all that belongs to it or not at all. Raises QueueExists and InvalidRequest."""
        path = records.queue_path(check_name("queue", name))
        record = QueueRecord(name, secrets.token_hex(8), time.time_ns() // 1_000_000, check_settings(settings))
        value = records.encode(record)
        folders = (records.partitions_path(name), records.subscriptions_path(name), records.listeners_path(name))
        ops: list[Op] = [Create(path, value), *(Create(folder) for folder in folders)]
        refused = self._apply(ops, path, value)
        if refused is None:
            return record
        if isinstance(refused.error, NodeExists):
            raise QueueExists(f"there is already a queue {name!r}")
        raise MetadataUnavailable("this ZooKeeper holds nothing of Hoot yet: start a region host with `hoot serve`")

    def queue(self, name: str) -> QueueRecord:
        """The queue. Raises UnknownQueue, with the names that come near, and CorruptRecord."""
        return self._versioned_queue(name)[0]

    def queues(self) -> list[str]:
        """The names of all queues, sorted."""
        return self._zk.children(records.QUEUES) or []

    def update_queue(self, name: str, settings: QueueSettings) -> QueueRecord:
        """Other settings for a queue. Raises UnknownQueue, and InvalidRequest when they change the partitions."""
        check_settings(settings)
        for _ in range(ATTEMPTS):
            record, version = self._versioned_queue(name)
            if settings.partitions != record.settings.partitions:
                raise InvalidRequest(
                    f"queue {name!r} keeps its {record.settings.partitions} partitions: with another number of them,"
                    " the messages of a key would no longer be in one partition"
                )
            changed = msgspec.structs.replace(record, settings=settings)
            try:
                self._zk.set(records.queue_path(name), records.encode(changed), version)
            except BadVersion:
                continue
            return changed
        raise crowded(f"queue {name!r}")

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its subscriptions, listeners and owners. Raises UnknownQueue.

        Its record goes last: when this breaks off, the queue is still listed, and deleting it again ends the work.
        """
        path = records.queue_path(check_name("queue", name))
        if not self._zk.exists(path):
            raise self._unknown_queue(name)
        for folder in (records.partitions_path(name), records.subscriptions_path(name), records.listeners_path(name)):
            self._zk.delete_tree(folder)
        self._zk.delete_tree(path)

    def _versioned_queue(self, name: str) -> tuple[QueueRecord, int]:
        path = records.queue_path(check_name("queue", name))
        found = self._zk.get(path)
        if found is None:
            raise self._unknown_queue(name)
        record = records.decode(found[0], QueueRecord, path)
        try:
            check_settings(record.settings)
        except InvalidRequest as error:
            raise CorruptRecord(f"the value of {path} cannot be: {error.message}") from error
        if record.name != name:
            raise CorruptRecord(f"the value of {path} is that of another queue, {record.name!r}")
        return record, found[1]
