"""What somebody asks for who subscribes, checked before anything is written.

Where to begin is a Start (see delivery.ids), per partition; "latest", the default, means the last message stored when
the subscription is registered. A start counts once: a subscription that exists goes on at its checkpoints, whatever the
start.

Topics and filter stay as they are where they are left out (`KEEP`), so that what an operator changed in a running
subscription is not undone by the next start of its program; None means none. So do its retry policy and its flow, where
none is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from delivery.errors import InvalidRequest
from delivery.filters import KEEP, FilterGiven, Keep, TopicsGiven, filter_asked, kept, topics_asked
from delivery.ids import LATEST, MessageId, Start, check_start, first_id_at
from delivery.metastore.flow import Flow, FlowGiven, changed_flow
from delivery.metastore.policy import RetryPolicy, check_policy, dead_letter_queue
from delivery.metastore.records import QueueRecord, SubscriptionRecord
from delivery.model import check_name, check_partition

Partitions = int | Iterable[int] | Mapping[int, Start] | None
"""One, some, some with their starts, or all that the queue has."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request. Starts are ids after which to begin (exclusive), or LATEST."""

    queue: str
    partitions: tuple[int, ...] | None
    """None for all that the queue has."""
    starts: dict[int, int]
    """For the partitions that have a start of their own."""
    start: int
    """For all others."""
    topics: tuple[str, ...] | Keep
    """Names and patterns; empty for all."""
    filter: str | Keep | None = KEEP
    """A rule in its canonical JSON."""
    retry: RetryPolicy | None = None
    """None leaves it as it is."""
    flow: FlowGiven = KEEP


def check_request(
    queue: str,
    partitions: Partitions,
    topics: TopicsGiven,
    start: Start | Mapping[int, Start],
    filter: FilterGiven = KEEP,  # noqa: A002 - it is called so everywhere
    retry: RetryPolicy | None = None,
    *,
    flow: FlowGiven = KEEP,
) -> Request:
    """The request in these words. Raises InvalidRequest for whatever can be wrong without knowing the queue."""
    own: Mapping[int, Start] = {}
    if isinstance(partitions, Mapping):
        own, partitions = partitions, tuple(partitions)
    if isinstance(start, Mapping):
        if own:
            raise InvalidRequest("starts per partition are given twice, with partitions and with start")
        own, start = start, "latest"
    chosen = None if partitions is None else _checked_partitions(partitions)
    if chosen is not None and (foreign := [number for number in own if number not in chosen]):
        raise InvalidRequest(f"a start is given for partition {foreign[0]}, which is not among those subscribed to")
    changed_flow(flow, Flow())
    return Request(
        queue=check_name("queue", queue), partitions=chosen, start=check_start(start),
        starts={number: check_start(one) for number, one in own.items()},
        topics=topics_asked(topics), filter=filter_asked(filter), retry=None if retry is None else check_policy(retry),
        flow=flow,
    )  # fmt: skip


def _checked_partitions(partitions: int | Iterable[int]) -> tuple[int, ...]:
    try:
        numbers = (partitions,) if isinstance(partitions, int) else tuple(partitions)
    except TypeError:
        raise InvalidRequest(f"partitions are numbers, not {str(partitions)[:40]!r}") from None
    if not numbers:
        raise InvalidRequest("name at least one partition, or None for all")
    if wrong := [one for one in numbers if type(one) is not int]:
        raise InvalidRequest(f"a partition is a number, not {str(wrong[0])[:40]!r}")
    return tuple(sorted(set(numbers)))


def partitions_of(request: Request, queue: QueueRecord) -> tuple[int, ...]:
    """The partitions asked for. Raises UnknownPartition when the queue lacks one."""
    count = queue.settings.partitions
    for number in (*(request.partitions or ()), *request.starts):
        check_partition(number, count, queue.name)
    return request.partitions or tuple(range(count))


def new_record(
    request: Request, name: str, queue: QueueRecord, found: SubscriptionRecord | None,
    last_id: Callable[[int], int], now_ms: int,
) -> SubscriptionRecord:  # fmt: skip
    """The durable record that `request` makes of `found`, or of nothing.

    Partitions that `found` has keep their starts (and by that, their checkpoints), and so does its retry policy unless
    another is asked for. `last_id(partition)` asks a host; it
    is called only for partitions that begin at the latest message, or at an id that may lie in the future.
    """
    if found is not None and found.generation != queue.generation:
        found = None
    if request.retry is not None and request.retry.dead_letters:
        dead_letter_queue(queue.name, name)
    known = {} if found is None else found.starts
    starts = {
        number: known[number] if number in known else _resolve(request, number, last_id, now_ms)
        for number in partitions_of(request, queue)
    }
    return SubscriptionRecord(
        name=name, queue=queue.name, generation=queue.generation, starts=starts,
        topics=kept(request.topics, () if found is None else found.topics),
        filter=kept(request.filter, None if found is None else found.filter),
        created_ms=now_ms if found is None else found.created_ms, all_partitions=request.partitions is None,
        moves=0 if found is None else found.moves,
        retry=request.retry or (RetryPolicy() if found is None else found.retry),
        released_ms=0 if found is None else found.released_ms,
        flow=changed_flow(request.flow, Flow() if found is None else found.flow),
        pause=None if found is None else found.pause,
    )  # fmt: skip


def _resolve(request: Request, partition: int, last_id: Callable[[int], int], now_ms: int) -> int:
    start = request.starts.get(partition, request.start)
    if start == LATEST:
        return last_id(partition)
    # Ids may run ahead of the clock, so that one above it is in the future only if the partition is not there yet.
    if start > first_id_at(now_ms) and start > last_id(partition):
        raise InvalidRequest(
            f"the start {MessageId(start + 1)} ({MessageId(start).time:%Y-%m-%d %H:%M:%S} UTC) lies in the future of"
            f" partition {partition} of queue {request.queue!r}"
        )
    return start
