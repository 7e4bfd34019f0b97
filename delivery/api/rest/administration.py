"""Creating, changing, showing, listing and deleting topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import trio

from delivery.cluster.queues import QueueTable
from delivery.errors import QueueExists, UnknownQueue
from delivery.messaging.names import (
    Properties,
    check_namespace,
    queue_of,
    queue_prefix,
    queue_settings,
    shown_properties,
)
from delivery.metastore.records import QueueRecord, TopicRecord
from delivery.model import QueueSettings, check_settings

_AT_ONCE: Final = 8
"""In threads: each waits for ZooKeeper."""

T = TypeVar("T")


class TopicRecords(Protocol):
    """Where topics are kept (metastore.catalog.Catalog); blocking."""

    def create_topic(
        self, queue: str, settings: QueueSettings, ttl_seconds: int, properties: dict[str, str]
    ) -> QueueRecord:
        """A new topic. Raises QueueExists."""

    def update_topic(
        self, queue: str, settings: QueueSettings, ttl_seconds: int, properties: dict[str, str]
    ) -> QueueRecord:
        """Other properties for a topic. Raises UnknownQueue."""

    def topic_queues(self, prefix: str) -> list[str]:
        """The queues of topics whose names begin with `prefix`."""

    def queue(self, name: str) -> QueueRecord:
        """A queue. Raises UnknownQueue."""

    def delete_queue(self, name: str) -> object:
        """Delete a queue. Raises UnknownQueue."""


class Topic:
    """A topic of a namespace by its names. Raises InvalidRequest for names that cannot be."""

    def __init__(self, namespace: str, name: str) -> None:
        self.queue = queue_of(namespace, name)
        self._shown = f"{namespace}:{name}"

    def of(self, record: QueueRecord) -> TopicRecord:
        """The topic in a queue's record. Raises UnknownQueue for a queue that is none."""
        if record.topic is None:
            raise self.unknown()
        return record.topic

    def unknown(self) -> UnknownQueue:
        """There is no such topic."""
        return UnknownQueue(f"Topic {self._shown} does not exist.")

    def exists(self) -> QueueExists:
        """There is one already, or a queue of its name that is none."""
        return QueueExists(f"Topic {self._shown} already exists.")


class Administration:
    """The calls that ZooKeeper answers. Each is durable on return, and this host knows of it at once."""

    def __init__(self, records: TopicRecords, queues: QueueTable) -> None:
        self._records, self._queues = records, queues
        self._limiter = trio.CapacityLimiter(_AT_ONCE)

    async def create(self, topic: Topic, wanted: Properties, partitions: int = 1) -> None:
        """A new topic. Raises QueueExists, InvalidRequest for partitions that cannot be so many."""
        settings = check_settings(queue_settings(wanted.ttl_seconds, partitions))
        try:
            await self._run(
                lambda: self._records.create_topic(topic.queue, settings, wanted.ttl_seconds, wanted.others)
            )
        except QueueExists:
            raise topic.exists() from None
        finally:
            await self._queues.look(topic.queue)

    async def update(self, topic: Topic, wanted: Properties) -> None:
        """Other properties instead of all that there were. Raises UnknownQueue."""
        settings = queue_settings(wanted.ttl_seconds)
        try:
            await self._run(
                lambda: self._records.update_topic(topic.queue, settings, wanted.ttl_seconds, wanted.others)
            )
        except UnknownQueue:
            raise topic.unknown() from None
        finally:
            await self._queues.look(topic.queue)

    async def properties(self, topic: Topic) -> dict[str, str]:
        """A topic's properties as of now. Raises UnknownQueue."""
        record = await self._read(topic)
        found = topic.of(record)
        return shown_properties(found.generation, found.ttl_seconds, found.properties, record.settings.partitions)

    async def names(self, namespace: str) -> list[str]:
        """The topics of a namespace, sorted; none in one that nobody uses."""
        prefix = queue_prefix(check_namespace(namespace))
        return [queue.removeprefix(prefix) for queue in await self._run(lambda: self._records.topic_queues(prefix))]

    async def delete(self, topic: Topic) -> None:
        """End a topic with everything in it. Raises UnknownQueue."""
        topic.of(await self._read(topic))
        try:
            await self._run(lambda: self._records.delete_queue(topic.queue))
        except UnknownQueue:
            raise topic.unknown() from None
        finally:
            await self._queues.look(topic.queue)

    async def _read(self, topic: Topic) -> QueueRecord:
        try:
            return await self._run(lambda: self._records.queue(topic.queue))
        except UnknownQueue:
            raise topic.unknown() from None

    async def _run(self, call: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(call, limiter=self._limiter)
