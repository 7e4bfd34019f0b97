"""The catalog's topics (seed 003): queues that were made under a namespace, with a generation and properties.

The queue's record is all that a topic is: it comes, changes and goes with one write. The generation is taken before;
where the making breaks off in between, or somebody else was faster, a number is left out.
"""

from __future__ import annotations

import msgspec

from delivery.errors import BadVersion, QueueExists, UnknownQueue
from delivery.metastore.access import ATTEMPTS, crowded, give_way
from delivery.metastore.managers.queues import PAGE_MAX
from delivery.metastore.queues import Queues
from delivery.metastore.records import QueueRecord, TopicRecord
from delivery.model import QueueSettings


class Topics(Queues):
    """Making, changing and listing topics by the names of their queues. `delete_queue` ends one."""

    def create_topic(
        self, queue: str, settings: QueueSettings, ttl_seconds: int, properties: dict[str, str]
    ) -> QueueRecord:  # fmt: skip
        """A new topic under the next generation. Raises QueueExists, also for a queue that is no topic."""
        if self.managers.queues.read_version(queue) is not None:
            raise QueueExists(f"there is already a queue {queue!r}")
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            try:
                generation = self.managers.topics.take(queue)
            except BadVersion:
                continue
            return self.create_queue(queue, settings, TopicRecord(generation, ttl_seconds, properties))
        raise crowded(f"topic {queue!r}")

    def update_topic(
        self, queue: str, settings: QueueSettings, ttl_seconds: int, properties: dict[str, str]
    ) -> QueueRecord:  # fmt: skip
        """Other properties for a topic instead of all it had. Raises UnknownQueue, also for a queue that is none."""
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            found = self._versioned_queue(queue)
            before = found.value.topic
            if before is None:
                raise UnknownQueue(f"queue {queue!r} was not made as a topic")
            topic = TopicRecord(before.generation, ttl_seconds, properties)
            kept = msgspec.structs.replace(found.value.settings, ttl_seconds=settings.ttl_seconds)
            changed = msgspec.structs.replace(found.value, settings=kept, topic=topic)
            try:
                self.managers.queues.update_queue(changed, found.version)
            except BadVersion:
                continue
            return changed
        raise crowded(f"topic {queue!r}")

    def mark_transactional(self, queue: str) -> QueueRecord:
        """Note, before anything is published there in a transaction, that it may be. Raises UnknownQueue."""
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            found = self._versioned_queue(queue)
            if found.value.takes_transactions:
                return found.value
            changed = msgspec.structs.replace(found.value, transactional=True)
            try:
                self.managers.queues.update_queue(changed, found.version)
            except BadVersion:
                continue
            return changed
        raise crowded(f"queue {queue!r}")

    def topic_queues(self, prefix: str) -> list[str]:
        """The queues with names that begin with `prefix` and are topics, sorted; damaged ones are left out."""
        names: list[str] = []
        after = prefix
        while page := self.managers.queues.list_queue_names(after, PAGE_MAX):
            mine = [name for name in page if name.startswith(prefix)]
            found = zip(mine, self.read_queues(mine), strict=True)
            names += [name for name, record in found if isinstance(record, QueueRecord) and record.topic is not None]
            if len(mine) < len(page):
                break
            after = page[-1]
        return names
