"""The catalog's way to move the positions of subscriptions by hand.

A position is a state, and a state has an owner that saves it. So each is written anew under the version that it has,
with a move number above all before it: the owner's next save is refused, and it begins anew at what it then reads. The
number goes along with its pushes, so that the subscriber, too, forgets what it had handled. Last of all the preferences
get the number, or a higher one, which makes hosts look at once; from then on every message is delivered, also where it
began with the newest of each key. Whoever breaks off in between says it again. Of two who move a partition at once both
are heard, each under a number of its own; it ends where the later one put it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from delivery.errors import BadVersion, HootError, SubscriptionBusy, UnknownPartition
from delivery.metastore.access import ATTEMPTS, crowded, give_way
from delivery.metastore.managers.changes import MoveState
from delivery.metastore.managers.snapshots import SavedPosition
from delivery.metastore.subscriptions import Subscriptions


class Positions(Subscriptions):
    """Moving positions."""

    def move_positions(self, queue: str, name: str, places: Mapping[int, SavedPosition], *, force: bool) -> None:
        """Put a subscription, by partition, to the ids after which it is to go on, with what is to be parked then.

        Raises UnknownQueue, UnknownSubscription, UnknownPartition, and SubscriptionBusy while a subscriber is attached,
        unless forced: nothing has changed then. MetadataUnavailable, BadVersion: some may have been moved.
        """
        found = self._preferences(queue, name).value
        unread = sorted(set(places) - set(found.starts))
        if unread:
            raise UnknownPartition(f"subscription {name!r} of queue {queue!r} does not read partition {unread[0]}")
        holder = None if force else next(iter(self.members(queue, name)), None)
        if holder is not None:
            raise SubscriptionBusy(
                f"subscription {name!r} of queue {queue!r} is attached, by the subscriber at {holder.host_port}: stop"
                " that one, or force",
                address=holder.host_port,
            )
        self._tell_of_move(queue, name, self._move(queue, name, places))

    def _move(self, queue: str, name: str, places: Mapping[int, SavedPosition]) -> int:
        """Write the states, under a number that nobody else has taken meanwhile; gives it."""
        subscriptions = self.managers.subscriptions
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            found = self._preferences(queue, name).value
            states = subscriptions.read_states(found)
            moved = 1 + max([found.moves, *(one.value.moves for one in states.values())])
            moves = [MoveState(found, number, one.position, moved, one.parked) for number, one in places.items()]
            errors = [one for one in subscriptions.move_states(moves) if isinstance(one, HootError)]
            if not errors:
                return moved
            for error in errors:
                if not isinstance(error, BadVersion):
                    raise error
        raise crowded(f"the position of subscription {name!r}")

    def _tell_of_move(self, queue: str, name: str, number: int) -> None:
        """Each telling is a change, or hosts hear nothing: another move may have told of a higher number already."""
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            found = self._preferences(queue, name)
            moved = msgspec.structs.replace(found.value, moves=max(number, 1 + found.value.moves), newest={})
            try:
                self.managers.subscriptions.update_subscription_data(moved, found.version)
            except BadVersion:
                continue
            return
        raise crowded(f"subscription {name!r}")
