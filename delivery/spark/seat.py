"""A stream's seat as the reader of a subscription: attached like a subscriber, but nothing is pushed to it.

The driver registers a listener that pulls, so that a second reader is refused, and takes the states over, so that no
host saves them any more. Who takes the subscription over from it moves their versions again: then the stream's next
save is refused, and it ends with an error. The states keep the epochs that they have: whichever host owns a partition
when a subscriber comes finds an epoch that is not above its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from delivery import wall
from delivery.errors import BadVersion, Fenced, HootError, SubscriptionBusy, SubscriptionExists, UnknownSubscription
from delivery.metastore.access import ATTEMPTS, crowded, give_way
from delivery.metastore.catalog import Catalog
from delivery.metastore.flow import lasting
from delivery.metastore.managers.changes import SaveState, Taken, TakeState
from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.records import ListenerRecord, QueueRecord, SubscriptionRecord
from delivery.metastore.request import new_record, rebased
from delivery.metastore.tables.versions import Versioned
from delivery.networks import Networks
from delivery.rpc.hello import is_alive
from delivery.spark.options import ReadOptions
from delivery.spark.planning import Engine, check_named
from delivery.spark.presence import Presence
from delivery.spark.ranges import begin
from delivery.spark.subscribing import Mark, PositionsDiffer, check_agrees, check_fits, moves_of, request_of


class Seat:
    """Blocking; for the driver's one thread. Whoever takes one leaves it."""

    def __init__(self, hosts: Engine, options: ReadOptions) -> None:
        """Take the seat; the subscription is made when it is not there.

        Raises SubscriptionBusy while another reader is attached, unless forced; InvalidRequest for one that a stream
        cannot read as it is, UnknownQueue, NoHost, MetadataUnavailable.
        """
        self._catalog: Final = hosts.catalog
        self.record = record = _registered(hosts, options)
        self.options: Final = msgspec.structs.replace(
            options, assigned={record.queue: tuple(sorted(record.starts))}, topics=record.topics,
            filter=record.filter or "", isolation=record.isolation,
        )  # fmt: skip
        """The stream's, with what of them the subscription decides."""
        self._presence: Final = Presence(options.zookeeper)
        try:
            self._attach(replace=_replaceable(self._catalog, self.record, force=options.force))
            self._states = _taken(self._catalog, self.record)
        except BaseException:
            self.leave()
            raise

    @property
    def mark(self) -> Mark:
        """What the stream's offsets are to tell of the subscription."""
        return Mark(self.record.created_ms, moves_of(self._known()))

    @property
    def positions(self) -> dict[int, int]:
        """By partition, the id up to which all is read."""
        return {number: one.value.position for number, one in self._states.items()}

    def check(self, begins: Mapping[int, int], mark: Mark | None) -> None:
        """Raise PositionsDiffer unless a stream whose checkpoint stands behind these ids can go on."""
        check_agrees(self.record, self._known(), begins, mark)

    def is_open(self) -> bool:
        """Whether the stream may read on now: it is not paused.

        Raises SubscriptionBusy when another reader has taken the seat, UnknownSubscription, MetadataUnavailable.
        """
        queue, name = self.record.queue, self.record.name
        found = self._catalog.subscription(queue, name)
        if found is None or found.created_ms != self.record.created_ms:
            raise UnknownSubscription(f"subscription {name!r} of queue {queue!r}, which this stream reads, was deleted")
        holder = self._catalog.listener(queue, name)
        if holder is not None and holder != self._presence.listener:
            raise SubscriptionBusy(
                f"subscription {name!r} of queue {queue!r} was taken over from this stream by the reader at"
                f" {holder.host_port}",
                address=holder.host_port,
            )
        if holder is None:
            self._attach(replace=None)  # the session was lost, and nobody has come since
        return lasting(found.pause, wall.ms()) is None

    def reached(self, positions: Mapping[int, int]) -> None:
        """Save that all up to these ids is read, as far as they are ahead of what is saved. Raises as `is_open`, and
        PositionsDiffer when somebody has moved the subscription by hand.
        """
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            if not self._save(positions):
                return
            # A host that had not heard yet of the new reader read the states again; or there is another reader.
            moves = moves_of(self._known())
            self.is_open()
            self._states = _taken(self._catalog, self.record)
            if moves_of(self._known()) != moves:
                raise PositionsDiffer(
                    f"subscription {self.record.name!r} of queue {self.record.queue!r} was moved by hand, and a stream"
                    " cannot follow: one with a new checkpointLocation begins where the subscription stands"
                )
        raise crowded(f"the states of subscription {self.record.name!r}")

    def leave(self) -> None:
        """Let others have it; where ZooKeeper does not answer, when this session is over."""
        self._presence.close()
        with contextlib.suppress(HootError):
            self._catalog.detach(self.record.queue, self.record.name, self._presence.listener)

    def _attach(self, replace: ListenerRecord | None) -> None:
        self._catalog.attach(self.record.queue, self.record.name, self._presence.listener, replace=replace)

    def _known(self) -> dict[int, SubscriptionState]:
        return {number: one.value for number, one in self._states.items()}

    def _save(self, positions: Mapping[int, int]) -> bool:
        """Whether one was refused because others have written it."""
        saves = [
            SaveState(self.record.queue, self.record.name, number, _at(known.value, positions[number]), known.version)
            for number, known in self._states.items()
            if positions.get(number, -1) > known.value.position
        ]
        refused = False
        for save, outcome in zip(saves, self._catalog.save_states(saves) if saves else (), strict=True):
            if isinstance(outcome, BadVersion | Fenced):
                refused = True
            elif isinstance(outcome, HootError):
                raise outcome
            else:
                self._states[save.partition] = Versioned(save.state, outcome)
        return refused


