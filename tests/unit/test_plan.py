"""What the supervisor starts and stops."""

from __future__ import annotations

import msgspec

from delivery.dispatch.plan import Attached, steps
from delivery.metastore.records import ListenerRecord, SubscriptionRecord


def attached(name: str, *, port: int = 1, token: str = "t", topics: tuple[str, ...] = ()) -> Attached:
    record = SubscriptionRecord(
        name=name, queue="orders", generation="g", created_ms=0, starts={0: 0}, all_partitions=True, topics=topics
    )
    return Attached("g", record, ListenerRecord(address="127.0.0.1", port=port, token=token))


def test_a_new_listener_is_started_and_one_that_left_is_stopped() -> None:
    todo = steps({("orders", "old"): attached("old")}, {"orders": {"new": attached("new")}})
    assert todo.stop == (("orders", "old"),)
    assert todo.start == (attached("new"),)


def test_nothing_changes_for_what_is_the_same() -> None:
    same = attached("mail")
    todo = steps({("orders", "mail"): same}, {"orders": {"mail": attached("mail")}})
    assert todo == steps({}, {})


def test_a_changed_registration_stops_before_it_starts_again() -> None:
    before = attached("mail", token="a")
    for after in (attached("mail", token="b"), attached("mail", port=2), attached("mail", topics=("x",))):
        todo = steps({("orders", "mail"): before}, {"orders": {"mail": after}})
        assert todo.stop == (("orders", "mail"),)
        assert todo.start == (after,)


def test_queues_that_were_not_read_are_left_alone() -> None:
    todo = steps({("orders", "mail"): attached("mail")}, {"other": {}})
    assert todo == steps({}, {})


def test_a_queue_made_anew_restarts_its_deliveries() -> None:
    before = attached("mail")
    after = msgspec.structs.replace(before, generation="h")
    assert steps({("orders", "mail"): before}, {"orders": {"mail": after}}).start == (after,)
