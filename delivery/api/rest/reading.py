"""One poll of a partition on its way: read up to where the partition ended, and perhaps once more up to a later end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

from delivery.api.rest.ledgers import NOTED, Ledgers, messages_in
from delivery.batch import Batch, Header, headers_in, is_aside, open_batch
from delivery.cluster.partition import OwnedPartition
from delivery.messaging.marks import MARKER
from delivery.messaging.polling import Given, Group, Poll, Stretch
from delivery.storage.base import Chunk

READ_BYTES: Final = 128 * 1024
"""Read at once for a poll, unless a single batch is larger."""


class Reading:
    """What a poll gives of a partition. For the trio thread."""

    def __init__(self, owned: OwnedPartition, poll: Poll, until: int, ledgers: Ledgers) -> None:
        """`until` is where the partition ended when the poll began."""
        self.owned = owned
        self._poll, self._until, self._ledgers = poll, until, ledgers
        self._after = poll.start.after

    @property
    def has_news(self) -> bool:
        """Whether the partition goes further than this poll has looked."""
        return self.owned.feed.error is None and self.owned.watermark > self._until

    async def renew(self) -> None:
        """Go on to where the partition ends now. Only after all there was has been read, and nothing was given."""
        if self._poll.stopped_at is not None:
            self._after = self._poll.stopped_at - 1
            self._poll.go_on()
        self._until = self.owned.watermark
        if self._poll.judges:
            await self._ledgers.caught_up(self.owned)

    async def stretches(self) -> AsyncIterator[Stretch]:
        """All of it; none is empty. Raises the partition's error and the store's."""
        while self._after < self._until and not self._poll.finished:
            chunk = await self.owned.read_stored(self._after, READ_BYTES, _never_given)
            if chunk is None:
                break
            async for stretch in self._of(chunk):
                if stretch.ids:
                    yield stretch
            self._after = min(chunk.last_id, self._until)
        self._after = max(self._after, self._until)

    async def _of(self, chunk: Chunk) -> AsyncIterator[Stretch]:
        for at, header in headers_in(chunk.data):
            if self._poll.finished or header.base_id > self._until:
                return
            if header.last_id <= self._after:
                continue
            whole = header.length == len(chunk.data)
            batch = open_batch(chunk.data if whole else chunk.data[at : at + header.length], header)
            if not is_aside(header):
                yield self._poll.take(batch)
            elif batch.topics == [MARKER]:
                async for stretch in self._of_markers(batch):
                    yield stretch

    async def _of_markers(self, batch: Batch) -> AsyncIterator[Stretch]:
        for message in batch.messages(self.owned.key.queue, self._after):
            if isinstance(found := self._poll.step(message), Group):
                async for stretch in self._bodies(found):
                    yield stretch

    async def _bodies(self, group: Group) -> AsyncIterator[Stretch]:
        """The bodies of a group; those that are too old to be kept are not there any more."""
        for wanted in group.ranges:
            after = wanted.first - 1
            while after < wanted.last and not self._poll.finished:
                chunk = await self.owned.read_stored(after, READ_BYTES)
                if chunk is None:
                    return
                given = list(self._within(chunk, after, group, wanted.last))
                yield Stretch([one.id for one in given], [one.payload for one in given])
                after = chunk.last_id

    def _within(self, chunk: Chunk, after: int, group: Group, last: int) -> Iterator[Given]:
        for message in messages_in(chunk, self.owned.key.queue, after):
            if self._poll.finished or message.number > last:
                return
            if (given := self._poll.body(group, message)) is not None:
                yield given


def _never_given(_: Header, dictionary: bytes) -> bool:
    """Whether a poll need not read a batch with that dictionary: bodies come with their marker."""
    return dictionary in NOTED
