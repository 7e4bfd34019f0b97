"""A partition that several members share by key: who gets what, and what becomes of it when they come, go and die."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
import trio

from delivery.dispatch.target import More
from delivery.errors import Fenced
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.slots import slot_of_key
from tests.dispatch import STREAM
from tests.unit.crew import BY_KEY, IN_ORDER, Stage

KEYS = "abcdefghijklmnop"


def stage(seed: int = 1, policy: RetryPolicy = BY_KEY, batches: int = 20, keys: str = KEYS) -> Stage:
    return Stage(Random(seed), policy, keys, batches)


def by_member(of: Stage) -> dict[str, set[bytes | None]]:
    found: dict[str, set[bytes | None]] = {}
    for one in of.handled:
        found.setdefault(one.member, set()).add(one.message.key)
    return found


def test_the_keys_of_a_partition_are_spread_over_its_members() -> None:
    scene = stage(batches=40)

    async def story() -> None:
        for name in "xyz":
            scene.join(name)
        await trio.sleep(60)

    scene.play(story)
    scene.check(twice=False)
    found = by_member(scene)
    assert set(found) == set("xyz")
    assert sum(map(len, found.values())) == len(set(KEYS)), "each key is with one of them"
    for name, keys in found.items():
        [share] = [one for one in scene.ledger.noted[1] if one.member == name]
        assert all(any(first <= slot_of_key(key or b"") <= last for first, last in share.slots) for key in keys)


def test_messages_without_a_key_are_spread_too() -> None:
    scene = stage(batches=100, keys="-")

    async def story() -> None:
        for name in "xyz":
            scene.join(name)
        await trio.sleep(60)

    scene.play(story)
    scene.check(twice=False)
    counts = [sum(one.member == name for one in scene.handled) for name in "xyz"]
    assert min(counts) > len(scene.published) / 6


def test_one_that_is_slow_holds_up_no_other() -> None:
    scene = stage(batches=40)

    async def story() -> None:
        scene.join("slow", 1000)
        scene.join("quick")
        await trio.sleep(60)
        assert scene.crew is not None
        done = {one.message.number for one in scene.handled if one.member == "quick"}
        shares = {one.member: one for one in scene.ledger.noted[1]}
        assert shares["quick"].position == scene.published[-1].number
        assert scene.crew.position == shares["slow"].position < min(done)

    scene.play(story)


def test_who_joins_gets_its_keys_when_they_are_handled_where_they_were() -> None:
    scene = stage(batches=5)

    async def story() -> None:
        scene.join("x", 10)
        await trio.sleep(5)
        begun = {one.message.number for one in scene.handled}
        scene.join("y")
        await trio.sleep(4)
        assert {one.member for one in scene.handled} == {"x"}, "its push is under way"
        await trio.sleep(4)
        assert by_member(scene)["y"], "what it had not begun it gave back"
        assert {one.message.number for one in scene.handled if one.member == "y"}.isdisjoint(begun)
        await trio.sleep(1000)

    scene.play(story)
    scene.check(twice=False)


def test_a_member_whose_connection_broke_is_waited_for_before_its_keys_go_elsewhere() -> None:
    scene = stage(batches=5)

    async def story() -> None:
        scene.join("x", 10)
        await trio.sleep(1)
        scene.lines["x"].break_off()
        scene.join("y")
        await trio.sleep(2)
        scene.lines["x"].mend()
        await trio.sleep(6)
        assert {one.member for one in scene.handled} == {"x"}, "it handles what it was sent, as nobody can see"
        await trio.sleep(10_000)

    scene.play(story)
    scene.check(twice=True)
    assert "y" in by_member(scene)


def test_a_new_owner_asks_those_who_may_handle_what_the_former_one_sent() -> None:
    scene = stage(batches=5)

    async def story() -> None:
        scene.join("x", 10)
        await trio.sleep(1)
        scene.take_over()
        scene.join("y")
        await trio.sleep(8)
        assert {one.member for one in scene.handled} == {"x"}
        await trio.sleep(10_000)

    scene.play(story)
    scene.check(twice=True)
    assert "y" in by_member(scene)


def test_a_former_owner_that_waits_for_a_member_ends_when_that_one_has_heard_of_a_newer_owner() -> None:
    """It reads nothing meanwhile, which would tell it that it has lost the partition; it may own it anew since then."""
    scene = stage(batches=5)

    async def story() -> None:
        scene.join("x")
        await trio.sleep(1)
        newer = msgspec.structs.replace(STREAM, epoch=STREAM.epoch + 9)
        scene.lines["x"].push(newer, 1, 0, b"", lambda _: None, More(parked=()))
        scene.join("y")
        await trio.sleep(60)

    with pytest.RaisesGroup(Fenced, flatten_subgroups=True):
        scene.play(story)


def test_a_member_that_was_given_keys_and_not_yet_saved_as_their_holder_gets_nothing() -> None:
    """A new owner would take the former holder for the one to be asked."""
    scene = stage(batches=5)

    async def story() -> None:
        scene.ledger.save_seconds = 100
        scene.join("x")
        await trio.sleep(99)
        assert scene.handled == []
        await trio.sleep(2)
        assert scene.handled

    scene.play(story)


def test_nobody_waits_for_one_that_is_gone_and_what_it_did_not_answer_comes_again() -> None:
    scene = stage(batches=10)

    async def story() -> None:
        scene.join("x", 1000)
        scene.join("y")
        await trio.sleep(5)
        scene.kill("x")
        await trio.sleep(5)
        scene.end_session("x")
        await trio.sleep(1)

    scene.play(story)
    scene.check(twice=True)


def test_what_failed_waits_with_its_key_wherever_that_goes() -> None:
    scene = stage(batches=10, policy=RetryPolicy(order="key", first_seconds=30, jitter=0))
    scene.fail = lambda name, message: name == "x" and message.key == b"a"

    async def story() -> None:
        scene.join("x")
        await trio.sleep(5)
        assert scene.order_of(b"a") == []
        for name in "vwyz":
            scene.join(name)
        scene.end_session("x")
        scene.kill("x")
        await trio.sleep(10)
        assert scene.order_of(b"a") == [], "the pause goes on"
        await trio.sleep(60)

    scene.play(story)
    scene.check(twice=False)


def test_with_the_order_of_the_partition_a_failure_holds_up_its_member_alone() -> None:
    scene = stage(batches=10, policy=IN_ORDER)
    broken = True
    scene.fail = lambda name, _: broken and name == "x"

    async def story() -> None:
        nonlocal broken
        scene.join("x")
        scene.join("y")
        await trio.sleep(30)
        assert set(by_member(scene)) == {"y"}
        done = {one.member: one.position for one in scene.ledger.noted[1]}
        assert done["y"] == scene.published[-1].number
        broken = False
        await trio.sleep(1000)

    scene.play(story)
    scene.check(twice=False)


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(5, 60))])
@pytest.mark.parametrize("policy", [IN_ORDER, BY_KEY], ids=["by partition", "by key"])
@pytest.mark.parametrize("faults", [False, True], ids=["coming and going", "faults"])
def test_whatever_becomes_of_members_and_owners_every_key_is_handled_in_its_order_by_one_at_a_time(
    seed: int, policy: RetryPolicy, faults: bool
) -> None:
    dice = Random(seed)
    scene = stage(seed, policy, 8, "abcdefgh-")
    scene.fail = lambda _name, _message: dice.random() < 0.05

    def one_of(names: set[str]) -> str | None:
        return dice.choice(sorted(names)) if names else None

    def happen() -> None:
        what = dice.choice(["publish", "publish", "join", "save", *(["kill", "break", "take over"] if faults else [])])
        if what == "publish":
            scene.publish()
        elif what == "join" and len(scene.seated) < 5:
            free = set("uvwxyz") - scene.seated
            scene.join(dice.choice(sorted(free)), dice.choice([0.0, 0.05, 1.0, 20.0]))
        elif what == "kill" and (name := one_of(set(scene.alive))) and len(scene.alive) > 1:
            scene.kill(name)
        elif what == "break" and (name := one_of(set(scene.alive))):
            scene.lines[name].break_off()
        elif what == "take over":
            scene.take_over()
        elif what == "save":
            scene.ledger.save()

    def recover() -> None:
        for name in scene.alive:
            if dice.random() < 0.5:
                scene.lines[name].mend()
        for name in sorted(scene.seated - set(scene.alive)):
            if dice.random() < 0.5:
                scene.end_session(name)

    async def story() -> None:
        scene.ledger.save_seconds = dice.choice([0.0, 0.02, 1.0])
        scene.join("x", dice.choice([0.0, 0.05, 1.0, 20.0]))
        for _ in range(40):
            happen()
            await trio.sleep(dice.choice([0.0, 0.01, 0.3, 2.0, 10.0]))
            recover()
        for name in scene.alive:
            scene.lines[name].mend()
        for name in sorted(scene.seated - set(scene.alive)):
            scene.end_session(name)
        await trio.sleep(20_000)

    scene.play(story)
    scene.check(twice=faults)
