"""A publisher's lane against a model host: whatever is lost, refused or late, a message is stored once or reported."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from delivery.batch.sequences import follows
from delivery.errors import (
    Fenced,
    HootError,
    HostUnreachable,
    InvalidRequest,
    NotOwner,
    OutOfSequence,
    Throttled,
    UnknownOutcome,
)
from tests.lanes import batch, lane, launched, name_of
from tests.strategies import times


@dataclass
class Request:
    producer: int
    sequence: int
    name: int
    bad: bool


@dataclass
class Host:
    """What the lane may rely on: the rule of sequences, with the last 16 batches of a producer remembered."""

    log: list[int] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)
    remembered: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=16))

    def take(self, request: Request) -> HootError | None:
        known = self.last.get(request.producer)
        if (request.producer, request.sequence) in self.remembered:
            return None
        if request.bad:
            return InvalidRequest("never")
        if known is not None and not follows(request.sequence, known):
            return OutOfSequence("gap") if request.sequence > known else InvalidRequest("long ago")
        self.last[request.producer] = request.sequence
        self.remembered.append((request.producer, request.sequence))
        self.log.append(request.name)
        return None


class Story:
    """A lane, a host, and a network between them that loses, delays and refuses."""

    def __init__(self, window: int, bad: set[int]) -> None:
        self.lane, self.host, self.bad = lane(window), Host(), bad
        self.now, self.names = 0.0, itertools.count()
        self.wire: deque[Request] = deque()
        self.answers: deque[HootError | None] = deque()
        self.zombies: deque[deque[Request]] = deque()
        self.stored: list[int] = []
        self.failed: dict[int, HootError] = {}
        self.added: list[int] = []
        self.deadlines: list[float] = []

    def add(self, patience: float) -> None:
        name = next(self.names)
        self.added.append(name)
        self.deadlines.append(self.now + patience)
        self.lane.add(batch(name, self.now + patience))

    def send(self) -> None:
        for entry in launched(self.lane, self.now):
            name = name_of(entry.batch)
            self.wire.append(Request(entry.producer, entry.sequence, name, name in self.bad))

    def handle(self, how: str) -> None:
        """The host takes the next request, or turns it away, or takes it and is fenced; the answer is on its way."""
        if self.wire:
            request = self.wire.popleft()
            answer = CLEAN[how] or self.host.take(request)
            self.answers.append(Fenced("perhaps") if answer is None and how == "fenced" else answer)

    def answer(self) -> None:
        if self.answers:
            error = self.answers.popleft()
            if error is None:
                done = self.lane.stored()
                if done is not None:
                    self.stored.append(name_of(done))
            else:
                self.lane.failed(error)
            self.settle()

    def cut(self, *, late: bool) -> None:
        """The connection breaks; what the host has not read is lost, or handled by it much later."""
        if late and self.wire:
            self.zombies.append(self.wire)
        self.wire, self.answers = deque(), deque()
        self.lane.broken(HostUnreachable("broken"))
        self.settle()

    def haunt(self) -> None:
        if self.zombies:
            for request in self.zombies.popleft():
                self.host.take(request)

    def settle(self) -> None:
        for one, error in self.lane.settle(self.now):
            name = name_of(one)
            assert name not in self.failed
            assert name not in self.stored
            self.failed[name] = error

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.settle()

    def heal(self) -> None:
        """The network is well again, and time stands still: all that is not given up by now must get through."""
        given_up = {name for name, deadline in enumerate(self.deadlines) if deadline <= self.now} | set(self.failed)
        for _ in range(len(self.added) * 6 + 20):
            self.send()
            self.handle("take")
            self.answer()
        assert self.lane.idle, "nothing is held for ever"
        assert set(self.failed) <= given_up | self.bad, "what can be stored is stored"
        self.haunt()

    def check(self) -> None:
        log = self.host.log
        assert sorted([*self.stored, *self.failed]) == self.added, "each has exactly one outcome"
        assert len(set(log)) == len(log), "nothing is stored twice"
        assert set(self.stored) <= set(log), "what is acknowledged is stored"
        refused = [name for name, error in self.failed.items() if not isinstance(error, UnknownOutcome)]
        assert not set(refused) & set(log), "what is refused is not stored, now or later"
        assert log == sorted(log), "order holds, also for what is stored after it was given up"
        assert not self.bad & set(log)


CLEAN: dict[str, HootError | None] = {
    "take": None, "throttled": Throttled("busy"), "not_owner": NotOwner("elsewhere"), "fenced": None,
}  # fmt: skip
COUNTS = st.integers(1, 4)
PATIENCE = (1.0, 5.0, 20.0)


def a_step(choose: Random) -> list[tuple[str, Any]]:
    """Several of a kind at once and whole exchanges, so that deep states are met within a few steps."""
    count = choose.randint(1, 4)
    takes = [("handle", "take")] * count
    return choose.choice(
        [
            [("add", choose.choice(PATIENCE)) for _ in range(count)],
            [("send", 0), *takes, *[("answer", 0)] * count],
            [("send", 0), *takes, ("cut", choose.random() < 0.5)],
            [("handle", choose.choice(sorted(CLEAN)))] * count,
            [("answer", 0)] * count,
            [("cut", choose.random() < 0.5)],
            [("wait", choose.choice((0.5, 4.0)))],
            [(choose.choice(("send", "haunt")), 0)],
        ]
    )


def play(story: Story, step: str, value: Any) -> None:
    match step:
        case "add":
            story.add(value)
        case "handle":
            story.handle(value)
        case "cut":
            story.cut(late=value)
        case "wait":
            story.wait(value)
        case _:
            getattr(story, step)()


def tell(window: int, bad: set[int], choose: Random) -> None:
    story = Story(window, bad)
    told = [step for _ in range(choose.randint(1, 25)) for step in a_step(choose)]
    try:
        for step, value in told:
            play(story, step, value)
        story.heal()
        story.check()
    except AssertionError as error:
        error.add_note(f"window {window}, bad {bad}: {told}")
        raise


@times(4)
@given(st.integers(1, 4), st.sets(st.integers(0, 12), max_size=3), st.randoms(use_true_random=False))
def test_each_message_is_stored_once_and_in_order_or_reported(window: int, bad: set[int], choose: Random) -> None:
    tell(window, bad, choose)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 20))])
def test_so_it_is_in_many_more_stories(seed: int) -> None:
    choose = Random(seed)
    for _ in range(2000):
        tell(choose.randint(1, 4), set(choose.sample(range(12), choose.randint(0, 2))), choose)
