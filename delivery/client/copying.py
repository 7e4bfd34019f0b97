"""Copying a queue to another one, of this cluster or of one with another store: what `hoot queue copy` does.

The target is a closed queue: nobody can publish to it, so it takes the batches of the source as they are, with their
ids. It can only grow at its end, by the batch that follows there; so what is in it is what is copied, and whoever goes
on, after kill -9 as well, asks for the last id that is there. Nothing else is kept of how far a copy is.

The source may be published to and delivered from all the while. The switch ends that: it closes the source, and when
the owner of each partition says that nothing is on its way any more, brings the rest; then the subscriptions with
their positions, and last of all it opens the target. Whoever breaks off in between does it again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import msgspec

from delivery.batch import headers_in
from delivery.client.calls import Calls, count_messages, partition_info
from delivery.client.moving import SubscriptionCopies
from delivery.errors import (
    CorruptRecord,
    DeadlineExceeded,
    InvalidRequest,
    OutOfPlace,
    QueueExists,
    StorageUnavailable,
    UnknownQueue,
)
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import QueueRecord
from delivery.model import Layout
from delivery.rpc.protocol import load_idl

READ_BYTES: Final = 4 * 1024 * 1024
PARTITIONS_AT_ONCE: Final = 4
STUCK_SECONDS: Final = 60.0
"""So long without a batch more, or until an owner has heard that its queue is closed, is waited for."""
_PAUSE_SECONDS: Final = 0.1

Advance = Callable[[int, int], None]
"""Hears of each piece that was stored: its messages and bytes."""


class Side(msgspec.Struct, frozen=True):
    """One of the two clusters, which may be the same."""

    catalog: Catalog
    calls: Calls


class Brought(msgspec.Struct, frozen=True):
    """What one round brought to a partition."""

    partition: int
    messages: int
    bytes: int
    last: int
    """The last id in the target."""


class QueueCopy:
    """A queue and its copy. For one thread at a time."""

    def __init__(self, source: Side, queue: str, target: Side, name: str, layout: Layout | None) -> None:
        """`layout` is that of the target if it is not there yet.

        Raises UnknownQueue, InvalidRequest for what cannot be copied or is being copied from elsewhere, QueueExists.
        """
        self._source, self._target, self._name, self._layout = source, target, name, layout
        self.source = source.catalog.queue(queue)
        if self.source.topic is not None:
            raise InvalidRequest(f"{queue!r} is a topic of a namespace, whose transactions are of this cluster alone")
        self.target: QueueRecord | None = None
        """None before the first round."""
        with contextlib.suppress(UnknownQueue):
            self.target = self._checked(target.catalog.queue(name))
        self._subscriptions = SubscriptionCopies(source.catalog, self.source, target.catalog)

    def left(self) -> tuple[int, int]:
        """Messages and bytes of the source that the target has not, the bytes about. Raises as reading does."""
        messages = size = 0
        for partition in range(self.source.settings.partitions):
            info = self._info(self._source, self.source, partition)
            after = 0 if self.target is None else self._info(self._target, self.target, partition).lastId
            found = count_messages(self._source.calls.call, self.source.name, partition, after, info.lastId)
            messages += found
            size += info.bytes * found // max(1, info.messages)
        return messages, size

    def subscriptions(self) -> list[str]:
        """What a switch brings along."""
        return self._subscriptions.names()

    def bring(self, advance: Advance = lambda *_: None) -> list[Brought]:
        """One round: everything that the source has and the target has not, as of now. Again, it goes on from there.

        Raises InvalidRequest at a message of a transaction, CorruptRecord where the target holds what the source has
        not, and what reading and publishing raise.
        """
        target = self._made()
        with ThreadPoolExecutor(PARTITIONS_AT_ONCE, "hoot-copying") as threads:
            return list(threads.map(partial(self._bring, target, advance), range(self.source.settings.partitions)))

    def switch(self, advance: Advance = lambda *_: None, *, force: bool = False) -> list[Brought]:
        """Close the source, bring the rest and the subscriptions, open the target; what the last round brought.

        Raises SubscriptionBusy, nothing changed, while a subscription of the source is attached, unless forced, and
        SubscriptionExists where the target has another one of a name; and as `bring`, the target being closed then.
        """
        target = self._made()
        self._subscriptions.check(target, force=force)
        self._close_source()
        brought = self.bring(advance)
        ends = {one.partition: one.last for one in brought}
        self._subscriptions.bring(target, ends)
        self._check_at_rest(brought)
        self.target = self._set(self._target.catalog, self._name, closed=False)
        for partition in range(self.target.settings.partitions):
            self._wait(self._target, self.target, partition, closed=False)
        return brought

    def _made(self) -> QueueRecord:
        if self.target is None:
            settings = msgspec.structs.replace(self.source.settings, closed=True, layout=self._layout)
            try:
                made = self._target.catalog.create_queue(self._name, settings, copy_of=self.source.generation)
            except QueueExists:  # an earlier try was done after all, or somebody was faster
                made = self._target.catalog.queue(self._name)
            self.target = self._checked(made)
        return self.target

    def _checked(self, found: QueueRecord) -> QueueRecord:
        if found.copy_of != self.source.generation:
            raise QueueExists(f"there is already a queue {found.name!r}, and it is no copy of {self.source.name!r}")
        if not found.settings.closed:
            raise InvalidRequest(f"queue {found.name!r} was opened: its copying has ended, and it goes its own way")
        return found

    def _close_source(self) -> None:
        self.source = self._set(self._source.catalog, self.source.name, closed=True)
        for partition in range(self.source.settings.partitions):
            self._wait(self._source, self.source, partition, closed=True)

    def _wait(self, side: Side, queue: QueueRecord, partition: int, *, closed: bool) -> Any:  # noqa: ANN401 - a struct
        """What the owner says of a partition, when it has heard of the change, and nothing is on its way any more."""
        deadline = time.monotonic() + STUCK_SECONDS
        while bool((info := self._info(side, queue, partition)).closed) != closed:
            if time.monotonic() > deadline:
                done = "closed" if closed else "opened"
                raise DeadlineExceeded(
                    f"the owner of partition {partition} of {queue.name!r} has not {done} it in {STUCK_SECONDS:g} s"
                )
            time.sleep(_PAUSE_SECONDS)
        return info

    def _check_at_rest(self, brought: list[Brought]) -> None:
        """An owner that did not know yet could have stored something after another one had said that all was there."""
        for one in brought:
            info = self._wait(self._source, self.source, one.partition, closed=True)
            if info.lastId > one.last and self._read(one.partition, one.last).batches:
                raise StorageUnavailable(
                    f"partition {one.partition} of {self.source.name!r} has grown after it was closed: switch again"
                )

    def _set(self, catalog: Catalog, name: str, *, closed: bool) -> QueueRecord:
        return catalog.update_queue(name, lambda present: msgspec.structs.replace(present, closed=closed))

    # -- one partition

    def _bring(self, target: QueueRecord, advance: Advance, partition: int) -> Brought:
        last = int(self._info(self._target, target, partition).lastId)
        messages = size = 0
        for data, count, end in self._pieces(partition, last):
            self._store(target, partition, last, data)
            last, messages, size = end, messages + count, size + len(data)
            advance(count, len(data))
        return Brought(partition, messages, size, last)

    def _store(self, target: QueueRecord, partition: int, last: int, data: bytes) -> None:
        """Have the owner store batches behind the id `last`, whatever became of an earlier try."""
        deadline = time.monotonic() + STUCK_SECONDS
        while data:
            try:
                self._target.calls.call(
                    target.name, partition, "importBatches", target.name, partition, last, data, target.generation
                )
            except OutOfPlace:
                if time.monotonic() > deadline:
                    raise
                last, data = self._found(target, partition, last, data)
            else:
                return

    def _found(self, target: QueueRecord, partition: int, last: int, data: bytes) -> tuple[int, bytes]:
        """The last id that the target has after a doubt, and what of `data` follows it."""
        time.sleep(_PAUSE_SECONDS)
        now = int(self._info(self._target, target, partition).lastId)
        if now < last:
            raise CorruptRecord(f"partition {partition} of {target.name!r} ended with {last}, and now with {now}")
        return now, b"".join(data[at : at + one.length] for at, one in headers_in(data) if one.last_id > now)

    def _pieces(self, partition: int, after: int) -> Iterator[tuple[bytes, int, int]]:
        """Whole batches behind an id, how many messages they hold, and their last id; up to the end of now."""
        while True:
            reply = self._read(partition, after)
            if reply.batches:
                headers = [header for _, header in headers_in(reply.batches)]
                if headers[0].base_id <= after:
                    raise CorruptRecord(
                        f"partition {partition} of the copy ends within a batch of {self.source.name!r}: it holds"
                        " something else"
                    )
                yield reply.batches, sum(header.count for header in headers), headers[-1].last_id
            if reply.position >= reply.watermark or reply.position <= after:
                return
            after = reply.position

    def _read(self, partition: int, after: int) -> Any:  # noqa: ANN401 - a struct of the IDL
        request = load_idl("delivery").ReadRequest(
            queue=self.source.name, partition=partition, after=after, upTo=0, topics=[], bytesMax=READ_BYTES, waitMs=0
        )
        return self._source.calls.call(self.source.name, partition, "read", request)

    @staticmethod
    def _info(side: Side, queue: QueueRecord, partition: int) -> Any:  # noqa: ANN401 - as above
        return partition_info(side.calls.call, queue.name, partition)
