"""Publishing to a topic that this host owns, and polling it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from delivery.api.rest.administration import Topic
from delivery.api.rest.ledgers import Ledgers
from delivery.api.rest.places import place
from delivery.api.rest.reading import Reading
from delivery.api.rest.requests import ConsumeRequest, Published, PublishRequest, published, undo_of
from delivery.batch import BATCH_COUNT_MAX, Row, encode
from delivery.batch.encode import assemble_plain
from delivery.cluster.ownership import Ownership
from delivery.cluster.partition import OwnedPartition
from delivery.cluster.queues import QueueTable
from delivery.errors import HootError, InvalidRequest, UnknownOutcome, UnknownQueue
from delivery.messaging import marks
from delivery.messaging.groups import is_marker, span_of
from delivery.messaging.ids import read_start
from delivery.messaging.polling import Poll, check_limit
from delivery.messaging.transactions import read_snapshot
from delivery.metastore.records import TopicRecord
from delivery.publish.pending import Stored
from delivery.publish.publisher import Publisher
from delivery.publish.writer import Clock, wall_clock_ms

MESSAGES_MAX: Final = 1_000_000
"""In one request: 10 MiB of empty messages would be ten times as many, and far more in memory."""


T = TypeVar("T")


class Standings(Protocol):
    """What is known of transactions (api.writers.Writers)."""

    async def check(self, pointer: int, now_ms: int) -> None:
        """Return when the transaction may publish and store; raise a HootError when not."""

    async def check_undo(self, pointer: int) -> None:
        """The same for taking back what it published."""


class Exchange:
    """The calls that the owner of a topic's partition answers. On another host they raise NotOwner, nothing done."""

    def __init__(
        self, publisher: Publisher, ownership: Ownership, queues: QueueTable, writers: Standings,
        now_ms: Clock = wall_clock_ms, messages_max: int = 0,
    ) -> None:  # fmt: skip
        """A poll gives at most `messages_max`, unless that is 0."""
        self._publisher, self._ownership, self._queues, self._now_ms = publisher, ownership, queues, now_ms
        self._writers, self._messages_max = writers, messages_max
        self._ledgers = Ledgers(now_ms)

    async def publish(self, topic: Topic, request: PublishRequest, partition: int | None = None) -> Published | None:
        """Store messages; without any, make visible what was stored under the transaction's pointer.

        Without a `partition` it goes to any; all of a transaction to the same one. Gives what undoes it, None outside
        transactions. Raises what Standings.check raises. Nothing is stored then.
        """
        pointer, bodies = request.pointer, _checked(request.messages)
        if pointer is None and not bodies:
            raise InvalidRequest("a publish outside transactions needs a message")
        owned, _ = await self._own(topic, partition, _spread_by(request))
        if pointer is not None:
            await self._writers.check(pointer, self._now_ms())
        if pointer is not None and not bodies:
            group = (await self._ledgers.caught_up(owned)).group(pointer)
            marker = encode([marks.marker(pointer, group)], owned.key.partition, span=span_of(group))
            stored = await self._store(owned, [marker], aside=True)
        elif pointer is not None:
            stored = await self._store(owned, _packed(marks.published(bodies, pointer), owned), aside=False)
        else:
            stored = await self._store(owned, _plain(bodies, owned), aside=False)
        last = stored[-1].base_id + stored[-1].count - 1
        return None if pointer is None else published(pointer, owned.key.partition, stored[0].base_id, last)

    async def store(self, topic: Topic, request: PublishRequest, partition: int | None = None) -> None:
        """Store bodies that a later publish under the same pointer makes visible. Raises as `publish`."""
        if request.pointer is None or not request.messages:
            raise InvalidRequest("what is stored for later needs a transactionWritePointer and a message")
        bodies = _checked(request.messages)
        owned, _ = await self._own(topic, partition, _spread_by(request))
        await self._writers.check(request.pointer, self._now_ms())
        owned.check_room()
        await self._store(owned, _packed(marks.stored(bodies, request.pointer), owned), aside=True)

    async def rollback(self, topic: Topic, record: Published) -> None:
        """Take back what a publish answered with. Twice is fine. Raises what Standings.check_undo raises."""
        undo = undo_of(record)
        what = undo.what
        owned, _ = await self._own(topic, undo.partition)
        await self._writers.check_undo(what.pointer)
        what = what._replace(last=await _end_of_group(owned, what.last))
        await self._store(owned, _packed([marks.rolled_back(what)], owned), aside=True)

    async def poll(self, topic: Topic, request: ConsumeRequest, partition: int | None = None) -> Reading:
        """The messages that there are now, to be read as they are needed; of the one partition, or that one."""
        owned, record = await self._own(topic, partition)
        limit = check_limit(request.limit, self._messages_max)
        start = read_start(request.start_from, request.inclusive, record.ttl_seconds, self._now_ms())
        snapshot = None if request.transaction is None else read_snapshot(request.transaction)
        until = owned.watermark
        ledger = None if snapshot is None else await self._ledgers.caught_up(owned)
        return Reading(owned, Poll(start, limit, snapshot, ledger), until, self._ledgers)

    async def _own(
        self, topic: Topic, partition: int | None, spread_by: bytes | None = None
    ) -> tuple[OwnedPartition, TopicRecord]:  # fmt: skip
        """The partition as `place` has it."""
        try:
            queue = await self._queues.get(topic.queue)
            record = topic.of(queue)
            number = place(topic.queue, queue.settings.partitions, partition, spread_by)
            return await self._ownership.acquire(topic.queue, number), record
        except UnknownQueue:
            raise topic.unknown() from None

    async def _store(self, owned: OwnedPartition, batches: Sequence[bytes], *, aside: bool) -> list[Stored]:
        """Store batches in order; a fault may leave the first ones alone."""
        queue, partition = owned.key.queue, owned.key.partition
        begun = [self._publisher.begin(queue, partition, batch, aside=aside) for batch in batches]
        stored: list[Stored] = []
        for pending in begun:
            try:
                stored.append(await pending.wait())
            except HootError as error:
                if stored:
                    raise UnknownOutcome(f"not all of the messages may be stored: {error.message}") from error
                raise
        return stored


