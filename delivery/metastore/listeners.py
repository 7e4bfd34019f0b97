"""The catalog's listeners: who is attached to which subscription, as znodes that live with a session.

An exclusive subscription has one, under its name; a group has one for each member. They are ephemeral, and the version
of an ephemeral znode proves nothing (see `ops`): each change of one moves the version of the queue's folder in the same
transaction. So of several who attach or take over at once one succeeds, and nobody removes a listener that it has not
seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from delivery.errors import BadVersion, CorruptRecord, HootError, SubscriptionBusy
from delivery.metastore import records
from delivery.metastore.access import ATTEMPTS, crowded, give_way
from delivery.metastore.managers.records import subscription_key
from delivery.metastore.ops import Create, Delete, Op, Set
from delivery.metastore.queues import Queues
from delivery.metastore.records import ListenerRecord
from delivery.model import check_name

Seat = tuple[str, str, str]
"""Queue, subscription and member; no member for an exclusive one."""


class Listeners(Queues):
    """Who is attached."""

    def detach(self, queue: str, name: str, record: ListenerRecord) -> None:
        """Take `record` off a subscription; does nothing when it is not, or no longer, what is attached."""
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            if self._take_off(queue, name, record):
                return
        raise crowded(f"the listeners of queue {queue!r}")

    def listener(self, queue: str, name: str, member: str = "") -> ListenerRecord | None:
        """Who is attached to an exclusive subscription, or as this member of a group. Raises CorruptRecord."""
        path = _path((queue, name, member))
        record = self._get(path, ListenerRecord)
        return None if record is None else _checked(path, record)

    def members(self, queue: str, name: str) -> list[ListenerRecord]:
        """All who are attached to a subscription, by the names of the members; but for damaged ones."""
        seats = [(queue, name, member) for member in self.seats([queue])[0].get(name, ())]
        return [found for found in self.read_listeners(seats) if isinstance(found, ListenerRecord)]

    def listeners(self, queue: str) -> list[str]:
        """The names of the subscriptions that somebody is attached to, sorted. Raises UnknownQueue."""
        [found] = self.seats([queue])
        if not found:
            self._check_queue(queue)
        return sorted(found)

    def attached_queues(self) -> list[str]:
        """The queues that somebody is or was attached to, sorted."""
        return self._zk.children(records.LISTENERS) or []

    def seats(self, queues: Sequence[str]) -> list[dict[str, tuple[str, ...]]]:
        """Per queue the subscriptions that somebody is attached to, with the members; none for no queue."""
        folders = [records.listeners_path(check_name("queue", queue)) for queue in queues]
        found: list[dict[str, tuple[str, ...]]] = []
        for nodes in self._zk.children_many(folders):
            seats: dict[str, tuple[str, ...]] = {}
            for name, member in map(records.seat, nodes or ()):
                seats[name] = (*seats.get(name, ()), member)
            found.append(seats)
        return found

    def read_listeners(self, seats: Sequence[Seat]) -> list[ListenerRecord | CorruptRecord | None]:
        """Who is attached at many (queue, subscription, member); a damaged one is its error."""
        paths = [_path(seat) for seat in seats]
        return [
            None if found is None else _decoded(path, found[0])
            for path, found in zip(paths, self._zk.get_many(paths), strict=True)
        ]

    def _put_listener(self, queue: str, name: str, record: ListenerRecord, replace: ListenerRecord | None) -> bool:
        """Attach, if nobody changes the queue's listeners at the same time."""
        path, value = _path((queue, name, record.member)), records.encode(record)
        folder = records.listeners_path(queue)
        guard, held = self._zk.get_many([folder, path])
        ops: list[Op] = [Create(folder) if guard is None else Set(folder, b"", guard[1])]
        if held is not None:
            holder = _checked(path, records.decode(held[0], ListenerRecord, path))
            if holder not in (record, replace):
                raise _busy(queue, name, holder)
            ops.append(Delete(path, held[1]))
        refused = self._apply([*ops, Create(path, value, ephemeral=True)], path, value)
        if refused is not None and not isinstance(refused.error, BadVersion):
            raise refused.error
        return refused is None

    def _take_off(self, queue: str, name: str, only: ListenerRecord | None = None) -> bool:
        """Detach all who are attached, or `only` that one; whether nobody was in the way."""
        folder = records.listeners_path(queue)
        [guard] = self._zk.get_many([folder])  # first: it tells whether any came after the others were listed
        members = self.seats([queue])[0].get(name, ()) if only is None else (only.member,)
        paths = [_path((queue, name, member)) for member in members]
        held = {path: found for path, found in zip(paths, self._zk.get_many(paths), strict=True) if found is not None}
        if only is not None:
            held = {at: one for at, one in held.items() if records.decode(one[0], ListenerRecord, at) == only}
        if not held:
            return True
        ops: list[Op] = [] if guard is None else [Set(folder, b"", guard[1])]
        return self._zk.multi([*ops, *(Delete(path, found[1]) for path, found in held.items())]) is None

    def _check_queue(self, queue: str) -> None:
        if self.managers.queues.read_version(queue) is None:
            raise self._unknown_queue(queue)


def _path(seat: Seat) -> str:
    queue, name, member = seat
    subscription_key(queue, name)
    return records.listener_path(queue, name, check_name("member", member) if member else "")


def _busy(queue: str, name: str, holder: ListenerRecord) -> HootError:
    held = f"member {holder.member!r} of subscription" if holder.member else "subscription"
    return SubscriptionBusy(
        f"{held} {name!r} of queue {queue!r} is held by the subscriber at {holder.host_port}: stop that one,"
        " or take over with force",
        address=holder.host_port,
    )


def _decoded(path: str, value: bytes) -> ListenerRecord | CorruptRecord:
    try:
        return _checked(path, records.decode(value, ListenerRecord, path))
    except CorruptRecord as error:
        return error


def _checked(path: str, record: ListenerRecord) -> ListenerRecord:
    if not record.address or not 0 < record.port < 65_536:
        raise CorruptRecord(f"the value of {path} cannot be: a listener at {record.address!r}, port {record.port}")
    return record
