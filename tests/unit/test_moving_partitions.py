"""A partition that goes from one member of a group to another: what is under way ends first, nothing comes twice."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import trio

from delivery.metastore.policy import RetryPolicy
from delivery.model import Message
from tests.dispatch import simulated
from tests.unit.by_key import batch
from tests.unit.group import Group

Seen = list[tuple[str, int, float]]
IN_ORDER = RetryPolicy(first_seconds=1, jitter=0)
BY_KEY = RetryPolicy(order="key", first_seconds=1, jitter=0)
BATCHES = [batch(100 * number, *"ab") for number in range(1, 10)]
NUMBERS = [100 * number + place for number in range(1, 10) for place in (0, 1)]


def noting(seen: Seen, name: str) -> Callable[[Message], None]:
    return lambda message: seen.append((name, message.number, trio.current_time()))


def pair(seen: Seen, seconds: float, policy: RetryPolicy = IN_ORDER) -> Group:
    """Two members; one has the partition, and takes `seconds` for each push."""
    group = Group(BATCHES, policy)
    group.join("one", noting(seen, "one"), seconds)
    group.join("two", noting(seen, "two"), 0.0)
    group.give("one")
    return group


@pytest.mark.parametrize("policy", [IN_ORDER, BY_KEY], ids=["by partition", "by key"])
def test_what_is_under_way_ends_and_what_waits_behind_it_is_given_back(policy: RetryPolicy) -> None:
    seen: Seen = []
    group = pair(seen, 10.0, policy)

    async def story() -> None:
        await trio.sleep(15)  # it has answered one push, and is at the second of a full window
        group.move("two")
        await trio.sleep(4.9)
        assert {name for name, _, _ in seen} == {"one"}, "the second push is under way"
        await trio.sleep(5)

    simulated(lambda: group.run(story))
    assert [number for _, number, _ in seen] == NUMBERS, "all once, and in order"
    first_of_two = next(at for name, _, at in seen if name == "two")
    last_of_one = max(at for name, _, at in seen if name == "one")
    assert first_of_two - last_of_one == pytest.approx(10, abs=0.1), "as long as one push takes, not as the window"


def test_a_member_that_does_not_end_what_it_began_loses_it_when_its_grace_is_over() -> None:
    seen: Seen = []
    group = pair(seen, 10_000.0)

    async def story() -> None:
        await trio.sleep(5)
        group.move("two", 30)
        await trio.sleep(29)
        assert {name for name, _, _ in seen} == {"one"}
        await trio.sleep(2)
        begun = [number for name, number, _ in seen if name == "one"]
        assert 0 < len(begun) < len(NUMBERS)
        assert [number for name, number, _ in seen if name == "two"] == NUMBERS, "what it began comes again"

    simulated(lambda: group.run(story))


def test_nobody_waits_for_a_member_that_is_gone() -> None:
    seen: Seen = []
    group = pair(seen, 10_000.0)

    async def story() -> None:
        await trio.sleep(5)
        group.move("two", 0)
        await trio.sleep(0.5)
        assert [number for name, number, _ in seen if name == "two"] == NUMBERS
        assert group.ledger.failing == [], "which is nobody's fault: no message counts as a suspect"

    simulated(lambda: group.run(story))


def test_a_pause_after_a_failure_was_meant_for_the_member_that_failed() -> None:
    seen: Seen = []
    group = Group(BATCHES, RetryPolicy(first_seconds=600, jitter=0))

    def fail(_: Message) -> None:
        raise ValueError("broken here")

    group.join("one", fail, 0.0)
    group.join("two", noting(seen, "two"), 0.0)
    group.give("one")

    async def story() -> None:
        await trio.sleep(5)
        group.move("two")
        await trio.sleep(0.5)
        assert [number for _, number, _ in seen] == NUMBERS

    simulated(lambda: group.run(story))


def test_a_key_that_is_parked_goes_along() -> None:
    seen: Seen = []
    group = Group(BATCHES, RetryPolicy(order="key", first_seconds=20, jitter=0))

    def one(message: Message) -> None:
        if message.key == b"a":
            raise ValueError("not here")
        noting(seen, "one")(message)

    group.join("one", one, 2.0)
    group.join("two", noting(seen, "two"), 0.0)
    group.give("one")

    async def story() -> None:
        await trio.sleep(5)
        group.move("two")
        await trio.sleep(10)
        assert [number for _, number, _ in seen if number % 2 == 0] == [], "the pause of the key goes on"
        await trio.sleep(10)

    simulated(lambda: group.run(story))
    for key in (0, 1):
        assert [number for _, number, _ in seen if number % 2 == key] == [one for one in NUMBERS if one % 2 == key]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("patient", [True, False], ids=["patient", "impatient"])
@pytest.mark.parametrize("policy", [IN_ORDER, BY_KEY], ids=["by partition", "by key"])
def test_wherever_it_goes_no_message_is_lost_nor_overtaken(seed: int, patient: bool, policy: RetryPolicy) -> None:
    """And none comes twice, but where a member was not waited for."""
    dice, seen, group = Random(seed), list[int](), Group(BATCHES, policy)

    def handle(message: Message) -> None:
        if dice.random() < 0.15:
            raise ValueError("bad luck")
        seen.append(message.number)

    for name in "abc":
        group.join(name, handle, dice.choice([0.0, 0.05, 1.0]))
    group.give("a")

    async def story() -> None:
        for _ in range(dice.randint(1, 30)):
            await trio.sleep(dice.choice([0.0, 0.01, 0.3, 2.0]))
            group.move(dice.choice("abc"), 60 if patient else dice.choice([0, 0.1, 60]))
        await trio.sleep(20_000)

    simulated(lambda: group.run(story))
    handled = seen if patient else list(dict.fromkeys(seen))
    for key in (0, 1):
        assert [number for number in handled if number % 2 == key] == [one for one in NUMBERS if one % 2 == key]
    assert policy is BY_KEY or handled == NUMBERS
    assert (group.position, group.ledger.parked) == (NUMBERS[-1], ())


def test_a_member_that_gets_back_what_it_did_not_end_gets_it_in_another_run() -> None:
    seen: Seen = []
    group = pair(seen, 10_000.0)

    async def story() -> None:
        await trio.sleep(5)
        group.move("two", 30)
        await trio.sleep(20)
        group.move("one", 30)
        await trio.sleep(9)
        assert [run for run, recalls in group.members["one"].runs if recalls] == [2]
        await trio.sleep(2)
        assert max(group.members["one"].runs) == (3, False), "30 s after it was taken away first"
        assert group.members["two"].runs == []

    simulated(lambda: group.run(story))


def test_recalling_a_worker_that_sends_nothing_is_fine() -> None:
    group = pair([], 0.0)

    async def story() -> None:
        await trio.sleep(1)
        for name in ("two", "one", "one"):
            group.move(name)
        await trio.sleep(1)
        assert group.position == NUMBERS[-1]

    simulated(lambda: group.run(story))
