"""A message that was parked, and takes its subscriber down when it comes again: it is found, and no other pays."""

from __future__ import annotations

import msgspec
import pytest

from delivery.dispatch.parking import GiveUpHead, Parking, SendAgain, WaitUntil
from delivery.dispatch.retry import Failed, Kind
from delivery.dispatch.worker import Begin
from delivery.metastore.managers.records import ParkedKey
from delivery.metastore.policy import RetryPolicy
from delivery.model import Message
from tests.dispatch import simulated
from tests.unit.by_key import Site, batch

POLICY = RetryPolicy(order="key", first_seconds=1, factor=1, jitter=0, crashes_max=2)
A, B = b"a", b"b"


def parking(*parked: ParkedKey, policy: RetryPolicy = POLICY) -> Parking:
    return Parking(policy, parked, lambda low, high: (low + high) / 2)


def sent(one: Parking) -> SendAgain:
    step = one.next(0)
    assert isinstance(step, SendAgain), step
    one.sent(step)
    return step


def breaks(one: Parking) -> None:
    assert one.broken()
    one.rewound()


def test_after_three_breaks_the_first_message_of_each_key_that_was_out_comes_alone() -> None:
    one = parking(ParkedKey(A, (5, 7)), ParkedKey(B, (6,)))
    for _ in range(3):
        assert {sent(one).ids, sent(one).ids} == {(5, 7), (6,)}
        breaks(one)
    assert sent(one) == SendAgain(A, (5,), (), alone=True)
    assert one.next(0) == WaitUntil(None), "nothing beside it"
    one.answered(A, [], 0)
    assert sent(one) == SendAgain(A, (7,), ()), "what follows the innocent one is not suspected"
    one.answered(A, [], 0)
    assert sent(one).alone
    breaks(one)
    assert sent(one).alone
    breaks(one)
    step = one.next(0)
    assert isinstance(step, GiveUpHead)
    assert (step.id, step.reason, step.attempts.suspected) == (6, "its subscriber went away 2 times", 2)


def test_what_fails_is_not_what_crashes_and_nothing_is_suspected_that_nobody_would_give_up() -> None:
    one = parking(ParkedKey(A, (5,), crashes=2, suspected=1))
    sent(one)
    one.answered(A, [Failed(5, 5, Kind.RAISED, None, "no", A)], 0)
    [waiting] = one.waiting()
    assert (waiting.crashes, waiting.suspected, waiting.failures) == (0, 1, 1)
    forever = parking(ParkedKey(A, (5, 7), crashes=50), policy=msgspec.structs.replace(POLICY, crashes_max=0))
    assert sent(forever) == SendAgain(A, (5, 7), ())
    assert not parking(ParkedKey(A, (5,))).broken(), "nothing was out"


@pytest.mark.parametrize("known", [(), (ParkedKey(b"b", (101, 104), crashes=3, suspected=1),)])
def test_the_deadly_one_is_given_up_and_all_others_are_handled_once_it_is_alone(known: tuple[ParkedKey, ...]) -> None:
    async def story() -> None:
        handled: list[int] = []
        tries = [0]
        broken = [False]

        def handle(message: Message) -> None:
            if message.number == 101:
                tries[0] += 1
                broken[0] = tries[0] > 1 or bool(known)  # it fails at first, and is parked
                raise ValueError("no")
            if message.number == 102 and handled.count(102) == 0 and tries[0] < 3:
                raise ValueError("for a while")
            handled.append(message.number)

        def lose() -> bool:
            lost, broken[0] = broken[0], False
            return lost

        site = Site(
            [batch(100, *"abcabc"), batch(200, *"abc")], handle, Begin(105 if known else 0, 1, POLICY, parked=known)
        )
        site.process.lose = lose
        await site.run(120)
        assert [(one.message.number, one.reason) for one in site.letters.kept] == [
            (101, "its subscriber went away 2 times")
        ]  # fmt: skip
        assert (site.position, site.ledger.parked) == (202, ())
        everything = {104, 200, 201, 202} | (set() if known else {100, 102, 103, 105})
        assert set(handled) == everything
        assert tries[0] == (1 if known else 6)

    simulated(story)
