"""What the managers keep, as values: checked when they are written and when they are read (seed 000)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from delivery.errors import CorruptRecord, InvalidRequest
from delivery.filters import filter_of
from delivery.ids import ID_MAX
from delivery.metastore.flow import wrong_in_flow
from delivery.metastore.policy import wrong_in
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.replays import wrong_in_replay
from delivery.metastore.slots import Ranges, slot_of, wrong_in_ranges
from delivery.metastore.tables.base import Found
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Versioned
from delivery.model import PARTITIONS_MAX, ArchivedRange, check_name, check_partition, lay_out

SEPARATOR: Final = "\x01"
"""Between the parts of a key, as Hedwig had it: below all characters of names, so that a queue's keys lie together."""
AFTER: Final = "\x02"
"""Ends the range of the keys that begin with a prefix and a SEPARATOR."""

EPOCH_MAX: Final = 10**10 - 1
"""Epochs have ten digits in the names of segments."""

R = TypeVar("R", bound=msgspec.Struct)


class OwnerInfo(msgspec.Struct, frozen=True):
    """Who owns a partition (Hedwig: HubInfo). It counts while the host lives with that session."""

    host: str
    """Empty when the partition was given up."""
    session: int
    epoch: int
    """Rises with each owner, also over a time without one."""


class SealedRange(msgspec.Struct, frozen=True):
    """What one epoch stored of a partition (Hedwig: a ledger range); an epoch that stored nothing has none."""

    epoch: int
    first_id: int
    last_id: int


class PersistenceInfo(msgspec.Struct, frozen=True):
    """The sealed ranges of a partition, oldest first (Hedwig: LedgerRanges), and what of it is archived."""

    ranges: tuple[SealedRange, ...]
    archived: tuple[ArchivedRange, ...] = ()
    """The files in the queue's archive (`QueueSettings.archive`), oldest first."""


class Attempts(msgspec.Struct, frozen=True):
    """What was tried with the first message behind an id. It counts while the position is that id."""

    after: int
    failures: int = 0
    """How often a listener did not handle it."""
    first_error: str = ""
    last_error: str = ""
    crashes: int = 0
    """How often the connection broke while it, or what follows it, was out."""
    suspect: int = 0
    """The message that was out alone when the connection broke, 0 for none."""
    suspected: int = 0
    """How often it was."""
    until: int = 0
    """Up to this id one message at a time is delivered, whatever the position, to find the one that crashes."""


class ParkedKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """Messages of a key that were not handled, or that wait for the first of them, which was not."""

    key: bytes | None
    """None for a message without a key, which nothing waits for."""
    ids: tuple[int, ...]
    """Rising; at least one."""
    failures: int = 0
    """Of the first of them; the rest speaks of it, too."""
    due_ms: int = 0
    """When it is to be delivered again."""
    pause_ms: int = 0
    """How long before that this was decided: on a machine whose clock is behind it waits no longer than that."""
    first_error: str = ""
    last_error: str = ""
    reason: str = ""
    """Why it is to be given up, empty when it is not."""
    crashes: int = 0
    """How often the connection broke while they were out again."""
    suspected: int = 0
    """How often it did while the first of them was out alone."""


class Share(msgspec.Struct, frozen=True):
    """What one member has of a partition that several share by key, and how far it is."""

    member: str
    """Empty where nobody has been given it yet."""
    slots: Ranges
    position: int
    """Everything in these slots up to this id was acknowledged, given up, or is parked."""
    failing: Attempts | None = None
    """As that of a state."""


class SubscriptionState(msgspec.Struct, frozen=True):
    """How far a subscription has come in a partition."""

    position: int
    """Everything up to this id was acknowledged, given up, or is parked."""
    epoch: int
    """Of the owner that wrote it, or took it over."""
    generation: str
    """Of the queue that the subscription is on."""
    created_ms: int
    """Of the subscription. One of an earlier subscription of this name does not count."""
    moves: int = 0
    """The number of the last move by hand. What was handled before it counts for nothing, and may come again."""
    failing: Attempts | None = None
    """What everything behind the position waits for; None when nothing failed since the owner began."""
    parked: tuple[ParkedKey, ...] = ()
    """What of the messages up to the position, or that of its share, was neither handled nor given up."""
    shares: tuple[Share, ...] = ()
    """Of a subscription whose members share the partition; the position is the lowest of theirs then."""

    def is_of(self, preferences: SubscriptionRecord) -> bool:
        """Whether it counts for that subscription."""
        return (self.generation, self.created_ms) == (preferences.generation, preferences.created_ms)

    def reached(self, key: bytes | None, number: int) -> int:
        """How far it is with messages of the key, or with that one if it has none."""
        slot = slot_of(key, number)
        mine = (one for one in self.shares if any(first <= slot <= last for first, last in one.slots))
        return next((one.position for one in mine), self.position)

    def without_shares(self) -> SubscriptionState:
        """As whoever knows of no shares goes on from it: what lies behind the position comes again, parked or not."""
        if not self.shares:
            return self
        parked = (
            msgspec.structs.replace(one, ids=ids)
            for one in self.parked
            if (ids := tuple(number for number in one.ids if number <= self.position))
        )
        return msgspec.structs.replace(self, shares=(), parked=tuple(parked))


lay_out(OwnerInfo, PersistenceInfo, SubscriptionState)


