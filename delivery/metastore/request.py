"""What somebody asks for who subscribes, checked before anything is written.

Where to begin is a Start (see delivery.ids), per partition; "latest", the default, means the last message stored when
the subscription is registered. A start counts once: a subscription that exists goes on at its checkpoints, whatever the
start.

Topics and filter stay as they are where they are left out (`KEEP`), so that what an operator changed in a running
subscription is not undone by the next start of its program; None means none. So do its kind and its flow, where none is
given, and the fields of its retry policy that are not given; in a mapping, None means the default.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, Literal, get_args

import msgspec

from delivery.errors import InvalidRequest, SubscriptionExists, UnknownSubscription
from delivery.filters import KEEP, FilterGiven, Keep, TopicsGiven, filter_asked, kept, topics_asked
from delivery.ids import EARLIEST, LATEST, LATEST_PER_KEY, MessageId, Start, check_start, first_id_at
from delivery.metastore.flow import Flow, FlowGiven, changed_flow
from delivery.metastore.groups import Kind, check_kind
from delivery.metastore.policy import RetryGiven, RetryPolicy, changed_policy, retry_asked
from delivery.metastore.records import QueueRecord, SubscriptionRecord
from delivery.model import NAME_MAX, Isolation, check_isolation, check_name, check_partition

Partitions = int | Iterable[int] | Mapping[int, Start] | None
"""One, some, some with their starts, or all that the queue has."""


Mode = Literal["create_or_attach", "create", "attach"]
MODES: Final[tuple[str, ...]] = get_args(Mode)
BOUND_MAX: Final = 1_000_000_000
RESERVED: Final = "__"
"""What the names of Hoot's own subscriptions begin with, as Hedwig had it for its hubs'."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request. Starts are ids after which to begin (exclusive), or LATEST."""

    queue: str
    """Or, of a subscriber, a pattern of queues (`orders.*`)."""
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
    newest: bool = False
    """Partitions without a start of their own begin with the newest message of each key."""
    retry: Mapping[str, object] = {}
    """The fields of its RetryPolicy that are to change."""
    bound: int | None = None
    """None leaves it as it is, 0 takes it away."""
    kind: Kind | None = None
    """None leaves it as it is."""
    flow: FlowGiven = KEEP
    isolation: Isolation | None = None
    """None leaves it as it is."""
    mode: Mode = "create_or_attach"
    """Whether it may be there already, and may be new."""


def check_request(  # noqa: PLR0913 - a subscription has so many sides
    queue: str,
    partitions: Partitions,
    topics: TopicsGiven,
    start: Start | Mapping[int, Start],
    filter: FilterGiven = KEEP,  # noqa: A002 - it is called so everywhere
    *,
    retry: RetryGiven = None,
    kind: str | None = None,
    bound: int | None = None,
    mode: Mode = "create_or_attach",
    flow: FlowGiven = KEEP,
    isolation: Isolation | None = None,
) -> Request:
    """The request in these words. Raises InvalidRequest for whatever can be wrong without knowing the queue."""
    if mode not in MODES:
        raise InvalidRequest(f"mode must be one of {', '.join(MODES)}, not {str(mode)[:40]!r}")
    own: Mapping[int, Start] = {}
    if isinstance(partitions, Mapping):
        own, partitions = partitions, tuple(partitions)
    if isinstance(start, Mapping):
        if own:
            raise InvalidRequest("starts per partition are given twice, with partitions and with start")
        own, start = start, "latest"
    newest = start == LATEST_PER_KEY
    chosen = None if partitions is None else _checked_partitions(partitions)
    if chosen is not None and (foreign := [number for number in own if number not in chosen]):
        raise InvalidRequest(f"a start is given for partition {foreign[0]}, which is not among those subscribed to")
    changed_flow(flow, Flow())
    if newest and check_bound(bound):
        raise InvalidRequest(
            f"start {LATEST_PER_KEY!r} is about the newest message of each key, however far back, and bound {bound}"
            " leaves out what is far back: give one of them"
        )
    return Request(
        queue=_checked_queue(queue, has_partitions=bool(own) or chosen is not None), partitions=chosen,
        start=EARLIEST if newest else check_start(start),
        starts={number: check_start(one) for number, one in own.items()},
        topics=topics_asked(topics), filter=filter_asked(filter), newest=newest, retry=retry_asked(retry), mode=mode,
        kind=None if kind is None else check_kind(kind), bound=check_bound(bound), flow=flow,
        isolation=None if isolation is None else check_isolation(isolation),
    )  # fmt: skip


