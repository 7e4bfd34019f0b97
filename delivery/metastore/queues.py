"""The catalog's queues: records in a table. Their end is in `ends`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence

import msgspec

from delivery import wall
from delivery.errors import BadVersion, CorruptRecord, InvalidRequest, UnknownQueue
from delivery.filters.like import stars
from delivery.metastore.access import ATTEMPTS, Access, crowded, give_way
from delivery.metastore.records import QueueRecord, TopicRecord
from delivery.metastore.tables.base import Watcher
from delivery.metastore.tables.versions import Versioned
from delivery.model import QueueSettings, check_name, check_settings


class Queues(Access):
    """Creating, looking at and changing queues."""

    def create_queue(
        self, name: str, settings: QueueSettings, topic: TopicRecord | None = None, copy_of: str = ""
    ) -> QueueRecord:  # fmt: skip
        """A new queue. Raises QueueExists and InvalidRequest."""
        check_name("queue", name)
        check_settings(settings)
        record = QueueRecord(name, secrets.token_hex(8), wall.ms(), settings, topic, copy_of=copy_of)
        self.managers.queues.create_queue(record)
        return record

    def queue(self, name: str, watch: Watcher | None = None) -> QueueRecord:
        """The queue. Raises UnknownQueue, with the names that come near, and CorruptRecord.

        `watch` is called once, at the next change of its record; also when there is none, at its creation.
        """
        return self._versioned_queue(name, watch).value

    def queues(self) -> list[str]:
        """The names of all queues, sorted."""
        return [name for page in self.queue_pages() for name in page]

    def queues_like(self, pattern: str) -> list[QueueRecord]:
        """The queues whose names match a pattern such as `orders.*`, by name; but for damaged ones.

        Only names that begin as the pattern does, up to its first star, are looked at.
        """
        if not self._has_tables:
            return []
        matches, prefix = stars(pattern), pattern.partition("*")[0]
        names = [prefix] if prefix not in ("", ".", "..") and matches(prefix) else []
        page = self.managers.queues.list_queue_names(prefix or None)
        while page and page[0].startswith(prefix):
            names += [name for name in page if name.startswith(prefix) and matches(name)]
            page = self.managers.queues.list_queue_names(page[-1])
        return [record for record in self.read_queues(names) if isinstance(record, QueueRecord)]

    def queue_pages(self) -> Iterator[list[str]]:
        """The names of all queues, sorted, some at a time."""
        if not self._has_tables:
            return
        after: str | None = None
        while page := self.managers.queues.list_queue_names(after):
            yield page
            after = page[-1]

    def read_queues(self, names: Sequence[str]) -> list[QueueRecord | CorruptRecord | None]:
        """The records of many queues; None for those that are not there, and a damaged one is its error."""
        return self.managers.queues.read_queues(names)

    def queue_records(self) -> list[QueueRecord]:
        """The records of all queues, by name. Raises CorruptRecord."""
        found = [record for page in self.queue_pages() for record in self.read_queues(page)]
        for record in found:
            if isinstance(record, CorruptRecord):
                raise record
        return [record for record in found if isinstance(record, QueueRecord)]

    def update_queue(self, name: str, change: Callable[[QueueSettings], QueueSettings]) -> QueueRecord:
        """What `change` makes of a queue's settings; it is called again when somebody else was faster.

        Raises UnknownQueue, and InvalidRequest when they change the partitions or the layout.
        """
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            found = self._versioned_queue(name)
            settings = change(found.value.settings)
            _check_change(name, found.value.settings, settings)
            changed = msgspec.structs.replace(found.value, settings=settings)
            if changed == found.value:
                return changed
            try:
                self.managers.queues.update_queue(changed, found.version)
            except BadVersion:
                continue
            return changed
        raise crowded(f"queue {name!r}")

    def home_of(self, name: str, generation: str) -> str:
        """The store that has the queue's messages, empty before there is one. Raises UnknownQueue."""
        return self._generation(name, generation).value.home

    def settle_home(self, name: str, generation: str, home: str) -> str:
        """Keep in which store the queue's messages are, unless another is kept: the one that counts.

        Raises UnknownQueue.
        """
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            found = self._generation(name, generation)
            if found.value.home:
                return found.value.home
            try:
                self.managers.queues.update_queue(msgspec.structs.replace(found.value, home=home), found.version)
            except BadVersion:
                continue
            return home
        raise crowded(f"queue {name!r}")

    def _generation(self, name: str, generation: str) -> Versioned[QueueRecord]:
        found = self._versioned_queue(name)
        if found.value.generation != generation:
            raise UnknownQueue(f"queue {name!r} was deleted; another one of this name was created")
        return found

    def _versioned_queue(self, name: str, watch: Watcher | None = None) -> Versioned[QueueRecord]:
        check_name("queue", name)
        if not self._has_tables:
            raise UnknownQueue(f"there is no queue {name!r}: create it with `hoot queue create {name}`")
        found = self.managers.queues.read_queue(name, watch)
        if found is None:
            raise self._unknown_queue(name)
        return found


def _check_change(name: str, before: QueueSettings, after: QueueSettings) -> None:
    check_settings(after)
    if after.partitions != before.partitions:
        raise InvalidRequest(
            f"queue {name!r} keeps its {before.partitions} partitions: with another number of them,"
            " the messages of a key would no longer be in one partition"
        )
    if after.layout != before.layout:
        raise InvalidRequest(f"queue {name!r} keeps its layout: what is stored of it has that one")