class SubscriptionData(msgspec.Struct, frozen=True):
    """All of a subscription: its preferences, changed rarely, and per partition its state, changed all the time."""

    preferences: SubscriptionRecord
    states: Mapping[int, Versioned[SubscriptionState]]
    """Only of partitions that an owner has taken over since the subscription was made."""


def check_owner(owner: OwnerInfo) -> str | None:
    """What is wrong with an owner's record, None when nothing is."""
    return None if 1 <= owner.epoch <= EPOCH_MAX else f"epoch {owner.epoch}"


def check_persistence(info: PersistenceInfo) -> str | None:
    """What is wrong with sealed and archived ranges, None when nothing is."""
    before = SealedRange(0, 0, 0)
    for one in info.ranges:
        if not before.epoch < one.epoch <= EPOCH_MAX or not before.last_id < one.first_id <= one.last_id <= ID_MAX:
            return f"{one} after {before}"
        before = one
    until = 0
    for file in info.archived:
        if not until < file.first_id <= file.until <= ID_MAX or file.messages < 0 or file.bytes < 1 or file.crc < 0:
            return f"{file} after {until}"
        until = file.until
    return None


def check_state(state: SubscriptionState) -> str | None:
    """What is wrong with a state, None when nothing is."""
    sane = 0 <= state.position <= ID_MAX and 0 <= state.epoch <= EPOCH_MAX and state.moves >= 0
    if state.shares:
        sane = sane and not wrong_in_ranges([one.slots for one in state.shares])
        sane = sane and all(state.position <= one.position <= ID_MAX for one in state.shares)
    return None if sane and all(one.ids for one in state.parked) else str(state)[:200]


_fine: set[bytes] = set()
"""Retry policies with flows that can be, as they are written: a host reads all its subscriptions time and again, and
most of them have the same."""
_FINE_MAX: Final = 1000


def _wrong_options(record: SubscriptionRecord) -> str:
    text = msgspec.json.encode((record.retry, record.flow))
    if text in _fine:
        return ""
    wrong = wrong_in(record.retry) or wrong_in_flow(record.flow)
    if not wrong and len(_fine) < _FINE_MAX:
        _fine.add(text)
    return wrong


def check_preferences(record: SubscriptionRecord) -> str | None:
    """What is wrong with a subscription's record, None when nothing is."""
    try:
        check_name("queue", record.queue)
        check_name("subscription", record.name)
        filter_of(record.topics, record.filter)
    except InvalidRequest as error:
        return error.message
    if wrong := _wrong_options(record):
        return wrong
    if wrong := wrong_in_replay(record.replay) if record.replay else "":
        return wrong
    pause = record.pause
    if pause is not None and not 0 <= pause.since_ms <= (pause.since_ms if pause.until_ms is None else pause.until_ms):
        return f"it is paused at {pause}"
    fine = all(0 <= partition < PARTITIONS_MAX and 0 <= at <= ID_MAX for partition, at in record.starts.items())
    fine = fine and all(0 <= at <= ID_MAX for at in record.newest.values())
    return None if fine else f"it starts at {str(record.starts)[:80]}"


class Codec(msgspec.Struct, Generic[R], frozen=True):
    """How one kind of record is kept: as JSON in one field of an entry."""

    field: str
    kind: type[R]
    check: Callable[[R], str | None]
    table: str

    def encode(self, record: R) -> Value:
        """The field with `record`. Raises InvalidRequest for one that cannot be."""
        wrong = self.check(record)
        if wrong is not None:
            raise InvalidRequest(f"this cannot be kept in table {self.table}: {wrong}")
        return Value({self.field: msgspec.json.encode(record)})

    def decode(self, value: Value, key: str) -> R:
        """The record in an entry. Raises CorruptRecord, which names table and key, for what cannot be."""
        data = value.get(self.field)
        where = f"entry {key!r} of table {self.table}"
        if data is None:
            raise CorruptRecord(f"{where} is not Hoot's: it has no field {self.field!r}")
        try:
            record = msgspec.json.decode(data, type=self.kind)
        except msgspec.DecodeError as error:
            raise CorruptRecord(f"the {self.field} of {where} is no {self.kind.__name__}: {error}") from error
        wrong = self.check(record)
        if wrong is not None:
            raise CorruptRecord(f"the {self.field} of {where} cannot be: {wrong}")
        return record

    def decode_found(self, found: Found, key: str) -> Versioned[R] | CorruptRecord | None:
        """What a table found under a key, as a record; a damaged one is its error."""
        if not isinstance(found, Versioned):
            return found
        try:
            return Versioned(self.decode(found.value, key), found.version)
        except CorruptRecord as error:
            return error


def partition_key(queue: str, partition: int) -> str:
    """The key of a partition: queue, 0x01, five digits. Raises InvalidRequest for what cannot be."""
    number = check_partition(partition, PARTITIONS_MAX, check_name("queue", queue))
    return f"{queue}{SEPARATOR}{number:05}"


def subscription_key(queue: str, name: str) -> str:
    """The key of a subscription: queue, 0x01, name. Raises InvalidRequest."""
    return f"{check_name('queue', queue)}{SEPARATOR}{check_name('subscription', name)}"


def state_key(queue: str, name: str, partition: int) -> str:
    """The key of a state: queue, 0x01, subscription, 0x01, five digits. Raises InvalidRequest."""
    number = check_partition(partition, PARTITIONS_MAX, queue)
    return f"{subscription_key(queue, name)}{SEPARATOR}{number:05}"
