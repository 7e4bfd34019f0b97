"""What the managers of partition records share: one record per partition, read, written and deleted by version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

from delivery.errors import BadVersion, CorruptRecord, HootError
from delivery.metastore.errors import KeyExists, NoKey
from delivery.metastore.managers.records import SEPARATOR, Codec, partition_key
from delivery.metastore.ops import InDoubt
from delivery.metastore.tables.base import MetaStore, Put, Remove
from delivery.metastore.tables.versions import Version, Versioned

R = TypeVar("R", bound=msgspec.Struct)

Page = list[tuple[str, int, Versioned[R] | CorruptRecord]]


class PartitionInfos(Generic[R]):
    """Records of one kind in a table without an order (seed 000: a hash table will do for these)."""

    def __init__(
        self, store: MetaStore, codec: Codec[R], errors: tuple[type[NoKey], type[KeyExists]], what: str
    ) -> None:  # fmt: skip
        self._table = store.create_table(codec.table)
        self._codec = codec
        self._missing, self._exists = errors
        self._what = what

    def read(self, queue: str, partition: int) -> Versioned[R] | None:
        """The record and its version, None when there is none. Raises CorruptRecord."""
        found = self.read_many([(queue, partition)])[0]
        if isinstance(found, CorruptRecord):
            raise found
        return found

    def read_many(self, partitions: Sequence[tuple[str, int]]) -> list[Versioned[R] | CorruptRecord | None]:
        """Per partition its record, a damaged one as its error."""
        keys = [partition_key(queue, partition) for queue, partition in partitions]
        return [
            self._codec.decode_found(found, key) for key, found in zip(keys, self._table.get_many(keys), strict=True)
        ]

    def write(self, queue: str, partition: int, record: R, version: Version) -> Version:
        """Put a record under a version, NEW for the first; gives the new one. Raises what `write_many` gives."""
        outcome = self.write_many([(queue, partition, record, version)])[0]
        if isinstance(outcome, HootError):
            raise outcome
        return outcome

    def write_many(self, writes: Sequence[tuple[str, int, R, Version]]) -> list[Version | HootError]:
        """Many writes, each by itself, in few requests: per write its new version or its error.

        BadVersion: it has another version. The manager's own NoKey and KeyExists: there is none; there is one already.
        MetadataUnavailable: it was not written, or that cannot be told.
        """
        puts = [
            Put(partition_key(queue, partition), self._codec.encode(record), version, whole=True)
            for queue, partition, record, version in writes
        ]
        outcomes = self._table.put_many(puts)
        return [self._settled(*one) for one in zip(writes, outcomes, strict=True)]

    def delete(self, queue: str, partition: int, version: Version) -> None:
        """Delete a record of this version. Raises BadVersion, and the manager's own NoKey."""
        try:
            self._table.remove(partition_key(queue, partition), version)
        except NoKey:
            raise self._none(queue, partition) from None

    def delete_all(self, places: Iterable[tuple[str, int]]) -> None:
        """Delete the records of these (queue, partition), whatever their version; those without one are fine."""
        removes = [Remove(partition_key(queue, partition), Version.ANY) for queue, partition in places]
        for outcome in self._table.remove_many(removes):
            if isinstance(outcome, HootError) and not isinstance(outcome, NoKey):
                raise outcome

    def pages(self, entries: int = 1000) -> Iterator[Page[R]]:
        """All records of all queues, at most so many at a time, in no order; damaged ones as their errors."""
        with self._table.open_cursor() as cursor:
            while cursor.has_more_entries():
                page: Page[R] = []
                for item in cursor.read_entries(entries):
                    queue, _, number = item.key.partition(SEPARATOR)
                    found = self._codec.decode_found(item.found, item.key)
                    if found is not None:
                        page.append((queue, int(number) if number.isdecimal() else -1, found))
                yield page

    def _settled(self, write: tuple[str, int, R, Version], outcome: Version | HootError) -> Version | HootError:
        """An outcome in the words of the manager; one in doubt is settled by looking: no other writes this record."""
        queue, partition, record, version = write
        if isinstance(outcome, InDoubt):
            try:
                found = self.read(queue, partition)
            except HootError:
                return outcome
            return found.version if found is not None and found.value == record else outcome
        if isinstance(outcome, NoKey):
            return self._none(queue, partition)
        if isinstance(outcome, KeyExists):
            return self._exists(f"partition {partition} of queue {queue!r} has {self._what} already")
        if isinstance(outcome, BadVersion):
            return BadVersion(
                f"the {self._what} of partition {partition} of queue {queue!r} is not at version {version.number}"
            )
        return outcome

    def _none(self, queue: str, partition: int) -> NoKey:
        return self._missing(f"partition {partition} of queue {queue!r} has no {self._what}")
