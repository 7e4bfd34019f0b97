"""Parking: what waits, in which order it comes again, and what is given up."""

from __future__ import annotations

import msgspec

from delivery.dispatch.parking import BYTES_MAX, MESSAGES_MAX, OUT_MAX, GiveUpHead, Parking, SendAgain, WaitUntil
from delivery.dispatch.retry import Failed, Kind
from delivery.metastore.managers.records import Attempts, ParkedKey
from delivery.metastore.policy import RetryPolicy

POLICY = RetryPolicy(order="key", first_seconds=10, factor=2, jitter=0)
A, B = b"a", b"b"


def failed(number: int, key: bytes | None = A, kind: Kind = Kind.RAISED, after_ms: int | None = None) -> Failed:
    return Failed(number, number, kind, after_ms, "no", key)


def held(number: int, key: bytes = A) -> Failed:
    return failed(number, key, Kind.HELD)


def parking(*parked: ParkedKey, policy: RetryPolicy = POLICY) -> Parking:
    return Parking(policy, parked, lambda low, high: (low + high) / 2)


def sent(one: Parking, now_ms: int) -> SendAgain:
    step = one.next(now_ms)
    assert isinstance(step, SendAgain), step
    one.sent(step)
    return step


def test_a_key_waits_for_its_first_message_and_then_all_of_it_comes_in_order() -> None:
    one = parking()
    assert one.park(failed(5), 1000)
    assert one.park(held(7), 1000)
    assert one.park(held(9), 2000)
    assert one.next(2000) == WaitUntil(11_000)
    step = sent(one, 11_000)
    assert step == SendAgain(A, (5, 7, 9), ())
    assert one.next(99_000) == WaitUntil(None), "one push of a key at a time"
    one.answered(A, [], 12_000)
    assert (one.waiting(), bool(one)) == ((), False)


def test_what_fails_again_waits_longer_and_what_was_handled_before_it_is_gone() -> None:
    one = parking(ParkedKey(A, (5, 7, 9), failures=1, due_ms=0, first_error="first"))
    sent(one, 0)
    one.answered(A, [failed(5), held(7), held(9)], 1000)
    assert one.waiting() == (ParkedKey(A, (5, 7, 9), 2, 21_000, 20_000, "first", "no"),)
    sent(one, 21_000)
    one.answered(A, [failed(7), held(9)], 22_000)
    assert one.waiting() == (ParkedKey(A, (7, 9), 1, 32_000, 10_000, "no", "no"),), (
        "the next one's failures are its own"
    )


def test_an_owner_whose_clock_is_behind_keeps_nothing_waiting_longer_than_was_meant() -> None:
    before = parking()
    before.park(failed(5), 600_000)
    before.park(failed(6, B, Kind.RETRY, after_ms=90_000), 600_000)
    after = parking(*before.waiting())
    after.begin(1000)
    assert after.next(1000) == WaitUntil(11_000)
    assert sent(after, 11_000) == SendAgain(A, (5,), ())
    assert after.next(11_000) == WaitUntil(91_000)


def test_an_owner_whose_clock_is_ahead_or_right_changes_no_pause() -> None:
    before = parking()
    before.park(failed(5), 1000)
    after = parking(*before.waiting())
    after.begin(4000)
    assert after.waiting() == before.waiting()


def test_a_listener_that_says_when_is_believed() -> None:
    one = parking()
    one.park(failed(5, kind=Kind.RETRY, after_ms=250), 1000)
    assert one.next(1000) == WaitUntil(1250)


def test_messages_without_a_key_are_parked_alone() -> None:
    one = parking()
    one.park(failed(5, None), 0)
    one.park(failed(6, None), 0)
    assert {sent(one, 10_000).ids, sent(one, 10_000).ids} == {(5,), (6,)}


def test_what_comes_while_a_retry_push_is_out_follows_it() -> None:
    one = parking(ParkedKey(A, (5,)))
    assert sent(one, 0).ids == (5,)
    one.park(held(8), 0)
    one.answered(A, [], 0)
    assert sent(one, 0).ids == (8,)


def test_the_first_of_a_key_is_given_up_the_subscriber_hears_of_it_and_the_rest_goes_on() -> None:
    one = parking(policy=RetryPolicy(order="key", deliveries_max=2, jitter=0))
    one.park(failed(5), 0)
    one.park(held(7), 0)
    sent(one, 10_000)
    one.answered(A, [failed(5), held(7)], 10_000)
    assert one.next(10_000) == GiveUpHead(A, 5, "failed 2 times", Attempts(4, 2, "no", "no"))
    one.gave_up(A, 10_000)
    assert sent(one, 10_000) == SendAgain(A, (7,), (5,))
    one.answered(A, [failed(7, kind=Kind.REJECTED)], 11_000)
    assert one.next(11_000) == GiveUpHead(A, 7, "rejected", Attempts(6, 1, "no", "no"))
    one.gave_up(A, 11_000)
    assert not one
    assert sent(one, 11_000) == SendAgain(A, (), (7,)), "else the subscriber would hold the key for ever"
    one.answered(A, [], 11_000)
    assert one.next(11_000) == WaitUntil(None)


def test_a_new_run_sends_again_what_was_out() -> None:
    one = parking(ParkedKey(A, (5,)), ParkedKey(B, (6,)))
    steps = [sent(one, 0), sent(one, 0)]
    assert one.out == 2
    one.rewound()
    assert one.out == 0
    assert [sent(one, 0), sent(one, 0)] == steps


def test_only_so_many_retry_pushes_are_out() -> None:
    one = parking(*(ParkedKey(b"%d" % n, (n,)) for n in range(1, 100)))
    for _ in range(OUT_MAX):
        sent(one, 0)
    assert one.next(0) == WaitUntil(None)


def test_there_is_room_for_so_many_messages_and_bytes_and_what_finds_none_changes_nothing() -> None:
    one = parking()
    assert all(one.park(failed(n, None), 0) for n in range(1, MESSAGES_MAX + 1))
    full = one.waiting()
    assert len(full) == MESSAGES_MAX
    assert one.is_full
    assert not one.park(failed(10**6, None), 0)
    assert one.waiting() == full
    odd = parking()
    for number in range(1, MESSAGES_MAX):
        odd.park(Failed(number, number, Kind.RAISED, None, "\x01\u2603" * 100, b"%d" % number), 0)
    assert len(msgspec.json.encode(odd.waiting())) < BYTES_MAX * 1.1
    large = parking()
    assert sum(large.park(failed(n, b"%032000d" % n), 0) for n in range(1, 20)) == BYTES_MAX // 42_700


def test_a_message_that_is_reported_twice_is_parked_once() -> None:
    one = parking()
    for _ in range(2):
        one.park(failed(5), 0)
        one.park(held(7), 0)
    assert [waiting.ids for waiting in one.waiting()] == [(5, 7)]
    assert one.waiting()[0].failures == 1
