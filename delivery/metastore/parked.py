"""The catalog's way to have parked messages come again at once, by hand."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from delivery.errors import BadVersion, Fenced, HootError
from delivery.metastore.access import ATTEMPTS, crowded, give_way
from delivery.metastore.managers.changes import SaveState, Taken
from delivery.metastore.subscriptions import Subscriptions


class Parked(Subscriptions):
    """Releasing what is parked."""

    def release_parked(self, queue: str, name: str, keys: Collection[bytes] | None, now_ms: int) -> int:
        """Make parked keys due at once, all of them without `keys`; gives how many.

        The owner of a partition may not know of it for long, as it reads its states only once. So the preferences are
        changed, too, which makes it begin anew. Raises UnknownSubscription, CorruptRecord; BadVersion when others keep
        changing the states.
        """
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            found = self._preferences(queue, name).value
            states = self.managers.subscriptions.read_states(found)
            saves = [_released(queue, name, partition, one, keys) for partition, one in states.items()]
            outcomes = self.managers.subscriptions.save_states([save for save, count in saves if count])
            failed = [outcome for outcome in outcomes if isinstance(outcome, HootError)]
            if not failed:
                break
            if not isinstance(failed[0], BadVersion | Fenced):
                raise failed[0]
        else:
            raise crowded(f"the states of subscription {name!r}")
        count = sum(count for _, count in saves)
        if count:
            self.change_subscription(queue, name, lambda known: msgspec.structs.replace(known, released_ms=now_ms))
        return count


def _released(
    queue: str, name: str, partition: int, found: Taken, keys: Collection[bytes] | None
) -> tuple[SaveState, int]:  # fmt: skip
    """The state with parked keys that are due now, and how many they are."""
    parked = found.value.parked
    chosen = [keys is None or one.key in keys for one in parked]
    due = tuple(
        msgspec.structs.replace(one, due_ms=0) if wanted else one for one, wanted in zip(parked, chosen, strict=True)
    )
    state = msgspec.structs.replace(found.value, parked=due)
    return SaveState(queue, name, partition, state, found.version), sum(chosen)