def _checked_queue(queue: str, *, has_partitions: bool) -> str:
    """The name of a queue, or a pattern of names."""
    if "*" not in str(queue):
        return check_name("queue", queue)
    if len(queue) > NAME_MAX:
        raise InvalidRequest(f"{queue[:40]!r}… is no pattern of queues: it has more than {NAME_MAX} characters")
    if (rest := queue.replace("*", "")) not in ("", ".", ".."):
        check_name("queue", rest)
    if has_partitions:
        raise InvalidRequest(f"{queue[:60]!r} may be many queues: partitions can be chosen only of a single one")
    return queue


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

    Partitions that `found` has keep their starts (and by that, their checkpoints), it keeps its kind unless another is
    asked for, and its retry policy what is not asked for otherwise. `last_id(partition)` asks a host; it is called only
    for partitions that begin at the latest message, or at an id that may lie in the future. Raises SubscriptionExists
    or UnknownSubscription when that is not what the request expects, and InvalidRequest for a name that is reserved.
    """
    if found is not None and found.generation != queue.generation:
        found = None
    _check_expected(request, name, found)
    retry = changed_policy(RetryPolicy() if found is None else found.retry, request.retry, queue.name, name)
    known = {} if found is None else found.starts
    starts = {
        number: known[number] if number in known else _resolve(request, number, last_id, now_ms)
        for number in partitions_of(request, queue)
    }
    newest = _newest(request, starts, {} if found is None else found.newest, known, last_id)
    return SubscriptionRecord(
        name=name, queue=queue.name, generation=queue.generation, starts=starts,
        topics=kept(request.topics, () if found is None else found.topics),
        filter=kept(request.filter, None if found is None else found.filter),
        created_ms=now_ms if found is None else found.created_ms, all_partitions=request.partitions is None,
        moves=0 if found is None else found.moves,
        retry=retry, newest=newest, replay=None if found is None else found.replay,
        released_ms=0 if found is None else found.released_ms,
        flow=changed_flow(request.flow, Flow() if found is None else found.flow),
        pause=None if found is None else found.pause,
        kind=request.kind or ("exclusive" if found is None else found.kind),
        bound=request.bound if request.bound is not None else 0 if found is None else found.bound,
        isolation=request.isolation or ("uncommitted" if found is None else found.isolation),
        replayed_ms=0 if found is None else found.replayed_ms,
        holders={} if found is None else found.holders,
    )  # fmt: skip


def rebased(record: SubscriptionRecord, found: SubscriptionRecord, now: SubscriptionRecord) -> SubscriptionRecord:
    """`record`, which was made of `found`, made of what has become of that by `now`.

    Only what it changes counts: whoever moved, paused or released the subscription meanwhile did so after it was read.
    """
    changed = {
        name: value
        for name in SubscriptionRecord.__struct_fields__
        if (value := getattr(record, name)) != getattr(found, name)
    }
    if "newest" in changed:  # a move ended that of all partitions that had begun, and is no reason to begin anew
        changed["newest"] = {n: at for n, at in record.newest.items() if n in now.newest or n not in found.newest}
    return msgspec.structs.replace(now, **changed)


def _newest(
    request: Request, starts: Iterable[int], begun: Mapping[int, int], known: Container[int],
    last_id: Callable[[int], int],
) -> dict[int, int]:  # fmt: skip
    """The partitions that begin with the newest message of each key, and up to where."""
    return {
        number: begun[number] if number in begun else last_id(number)
        for number in starts
        if number in begun or (request.newest and number not in known and number not in request.starts)
    }


def check_own_name(name: str) -> str:
    """`name` if it may name a subscription of an application's. Raises InvalidRequest."""
    if check_name("subscription", name).startswith(RESERVED):
        raise InvalidRequest(f"{name!r}: names of subscriptions that begin with {RESERVED} are Hoot's own")
    return name


def check_bound(bound: int | None) -> int | None:
    """`bound` if it can be. Raises InvalidRequest."""
    given: object = bound
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= BOUND_MAX):
        raise InvalidRequest(f"bound is a number of messages up to {BOUND_MAX:,}, 0 for none, not {str(given)[:40]}")
    return bound


def _check_expected(request: Request, name: str, found: SubscriptionRecord | None) -> None:
    check_own_name(name)
    if found is not None and request.mode == "create":
        raise SubscriptionExists(f"queue {request.queue!r} has a subscription {name!r} already")
    if found is None and request.mode == "attach":
        raise UnknownSubscription(f"queue {request.queue!r} has no subscription {name!r} to attach to")


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
