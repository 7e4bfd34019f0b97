"""Whether a stream can be the reader of a subscription, and whether its checkpoint agrees with it. Plain.

A stream's offsets and a subscription's positions both say how far the reader is. The checkpoint leads, for Spark goes
on there whatever a source says; the positions follow after each micro-batch, so they may be behind it. Where they are
ahead, or were moved by hand, somebody else has read or decided something that the checkpoint does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from delivery.errors import HootError, InvalidRequest
from delivery.filters import KEEP, topics_asked
from delivery.ids import MessageId
from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.request import Request, check_request
from delivery.spark.options import ReadOptions

MARK: Final = "@subscription"
"""In a stream's offset, where names of queues are the other entries; no queue can be called so."""


class PositionsDiffer(HootError):
    """A stream's checkpoint and its subscription cannot both be right."""

    code = "positions_differ"


class Mark(msgspec.Struct, frozen=True):
    """What a stream's offset tells of its subscription."""

    created: int
    """Its time of creation, which tells it from others of the name."""
    moves: int
    """The number of the last move of its positions by hand."""


def marked(offset: Mapping[str, Any]) -> Mark | None:
    """The mark in a stream's offset; None when the stream had no subscription."""
    return msgspec.convert(offset[MARK], Mark) if MARK in offset else None


def request_of(options: ReadOptions, found: SubscriptionRecord | None, starts: Mapping[int, int]) -> Request:
    """What a stream asks for of its subscription: all as it is, or as the options say when it is not there.

    `starts` are the ids after which partitions begin that it does not have yet.
    """
    [queue] = options.names
    if found is None:
        chosen = options.assigned.get(queue)
        asked = check_request(
            queue, chosen, options.topics or None, "latest", options.filter or None, isolation=options.isolation
        )
    else:
        asked = check_request(queue, None if found.all_partitions else tuple(found.starts), KEEP, "latest")
    return msgspec.structs.replace(asked, starts=dict(starts))


def check_fits(options: ReadOptions, found: SubscriptionRecord, states: Mapping[int, SubscriptionState]) -> None:
    """Raise InvalidRequest when a stream cannot do what the subscription promises, or asks for something else."""
    whose = f"subscription {found.name!r} of queue {found.queue!r}"
    if wrong := next(_unfit(found, states), ""):
        raise InvalidRequest(f"{whose} {wrong}, which a stream of Spark cannot heed: give the stream one of its own")
    if wrong := next(_differing(options, found), ""):
        raise InvalidRequest(
            f"{whose} has other {wrong} than this stream asks for: leave them out, or change the subscription with"
            " `hoot subscription update`"
        )


def _unfit(found: SubscriptionRecord, states: Mapping[int, SubscriptionState]) -> Iterator[str]:
    if found.kind != "exclusive":
        yield f"is {found.kind}, for several members"
    if found.replay is not None:
        yield "is a replay"
    if found.bound:
        yield "is bound to the newest messages"
    reached = {number: states[number].position if number in states else at for number, at in found.starts.items()}
    if any(reached.get(number, 0) < at for number, at in found.newest.items()):
        yield "has begun with the newest message of each key"
    if any(state.parked for state in states.values()):
        yield "has parked messages (`hoot subscription parked` shows them)"


def _differing(options: ReadOptions, found: SubscriptionRecord) -> Iterator[str]:
    chosen = options.assigned.get(found.queue)
    if chosen is not None and set(chosen) != set(found.starts):
        yield "partitions"
    if options.topics and topics_asked(options.topics) != found.topics:
        yield "topics"
    if options.filter and request_of(options, None, {}).filter != found.filter:
        yield "filter"
    if options.isolation not in (None, found.isolation):
        yield "isolation"


def check_agrees(
    record: SubscriptionRecord, states: Mapping[int, SubscriptionState], begins: Mapping[int, int], mark: Mark | None
) -> None:  # fmt: skip
    """Raise PositionsDiffer unless a stream can go on behind the ids `begins`, by partition, with that mark."""
    whose = f"subscription {record.name!r} of queue {record.queue!r}"
    if mark is None:
        wrong = f"was written without {whose}"
    elif mark.created != record.created_ms:
        wrong = f"was written with an earlier {whose}, which was deleted"
    elif mark.moves != moves_of(states):
        wrong = f"is older than the last move of {whose} by hand"
    else:
        ahead = {number: one.position for number, one in states.items() if one.position > begins.get(number, -1)}
        if not ahead:
            return
        number, position = min(ahead.items())
        wrong = (
            f"is behind {whose}: in partition {number} somebody has read up to {MessageId(position)} since, and the"
            f" stream stands at {MessageId(max(0, begins.get(number, 0)))}"
        )
    raise PositionsDiffer(
        f"the stream's checkpoint {wrong}. A stream with a new checkpointLocation begins where the subscription stands;"
        " to go on from this checkpoint, leave the option subscription out"
    )


def moves_of(states: Mapping[int, SubscriptionState]) -> int:
    """The number of the last move by hand."""
    return max((one.moves for one in states.values()), default=0)
