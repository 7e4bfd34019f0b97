"""The ledgers of the partitions that this host owns, read from their logs when they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import trio

from delivery.batch import Header, headers_in, open_batch
from delivery.cluster.partition import OwnedPartition
from delivery.ids import first_id_at
from delivery.messaging.ledger import Ledger
from delivery.messaging.marks import ROLLBACK, STORED
from delivery.model import Message
from delivery.publish.writer import Clock
from delivery.storage.base import Chunk, PartitionKey

_READ_BYTES: Final = 1024 * 1024
_NOTES_MIN: Final = 1000
"""So many notes are never too many."""
NOTED: Final = tuple(bytes((len(name),)) + name.encode() for name in (STORED, ROLLBACK))
"""The dictionaries of the batches that a ledger is made from."""


class _Kept:
    """The ledger of one partition under one epoch."""

    def __init__(self, owned: OwnedPartition) -> None:
        self.owned, self.ledger, self.lock = owned, Ledger(), trio.Lock()
        self.notes_max = _NOTES_MIN
        """From so many on it is worth a look which ones are needed no longer."""


class Ledgers:
    """For the trio thread. A partition that is owned anew gets a new ledger: what it noted is in the log."""

    def __init__(self, now_ms: Clock | None = None) -> None:
        """With a clock, what is older than the queue's ttl is not noted; without, what is not stored any more."""
        self._now_ms = now_ms
        self._kept: dict[PartitionKey, _Kept] = {}

    async def caught_up(self, owned: OwnedPartition) -> Ledger:
        """The ledger of a partition; everything is noted that was complete at the time of the call.

        The first time after the partition was taken all of its bookkeeping is read. Raises the partition's error.
        """
        kept = self._kept.get(owned.key)
        if kept is None or kept.owned is not owned:
            self._kept = {key: one for key, one in self._kept.items() if one.owned.feed.error is None}
            kept = self._kept[owned.key] = _Kept(owned)
        until = owned.watermark
        async with kept.lock:
            await _catch_up(owned, kept.ledger, until)
            await self._forget(kept)
        return kept.ledger

    async def _forget(self, kept: _Kept) -> None:
        ttl_seconds = kept.owned.settings.ttl_seconds
        if self._now_ms is not None and ttl_seconds is not None:
            kept.ledger.forget(first_id_at(self._now_ms() - round(ttl_seconds * 1000)))
        elif len(kept.ledger) > kept.notes_max:
            kept.ledger.forget((await kept.owned.bounds()).first_id)
            kept.notes_max = max(_NOTES_MIN, 2 * len(kept.ledger))


async def _catch_up(owned: OwnedPartition, ledger: Ledger, until: int) -> None:
    while ledger.position < until:
        after = ledger.position
        chunk = await owned.read_stored(after, _READ_BYTES, _is_no_note)
        if chunk is None:
            return
        for message in messages_in(chunk, owned.key.queue, after):
            ledger.note(message)
        ledger.position = chunk.last_id
        await trio.lowlevel.checkpoint()  # the tail cache answers without one


def messages_in(chunk: Chunk, queue: str, after: int) -> Iterator[Message]:
    """The messages of a chunk above `after`."""
    for at, header in headers_in(chunk.data):
        data = chunk.data if header.length == len(chunk.data) else chunk.data[at : at + header.length]
        yield from open_batch(data, header).messages(queue, after)


def _is_no_note(_: Header, dictionary: bytes) -> bool:
    return dictionary not in NOTED