def _at(state: SubscriptionState, position: int) -> SubscriptionState:
    return msgspec.structs.replace(state, position=position, failing=None)


def _registered(hosts: Engine, options: ReadOptions) -> SubscriptionRecord:
    """The subscription, made or given new partitions where it must be."""
    catalog, name = hosts.catalog, options.subscription
    queue = catalog.queue(options.names[0])
    for attempt in range(ATTEMPTS):
        give_way(attempt)
        found = catalog.subscription(queue.name, name)
        if found is not None and found.generation != queue.generation:
            catalog.delete_subscription(queue.name, name)  # left over from an earlier queue of this name
            found = None
        if found is not None:
            check_fits(options, found, catalog.states(queue.name, name))
        wanted = _wanted(hosts, options, queue, found)
        if found is not None:
            return catalog.change_subscription(queue.name, name, partial(rebased, wanted, found))
        with contextlib.suppress(SubscriptionExists):
            catalog.create_subscription(wanted)
            return wanted
    raise crowded(f"subscription {name!r}")


def _wanted(
    hosts: Engine, options: ReadOptions, queue: QueueRecord, found: SubscriptionRecord | None
) -> SubscriptionRecord:  # fmt: skip
    """The subscription as it is to be; what it does not have yet begins where the options say."""
    isolation = options.isolation or (None if found is None else found.isolation)

    def last_id(number: int) -> int:
        place = (queue.name, number)
        return hosts.held([place], isolation)[place].last_id

    every: Iterable[int] = range(queue.settings.partitions)
    if found is None:
        new = options.assigned.get(queue.name, every)
        check_named(options, [(queue.name, number) for number in new])
    else:
        new = [number for number in every if found.all_partitions and number not in found.starts]
    starts = {
        place[1]: max(0, begin(options.start, place, held, strict=options.fail_on_loss))
        for place, held in hosts.held([(queue.name, number) for number in new], isolation).items()
    }
    return new_record(request_of(options, found, starts), options.subscription, queue, found, last_id, wall.ms())


def _replaceable(catalog: Catalog, record: SubscriptionRecord, *, force: bool) -> ListenerRecord | None:
    """Who is attached, if that is dead or it is forced; None when there is nobody, or nobody that may be replaced."""
    found = catalog.listener(record.queue, record.name)
    if found is None or force:
        return found
    networks = [host.networks for host in catalog.readable_hosts()[0]] or [Networks()]
    return None if is_alive(found, record.queue, record.name, networks) else found


def _taken(catalog: Catalog, record: SubscriptionRecord) -> dict[int, Taken]:
    """The states, under versions that nobody else holds."""
    for attempt in range(ATTEMPTS):
        give_way(attempt)
        known = catalog.states(record.queue, record.name)
        takes = [TakeState(record, number, known[number].epoch if number in known else 0) for number in record.starts]
        taken: dict[int, Taken] = {}
        for take, outcome in zip(takes, catalog.take_states(takes), strict=True):
            if isinstance(outcome, HootError) and not isinstance(outcome, Fenced | BadVersion):
                raise outcome
            if not isinstance(outcome, HootError):
                taken[take.partition] = outcome
        if len(taken) == len(takes):
            return taken
    raise crowded(f"the states of subscription {record.name!r}")
