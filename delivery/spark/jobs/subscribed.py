"""What is replayed to a subscription: which messages, where they are stored, and how its listeners come to hear them.

They are stored in `<queue>.<subscription>.replay`, which is made when there are the first ones, to which a subscription
of the same name is made, with the same options. Subscribers are told by the preferences of the one that they are
attached to (subscriber.replays). Each step is done only where it is not done yet, so a replay that was killed between
two of them is gone on with by the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import msgspec

from delivery import wall
from delivery.errors import InvalidRequest, QueueExists, SubscriptionExists, UnknownQueue, UnknownSubscription
from delivery.metastore.policy import dead_letter_queue
from delivery.metastore.records import QueueRecord, SubscriptionRecord
from delivery.metastore.replays import replay_queue
from delivery.model import BODY_BYTES_LIMIT, QueueSettings
from delivery.spark.jobs.choosing import Chosen
from delivery.spark.planning import Engine, engine


class Into(msgspec.Struct, frozen=True):
    """The queue in which a replay is stored."""

    queue: str
    settings: QueueSettings
    opened: Callable[[], str]
    """Has it be there, and gives its generation."""


def as_subscribed(chosen: Chosen, name: str) -> Chosen:
    """What a replay to that subscription takes. Raises UnknownQueue, UnknownSubscription, InvalidRequest."""
    with engine(chosen.zookeeper) as hosts:
        return taken_by(found(hosts, chosen.queue, name), chosen)


def found(hosts: Engine, queue: str, name: str) -> SubscriptionRecord:
    """The subscription. Raises UnknownQueue, UnknownSubscription with the near name, InvalidRequest for a replay."""
    record = hosts.catalog.change_subscription(queue, name, lambda same: same)
    if record.generation != hosts.queue(queue).generation:
        raise UnknownSubscription(f"queue {queue!r} has no subscription {name!r}: an earlier queue of the name had one")
    if record.replay is not None:
        raise InvalidRequest(f"subscription {name!r} is a replay itself: replay to {record.replay.of!r}")
    place = replay_queue(queue, name)
    if record.retry.dead_letters:
        dead_letter_queue(place, name)
    return record


def taken_by(record: SubscriptionRecord, chosen: Chosen) -> Chosen:
    """Of what was chosen what the subscription takes, too; topics and filter are its own where none are named."""
    return msgspec.structs.replace(
        chosen, topics=chosen.topics or record.topics, filter=chosen.filter or record.filter or "",
        partitions=() if record.all_partitions else tuple(sorted(record.starts)), isolation=record.isolation,
    )  # fmt: skip


def place_for(hosts: Engine, record: SubscriptionRecord, source: QueueSettings) -> Into:
    """The queue of a subscription's replays, which need not be there yet; with as many partitions as the source."""
    name = replay_queue(record.queue, record.name)
    settings = settings_like(source)
    with contextlib.suppress(UnknownQueue):
        settings = hosts.queue(name).settings
    return Into(name, settings, lambda: _opened(hosts, record, name, settings))


def settings_like(source: QueueSettings) -> QueueSettings:
    """Of a queue of replays: it holds what the source can hold, and forgets nothing by itself."""
    return QueueSettings(
        partitions=source.partitions, durability=source.durability, layout=source.layout,
        body_bytes_max=BODY_BYTES_LIMIT,
    )  # fmt: skip


def heir_of(
    record: SubscriptionRecord, queue: QueueRecord, starts: Mapping[int, int], now_ms: int
) -> SubscriptionRecord:  # fmt: skip
    """The subscription of the replays: handled as the other one is, and with all that is stored for it.

    What it takes was chosen when it was stored, and nothing there is of a transaction.
    """
    return msgspec.structs.replace(
        record, queue=queue.name, generation=queue.generation, created_ms=now_ms, starts=dict(starts),
        all_partitions=True, topics=(), filter=None, isolation="uncommitted", bound=0, newest={}, moves=0,
        released_ms=0, pause=None, holders={}, replayed_ms=0,
    )  # fmt: skip


def _opened(hosts: Engine, record: SubscriptionRecord, name: str, settings: QueueSettings) -> str:
    """Have the queue, its subscription and the note of it be there; the queue's generation."""
    with contextlib.suppress(QueueExists):
        hosts.catalog.create_queue(name, settings)
    queue = hosts.queue(name)
    heir = _heir(hosts, record, queue)
    hosts.catalog.change_subscription(
        record.queue, record.name, lambda now: msgspec.structs.replace(now, replayed_ms=heir.created_ms)
    )
    return queue.generation


def _heir(hosts: Engine, record: SubscriptionRecord, queue: QueueRecord) -> SubscriptionRecord:
    catalog = hosts.catalog
    there = catalog.subscription(queue.name, record.name)
    if there is not None and there.generation == queue.generation:
        return there
    if there is not None:  # of an earlier queue of this name
        catalog.delete_subscription(queue.name, record.name)
    places = [(queue.name, number) for number in range(queue.settings.partitions)]
    ends = {number: one.last_id for (_, number), one in hosts.held(places).items()}
    made = heir_of(record, queue, ends, wall.ms())
    try:
        catalog.create_subscription(made)
    except SubscriptionExists:  # another replay was faster
        return _heir(hosts, record, queue)
    return made
