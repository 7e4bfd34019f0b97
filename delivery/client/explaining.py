"""Telling why a subscription takes a message, or does not, or not yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from delivery.batch import headers_in, open_batch
from delivery.client.burials import Burials, Search
from delivery.client.calls import Calls, count_messages, partition_info
from delivery.client.deadletters import StoredLetter
from delivery.errors import InvalidRequest
from delivery.filters.explaining import Part, explain, row_of
from delivery.filters.filter import rules_of
from delivery.ids import MessageId
from delivery.messaging.marks import pointer_in
from delivery.messaging.transactions import Verdict, read_snapshot
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.records import ParkedKey, SubscriptionState
from delivery.metastore.records import SubscriptionRecord
from delivery.model import Message, check_partition, encode_headers
from delivery.rpc.protocol import load_idl

Refusal = Literal["partition", "start", "replay", "topics", "filter", "rolled_back", "invalid"]
Passing = Literal["newest", "bound"]


class Explained(msgspec.Struct, frozen=True):
    """Why a subscription takes a message, or does not, by its preferences as they are now."""

    message: Message
    refused_by: Refusal | None
    """`partition`: it does not read this one; `start`: it began behind the message; `replay`: it ends before that;
    `rolled_back` and `invalid`: that became of the message's transaction, and the subscription takes only what is
    committed. None when it takes it.
    """
    acknowledged: bool
    """Whether the subscription is past it: what is changed now counts for it no more."""
    parked: ParkedKey | None
    """With what it is parked (docs/retries.md), as that was saved last."""
    passed_by: Passing | None
    """What may have let the subscription pass it undelivered: that it began with the `newest` message of each key, or a
    `bound`, beyond which the message is by now.
    """
    rules: tuple[Part, ...]
    """Its topics and its filter, all of which must hold, and what their parts came to."""
    waits_for: int | None = None
    """A transaction in progress, of the message or of one before it, whose end the subscription waits for."""
    dead_letters: tuple[StoredLetter, ...] = ()
    """As which it lies in the subscription's dead letters now; they say since when, and why it was given up."""
    letters_until: MessageId | None = None
    """Up to which dead letter was looked, where there were too many; None where all were."""


class Explaining:
    """Over one catalog and the region hosts. Thread-safe; closes nothing."""

    def __init__(self, catalog: Catalog, calls: Calls) -> None:
        self._catalog, self._calls = catalog, calls
        self._search = Search(catalog, calls)

    def explain(
        self, record: SubscriptionRecord, number: int, partition: int | None, view: Callable[[], bytes]
    ) -> list[Explained]:
        """See Client.explain; `view` gives what of transactions is committed now, and is asked where that counts."""
        partitions = self._catalog.queue(record.queue).settings.partitions
        asked: Iterable[int] = range(partitions)
        if partition is not None:
            asked = (check_partition(partition, partitions, record.queue),)
        states = self._catalog.states(record.queue, record.name)
        given_up = self._search.find(record.queue, record.name, number)
        found = []
        for one in asked:
            message = self._read(record.queue, one, number) or _original(record.queue, one, number, given_up.letters)
            if message is not None:
                found.append(message)
        if not found:
            place = f"queue {record.queue!r} holds" if partition is None else f"{record.queue}/{partition} holds"
            raise InvalidRequest(
                f"{place} no message {MessageId(number)}: it was never stored, or is older than what the queue keeps"
                f"{_unseen(given_up)}"
            )
        explanations = [
            explained(record, one, states.get(one.partition), self._behind(record, one), given_up) for one in found
        ]
        if record.isolation == "uncommitted" or all(one.refused_by for one in explanations):
            return explanations
        seen = view()
        return [self._judged(record, one, states.get(one.message.partition), seen) for one in explanations]

    def _behind(self, record: SubscriptionRecord, message: Message) -> int:
        """How many messages lie behind one, if that matters."""
        if not record.bound:
            return 0
        place = record.queue, message.partition
        end = partition_info(self._calls.call, *place).lastId
        return count_messages(self._calls.call, *place, message.number, max(end, message.number))

    def _judged(
        self, record: SubscriptionRecord, found: Explained, state: SubscriptionState | None, view: bytes
    ) -> Explained:  # fmt: skip
        """With what becomes of it by transactions, if it is to be taken at all."""
        if found.refused_by is not None:
            return found
        message = found.message
        after = max(_reached(state, message), record.starts[message.partition])
        refused = self._undone(message, view)
        waits_for = None if found.acknowledged or found.parked else self._in_front(message, after, view)
        return msgspec.structs.replace(found, refused_by=refused, waits_for=waits_for)

    def _undone(self, message: Message, view: bytes) -> Refusal | None:
        """What became of the message's transaction, if it has one and that was not committed."""
        pointer = pointer_in(message.header_block)
        if pointer is None:
            return None
        if read_snapshot(view).judge(pointer, rolled_back=False) is Verdict.SKIP:
            return "invalid"
        taken = self._read(message.queue, message.partition, message.number, view) is not None
        decided = self._decided(message, message.number - 1, view) >= message.number
        return "rolled_back" if decided and not taken else None

    def _in_front(self, message: Message, after: int, view: bytes) -> int | None:
        """The transaction at whose first message a reader stops that comes from `after`, if not behind the message."""
        decided = self._decided(message, after, view)
        if decided >= message.number:
            return None
        first = self._read(message.queue, message.partition, decided + 1)
        return None if first is None else pointer_in(first.header_block)

    def _decided(self, message: Message, after: int, view: bytes) -> int:
        place = message.queue, message.partition
        return int(self._calls.call(*place, "decidedUpTo", *place, after, message.number, view))

    def _read(self, queue: str, partition: int, number: int, view: bytes | None = None) -> Message | None:
        """One message; with a `view`, if it is committed."""
        request: Any = load_idl("delivery").ReadRequest(
            queue=queue, partition=partition, after=number - 1, upTo=number, topics=[], bytesMax=1, waitMs=0,
            transaction=view,
        )  # fmt: skip
        data = self._calls.call(queue, partition, "read", request).batches
        for at, header in headers_in(data):
            for message in open_batch(data[at : at + header.length], header).messages(queue, number - 1):
                return message if message.number == number else None
        return None