async def _end_of_group(owned: OwnedPartition, last: int) -> int:
    """The id of the last message of the group whose marker has the id `last`; `last` itself where there is none."""
    chunk = await owned.read_stored(last - 1, 1)
    if chunk is None or not chunk.headers or chunk.headers[0].base_id != last:
        return last
    return chunk.headers[0].last_id if is_marker(chunk.headers[0], chunk.data) else last


def _spread_by(request: PublishRequest) -> bytes:
    """What chooses the partition where none is named: a body, so that whoever a request is handed on to agrees."""
    return request.messages[0] if request.pointer is None else b"%d" % request.pointer


def _packed(rows: Sequence[Row], owned: OwnedPartition) -> list[bytes]:
    """The batches that rows need."""
    return [encode(part, owned.key.partition) for part in _parts(rows)]


def _plain(bodies: Sequence[bytes], owned: OwnedPartition) -> list[bytes]:
    """The batches that messages of no transaction need, which have nothing but bodies."""
    return [assemble_plain("", part, owned.key.partition) for part in _parts(bodies)]


def _parts(whole: Sequence[T]) -> list[Sequence[T]]:
    return [whole[at : at + BATCH_COUNT_MAX] for at in range(0, len(whole), BATCH_COUNT_MAX)]


def _checked(messages: Sequence[bytes]) -> Sequence[bytes]:
    if len(messages) > MESSAGES_MAX:
        raise InvalidRequest(f"a request has at most {MESSAGES_MAX} messages, not {len(messages)}")
    return messages
