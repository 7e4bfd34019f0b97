"""Which messages of a queue a job takes, pinned before it begins: with the same ends it has the same ones again.

An end that is not named is the end of the queue at that time, and told, so that it can be named the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from pyspark.sql import DataFrame, SparkSession

from delivery.errors import InvalidRequest
from delivery.ids import ID_MAX, LATEST, MessageId, Start, check_start
from delivery.model import Isolation
from delivery.spark.planning import Engine, engine
from delivery.spark.ranges import Held, Span


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    zookeeper: str
    queue: str
    start: Start = "earliest"
    end: Start = "latest"
    """Itself left out."""
    topics: tuple[str, ...] = ()
    filter: str = ""
    partitions: tuple[int, ...] = ()
    """Empty for all."""
    isolation: Isolation = "uncommitted"


class Pinned(msgspec.Struct, frozen=True):
    """What there is of it."""

    chosen: Chosen
    generation: str
    spans: tuple[Span, ...]
    """Of each partition, in their order; those of which nothing is left have no messages."""

    @property
    def partitions(self) -> int:
        """Of the queue."""
        return len(self.spans)

    @property
    def messages(self) -> int:
        """How many there are, whatever topics and filter leave."""
        return sum(span.messages for span in self.spans)

    @property
    def end(self) -> MessageId:
        """Behind the last of them, for `Chosen.end` when the job runs again."""
        named = check_start(self.chosen.end)
        return MessageId(1 + (max(span.until for span in self.spans) if named == LATEST else named))

    def read(self, session: SparkSession, columns: str = "") -> DataFrame:
        """The messages, with these columns of a read, or all."""
        chosen, queue = self.chosen, self.chosen.queue
        begins = {queue: {str(span.partition): span.after + 1 for span in self.spans}}
        ends = {queue: {str(span.partition): span.until + 1 for span in self.spans}}
        given = {
            "zookeeper": chosen.zookeeper, "queue": queue, "topics": ",".join(chosen.topics), "filter": chosen.filter,
            "columns": columns, "isolation": chosen.isolation, "startingOffsets": msgspec.json.encode(begins).decode(),
            "endingOffsets": msgspec.json.encode(ends).decode(),
        }  # fmt: skip
        return session.read.format("hoot").options(**{name: value for name, value in given.items() if value}).load()

    def identity(self, *others: object) -> str:
        """A `writeId` for what a job makes of these messages; `others` is all else that decides what that is."""
        chosen = self.chosen
        said = [
            chosen.queue,
            self.generation,
            check_start(chosen.start),
            int(self.end),
            chosen.topics,
            chosen.filter,
            chosen.partitions,
            chosen.isolation,
            others,
        ]
        return blake2b(msgspec.json.encode(said), digest_size=12).hexdigest()


def pin(hosts: Engine, chosen: Chosen) -> Pinned:
    """What the queue holds of it now. Raises InvalidRequest, UnknownQueue, NoHost, HostUnreachable."""
    record = hosts.queue(chosen.queue)
    after, until = check_start(chosen.start), check_start(chosen.end)
    if after == LATEST:
        raise InvalidRequest("a job that begins with the latest has nothing to read")
    held = hosts.held((chosen.queue, number) for number in range(record.settings.partitions))
    if chosen.isolation == "committed":
        decided = {place: one.last_id for place, one in hosts.held(held, chosen.isolation).items()}
        until = decided_end(until, [(one.last_id, decided[place]) for place, one in held.items()])
        held = {
            place: msgspec.structs.replace(one, last_id=min(one.last_id, decided[place])) for place, one in held.items()
        }
    taken = chosen.partitions or range(record.settings.partitions)
    spans = [
        within(place, one, after, until) if place[1] in taken else Span(*place, one.last_id, one.last_id)
        for place, one in held.items()
    ]
    counts = {span.partition: span.messages for span in hosts.counted(spans)}
    return Pinned(
        chosen if until == check_start(chosen.end) else msgspec.structs.replace(chosen, end=MessageId(until + 1)),
        record.generation,
        tuple(msgspec.structs.replace(span, messages=counts.get(span.partition, 0)) for span in spans),
    )


def with_end(chosen: Chosen) -> Chosen:
    """With an end that stays when more is published: that of now if none is named. Raises as `pin`."""
    with engine(chosen.zookeeper) as hosts:
        return msgspec.structs.replace(chosen, end=pin(hosts, chosen).end)


def within(place: tuple[str, int], held: Held, after: int, until: int) -> Span:
    """What lies in a partition above `after` and up to `until`, which may be LATEST."""
    first = min(max(after, held.first_id - 1), held.last_id) if held.messages else held.last_id
    last = held.last_id if until == LATEST else min(until, held.last_id)
    return Span(*place, first, max(first, last))


def decided_end(until: int, ends: Sequence[tuple[int, int]]) -> int:
    """Up to where it is known of every message whether it is committed, so that it is the same ones the next time.

    `ends` are of each partition what it holds, and what of it is decided. Raises InvalidRequest for a named end beyond.
    """
    last = min((decided for held, decided in ends if decided < held), default=ID_MAX)
    if until == LATEST:
        return LATEST if last == ID_MAX else last
    if until > last:
        raise InvalidRequest(
            f"a transaction that is in progress has published from {MessageId(last + 1)} on, before the end: wait for"
            " it, or end there"
        )
    return until