def _unseen(given_up: Burials) -> str:
    until = given_up.until
    return "" if until is None else f"; of its dead letters only those up to {until} were looked through"


def _reached(state: SubscriptionState | None, message: Message) -> int:
    return 0 if state is None else state.reached(message.key, message.number)


def _original(queue: str, partition: int, number: int, letters: Iterable[StoredLetter]) -> Message | None:
    """A message that is stored no more, but as a dead letter."""
    for letter in _of(partition, letters):
        stored, block = letter.stored, encode_headers(letter.headers)
        return Message(number, stored.body, stored.topic, stored.key, partition, queue, block)
    return None


def _of(partition: int, letters: Iterable[StoredLetter]) -> tuple[StoredLetter, ...]:
    return tuple(letter for letter in letters if letter.told("partition") == str(partition))


def explained(
    record: SubscriptionRecord, message: Message, state: SubscriptionState | None, behind: int = 0,
    burials: Burials = Burials((), None),
) -> Explained:  # fmt: skip
    """Why a subscription takes a message or not; `state` is that of its partition, `behind` how much lies behind it.

    `burials` are those of its id.
    """
    row = row_of(message)
    rules = tuple(explain(rule, row) for rule in rules_of(record.topics, record.filter))
    refused = _refusal(record, message, rules)
    parked = next((one for one in state.parked if message.number in one.ids), None) if state is not None else None
    past = parked is None and message.number <= _reached(state, message)
    given_up = _of(message.partition, burials.letters)
    passed = _passing(record, message, behind) if past and not given_up else None
    return Explained(message, refused, past, parked, passed, rules, None, given_up, burials.until)


def _refusal(record: SubscriptionRecord, message: Message, rules: Sequence[Part]) -> Refusal | None:
    if message.partition not in record.starts:
        return "partition"
    if message.number <= record.starts[message.partition]:
        return "start"
    if record.replay is not None and message.number > record.replay.end(message.partition):
        return "replay"
    if record.topics and not rules[0].value:
        return "topics"
    return "filter" if record.filter is not None and not rules[-1].value else None


def _passing(record: SubscriptionRecord, message: Message, behind: int) -> Passing | None:
    if message.key is not None and message.number <= record.newest.get(message.partition, 0):
        return "newest"
    return "bound" if record.bound and behind >= record.bound else None
