"""Dead letters as operators see them, and the store that region hosts put them in.

They lie in the queue `<queue>.<subscription>.dlq`, which is made when there is a first one. A queue forgets nothing
before its time, so that what was dropped or sent back is noted in it by a message of its own, a *settlement*: a header
that says so, and the partitions and ids as JSON.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from delivery.client.calls import CALL_SECONDS, Calls
from delivery.client.hosts import Owners
from delivery.client.links import CONNECT_SECONDS
from delivery.client.outgoing import NewMessage
from delivery.client.queue import Queue
from delivery.dispatch.deadletters import PREFIX, DeadLetter, headers_of
from delivery.errors import InvalidRequest, QueueExists, UnknownQueue
from delivery.ids import MessageId
from delivery.metastore.catalog import Catalog
from delivery.metastore.policy import dead_letter_queue
from delivery.model import BODY_BYTES_LIMIT, Isolation, Message, QueueSettings, tolerant_headers
from delivery.rpc.pool import Pool

SETTLED: Final = PREFIX + "settled"
"""The header of a settlement."""
GROUP: Final = 1000
"""Letters that are sent back, or settled, together."""


class DeadLetterStore:
    """Where a region host puts dead letters; `close` closes its connections."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._pool = Pool(connect_deadline=CONNECT_SECONDS, call_deadline=CALL_SECONDS)
        self._owners = Owners(catalog)
        self._queues: dict[str, Queue] = {}

    async def store(self, letters: Sequence[DeadLetter]) -> None:
        """See DeadLetters.store."""
        import trio  # takes longer than all else that a command imports, and only a host stores dead letters

        await trio.to_thread.run_sync(self._store, letters, abandon_on_cancel=True)

    def close(self) -> None:
        """Close all connections."""
        for queue in self._queues.values():
            queue.close()
        self._pool.close()

    def _store(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            message = letter.message
            name = dead_letter_queue(message.queue, letter.subscription)
            try:
                self._put(name, message, letter)
            except UnknownQueue:  # it was never made, or deleted since it was
                self._queues.pop(name, None)
                with contextlib.suppress(QueueExists):
                    self._catalog.create_queue(name, QueueSettings(body_bytes_max=BODY_BYTES_LIMIT))
                self._put(name, message, letter)

    def _put(self, name: str, message: Message, letter: DeadLetter) -> None:
        if name not in self._queues:
            calls = Calls(self._owners, self._pool)
            self._queues[name] = Queue(
                self._catalog.queue(name), self._owners, calls, lambda: self._catalog.queue(name)
            )  # fmt: skip
        self._queues[name].put(message.body, key=message.key, topic=message.topic, headers=headers_of(letter))


class StoredLetter(msgspec.Struct, frozen=True):
    """A dead letter that was neither dropped nor sent back."""

    stored: Message
    """As it lies in the queue of dead letters."""

    @property
    def id(self) -> MessageId:
        """Its id there."""
        return self.stored.id

    def is_of(self, queue: str) -> bool:
        """Whether it was given up in that queue; anybody can publish other things to a queue of dead letters."""
        return self.told("queue") == queue and self.told("partition").isdecimal()

    def told(self, name: str) -> str:
        """What a header of the dead letter says: reason, failures, first-error, last-error, id, queue and so on."""
        return tolerant_headers(self.stored.header_block).get(PREFIX + name, b"").decode(errors="replace")

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers that the message had."""
        found = tolerant_headers(self.stored.header_block)
        return {name: value for name, value in found.items() if not name.startswith(PREFIX)}

    def original(self) -> NewMessage:
        """The message as it was, for the partition it came from."""
        stored, partition = self.stored, int(self.told("partition"))
        return NewMessage(stored.body, key=stored.key, topic=stored.topic, headers=self.headers, partition=partition)


class Gathering:
    """Dead letters of a queue's messages, as they are read; settlements may come before what they settle."""

    def __init__(self, queue: str, message: str | None = None) -> None:
        """With a `message` only the letters of messages of that id."""
        self._queue, self._message = queue, message
        self._letters: list[StoredLetter] = []
        self._settled: set[tuple[int, int]] = set()

    def note(self, stored: Message) -> None:
        """Take what lies in the queue of dead letters; what is neither letter nor settlement counts for nothing."""
        if SETTLED in tolerant_headers(stored.header_block):
            with contextlib.suppress(msgspec.DecodeError):
                self._settled.update(msgspec.json.decode(stored.body, type=list[tuple[int, int]]))
        elif (letter := StoredLetter(stored)).is_of(self._queue) and self._message in (None, letter.told("id")):
            self._letters.append(letter)

    def left(self) -> list[StoredLetter]:
        """Those that were not settled, in the order of reading."""
        return [one for one in self._letters if (one.stored.partition, one.stored.number) not in self._settled]


class DeadLetterQueue:
    """The dead letters of one subscription. Blocking."""

    def __init__(self, queue: Queue, find: Callable[[], Queue | None]) -> None:
        """`queue` is the one subscribed to; `find` gives that of its dead letters, None while it has never had any."""
        self._queue, self._find = queue, find

    def letters(self) -> list[StoredLetter]:
        """All that are there, oldest first.

        Not what others published there: by hand, or as the dead letters of queue `a.b`, which lie with those of a
        subscription `b.c` of queue `a`.
        """
        found, stored = Gathering(self._queue.name), self._find()
        if stored is not None:
            with stored.scanner() as scanner:
                for message in scanner:
                    found.note(message)
        return found.left()

    def redrive(self, letters: Sequence[StoredLetter]) -> None:
        """Publish them again, each to its partition, for all subscriptions of the queue; then they are settled.

        At least once: those of a call that raised may have been published. Raises InvalidRequest before it publishes
        anything, for a letter whose message was published in a transaction that is not committed, or was rolled back.
        """
        for letter in letters:
            self._check_committed(letter)
        for at in range(0, len(letters), GROUP):
            group = letters[at : at + GROUP]
            self._queue.put_many([letter.original() for letter in group])
            self._settle(group, "redriven")

    def _check_committed(self, letter: StoredLetter) -> None:
        """One whose message is stored no more counts as committed: nobody can tell."""
        pointer = letter.told("transaction")
        if pointer and not self._is_there(letter, "committed") and self._is_there(letter, "uncommitted"):
            raise InvalidRequest(
                f"message {letter.told('id')}, of dead letter {letter.id}, was published in transaction {pointer}, and"
                " that is not committed, or the message was rolled back: drop the letter, or wait for the commit"
            )

    def _is_there(self, letter: StoredLetter, isolation: Isolation) -> bool:
        partition, number = int(letter.told("partition")), MessageId.parse(letter.told("id"))
        scope = {"start": number, "stop": MessageId(number + 1), "isolation": isolation}
        with self._queue.partition_scanner(partition, **scope) as scanner:
            return scanner.next() is not None

    def drop(self, letters: Sequence[StoredLetter]) -> None:
        """Forget them."""
        for at in range(0, len(letters), GROUP):
            self._settle(letters[at : at + GROUP], "dropped")

    def _settle(self, letters: Sequence[StoredLetter], how: Literal["redriven", "dropped"]) -> None:
        stored = self._find()
        if stored is None:
            raise UnknownQueue("the queue of these dead letters was deleted")
        body = msgspec.json.encode([(letter.stored.partition, letter.stored.number) for letter in letters])
        stored.put(body, headers={SETTLED: how.encode()}, partition=0)
