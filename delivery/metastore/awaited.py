"""Which subscriptions of a queue its publishers wait for, where the queue limits its backlog, and how far they are."""

from __future__ import annotations

from collections.abc import Mapping

from delivery.metastore.managers.subscriptions import SubscriptionDataManager
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.tables.versions import Versioned

Awaited = Mapping[str, Mapping[int, int]]
"""By subscription and partition the last id that is acknowledged."""


def is_awaited(record: SubscriptionRecord) -> bool:
    """Whether publishers wait for a subscription.

    Not for a replay, which delivers again what is acknowledged, and not for one that wants the newest messages alone,
    which passes what is too much for it.
    """
    return record.replay is None and not record.bound


def awaited(subscriptions: SubscriptionDataManager, queue: str) -> Awaited:
    """Those of a queue, attached or not, as they were saved last. Damaged ones are left out: nobody can serve them."""
    states = subscriptions.read_states_of_queue(queue)
    found: dict[str, Mapping[int, int]] = {}
    after: str | None = None
    while page := subscriptions.list_subscriptions(queue, after):
        for name, one in page:
            if isinstance(one, Versioned) and is_awaited(record := one.value):
                saved = {number: states.get((name, number)) for number in record.starts}
                found[name] = {
                    number: state.position if state is not None and state.is_of(record) else record.starts[number]
                    for number, state in saved.items()
                }
        after = page[-1][0]
    return found
