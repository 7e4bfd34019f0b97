"""What the tests of archives share: moving what a store holds into files, as the job does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from delivery.batch import Header, headers_in
from delivery.model import ArchivedRange
from delivery.storage.archive.folder import ArchiveFolder
from delivery.storage.archive.writing import Stretch, Written, write
from delivery.storage.base import MessageStore, PartitionKey


def stretch(key: PartitionKey, after: int, until: int) -> Stretch:
    return Stretch(key.queue, key.generation, key.partition, after, until)


def batches_between(store: MessageStore, key: PartitionKey, after: int, until: int) -> Iterator[tuple[Header, bytes]]:
    """Those that begin above `after` and up to `until`."""
    at = after
    while (chunk := store.read(key, at, 1000)) is not None:
        for place, header in headers_in(chunk.data):
            if after < header.base_id <= until:
                yield header, chunk.data[place : place + header.length]
        at = chunk.last_id


def written(folder: Path, store: MessageStore, key: PartitionKey, after: int, until: int) -> Written | None:
    return write(folder, stretch(key, after, until), batches_between(store, key, after, until))


def archive(folder: Path, store: MessageStore, key: PartitionKey, cuts: Sequence[int]) -> tuple[ArchivedRange, ...]:
    """Archive up to each of `cuts`, in a file for each stretch that has any batches."""
    place, ranges, after = ArchiveFolder(folder, key.queue, key.generation), [], 0
    with place.taken():
        for until in cuts:
            made = written(folder, store, key, after, until)
            if made is not None:
                place.bring_in(key.partition, [(made.temporary, made.file)])
                ranges.append(made.file)
            after = until
    return tuple(ranges)
