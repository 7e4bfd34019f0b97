"""What the supervisor starts and stops."""

from __future__ import annotations

import msgspec

from delivery.dispatch.plan import Attached, steps
from delivery.metastore.records import ListenerRecord, SubscriptionRecord


def attached(name: str, *, port: int = 1, token: str = "t", topics: tuple[str, ...] = ()) -> Attached:
    record = SubscriptionRecord(
        name=name, queue="orders", generation="g", created_ms=0, starts={0: 0}, all_partitions=True, topics=topics
    )
    return Attached("g", record, (ListenerRecord(address="127.0.0.1", port=port, token=token),))


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


def test_a_delivery_goes_on_when_something_was_replayed_to_its_subscription() -> None:
    before = attached("mail")
    after = msgspec.structs.replace(before, subscription=msgspec.structs.replace(before.subscription, replayed_ms=7))
    todo = steps({("orders", "mail"): before}, {"orders": {"mail": after}})
    assert (todo.stop, todo.start) == ((), ())


def test_queues_that_were_not_read_are_left_alone() -> None:
    todo = steps({("orders", "mail"): attached("mail")}, {"other": {}})
    assert todo == steps({}, {})


def test_a_queue_made_anew_restarts_its_deliveries() -> None:
    before = attached("mail")
    after = msgspec.structs.replace(before, generation="h")
    assert steps({("orders", "mail"): before}, {"orders": {"mail": after}}).start == (after,)


def group(*members: str, **holders: tuple[int, ...]) -> Attached:
    record = msgspec.structs.replace(attached("mail").subscription, kind="shared", holders=holders)
    listeners = [ListenerRecord(address="127.0.0.1", port=1, token=name, member=name) for name in members]
    return Attached("g", record, tuple(listeners))


def test_a_group_goes_on_while_members_come_and_go_and_partitions_move() -> None:
    now = group("a", "b", a=(0,))
    for after in (group("a", "b", b=(0,)), group("b", a=(0,)), group("a", "b", "c", a=(0,))):
        todo = steps({("orders", "mail"): now}, {"orders": {"mail": after}})
        assert (todo.stop, todo.start, todo.change) == ((), (), (after,))
    assert steps({("orders", "mail"): now}, {"orders": {"mail": now}}) == steps({}, {})


def test_a_group_with_other_options_or_without_members_stops() -> None:
    now = group("a", a=(0,))
    subscription = msgspec.structs.replace(now.subscription, topics=("x",))
    after = msgspec.structs.replace(now, subscription=subscription)
    todo = steps({("orders", "mail"): now}, {"orders": {"mail": after}})
    assert (todo.stop, todo.start, todo.change) == ((("orders", "mail"),), (after,), ())
    assert steps({("orders", "mail"): now}, {"orders": {}}).stop == (("orders", "mail"),)


def test_who_gets_a_partition_is_a_member_that_is_there() -> None:
    assert {number: one.token for number, one in attached("mail", token="t").by_partition().items()} == {0: "t"}
    found = group("a", a=(0, 2), gone=(1,)).by_partition()
    assert {number: one.member for number, one in found.items()} == {0: "a", 2: "a"}
