"""What goes wrong, and when: a schedule that follows from a seed. Pure; `nemesis` carries it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random

import msgspec


class Strike(msgspec.Struct, frozen=True):
    """One fault: on whom, for how long, and how much (its meaning is the fault's own)."""

    fault: str
    target: str
    seconds: float
    amount: float = 0.0

    def __str__(self) -> str:
        amount = f" by {self.amount:g}" if self.amount else ""
        return f"{self.fault} {self.target}{amount} for {self.seconds:.2f} s"


class Step(msgspec.Struct, frozen=True):
    """Strikes that begin together, so many seconds after the begin of the run."""

    at: float
    strikes: tuple[Strike, ...]

    @property
    def over(self) -> float:
        """When the last of them is healed."""
        return self.at + max(strike.seconds for strike in self.strikes)


Kinds = dict[str, tuple[int, str, float, float]]
"""Per fault its weight, its kind of target, and the range of its seconds in session timeouts."""

FAULTS: Kinds = {
    "host-kill": (6, "host", 0.0, 1.0),
    "host-kill-at-once": (2, "host", 0.0, 0.0),
    "host-terminate": (3, "host", 0.0, 0.5),
    "host-pause": (4, "host", 1.6, 2.0),
    "host-blip": (1, "host", 0.1, 0.5),
    "hosts-kill-all": (1, "", 0.0, 0.5),
    "zookeeper-cut": (2, "host", 0.2, 0.5),
    "zookeeper-cut-long": (2, "host", 1.6, 2.0),
    "zookeeper-silence": (2, "host", 1.6, 2.0),
    "zookeeper-replies-lost": (2, "host", 0.2, 2.0),
    "zookeeper-slow": (1, "host", 0.5, 1.5),
    "zookeeper-leader-kill": (3, "", 0.2, 1.0),
    "zookeeper-follower-kill": (1, "", 0.2, 1.0),
    "zookeeper-leader-pause": (1, "", 0.5, 1.5),
    "zookeeper-rolling-restart": (1, "", 1.0, 1.0),
    "zookeeper-kill-all": (1, "", 0.2, 1.5),
    "clients-cut": (1, "host", 0.1, 1.0),
    "clients-silence": (1, "host", 0.5, 2.0),
    "clients-replies-lost": (2, "host", 0.1, 1.0),
    "clients-slow": (1, "host", 0.5, 1.5),
    "pushes-cut": (1, "subscriber", 0.1, 1.0),
    "pushes-silence": (1, "subscriber", 0.5, 1.5),
    "pushes-replies-lost": (2, "subscriber", 0.1, 1.0),
    "pushes-slow": (1, "subscriber", 0.5, 1.5),
    "subscriber-kill": (3, "subscriber", 0.0, 1.0),
    "subscriber-terminate": (1, "subscriber", 0.0, 0.5),
    "subscriber-pause": (2, "subscriber", 1.2, 2.0),
    "publisher-kill": (1, "publisher", 0.0, 0.5),
    "clock-step": (2, "host", 0.5, 2.0),
    "churn": (1, "", 1.0, 2.0),
}
FAILOVERS: dict[str, tuple[str, ...]] = {
    "kill": ("host-kill", "host-kill-at-once", "hosts-kill-all"),
    "terminate": ("host-terminate",),
    "pause": ("host-pause",),
    "cut": ("zookeeper-cut-long", "zookeeper-silence"),
    "leader kill": ("zookeeper-leader-kill",),
}
"""By kind the faults whose times are measured: after all but the last another host takes over, after that one the
owners need a session with another server of ZooKeeper."""
OWNER_FAULTS = frozenset(name for names in FAILOVERS.values() for name in names)
SILENCES = frozenset({"zookeeper-cut-long", "zookeeper-silence", "zookeeper-leader-kill"})
"""Those in which the owners go on serving, for a while or all the time: the longest silence tells what was felt."""
CLOCK_STEPS = (-600.0, -60.0, -1.0, -0.001, 0.001, 1.0, 60.0, 600.0)

BEGIN_SECONDS = 3.0
CALM_SECONDS = (0.5, 3.0)
QUIET_EVERY = 6
"""So many steps, and then a while without faults."""
QUIET_SECONDS = 14.0
"""Longer than what a fault excuses (story.GRACE_SECONDS), so that it is seen when something goes wrong without one.
What follows is a fault of one subscriber, alone: the others must not feel it."""


def plan(
    seed: int, seconds: float, session_seconds: float, targets: Mapping[str, Sequence[str]], only: Sequence[str] = ()
) -> list[Step]:
    """The schedule of a run that ends all faults within `seconds`; `targets` by kind, `only` these faults."""
    faults = {name: FAULTS[name] for name in only or FAULTS}
    return list(_steps(Random(seed), seconds, session_seconds, targets, faults))


def _steps(
    random: Random, seconds: float, session: float, targets: Mapping[str, Sequence[str]], faults: Kinds
) -> Iterator[Step]:
    at, count = BEGIN_SECONDS, 0
    lone = {name: kind for name, kind in faults.items() if kind[1] == "subscriber"}
    while True:
        after_quiet = bool(lone) and count > 0 and count % QUIET_EVERY == 0
        strikes = [_strike(random, session, targets, lone if after_quiet else faults)]
        if not after_quiet and random.random() < 0.25:
            other = _strike(random, session, targets, faults)
            if other.fault.partition("-")[0] != strikes[0].fault.partition("-")[0]:
                strikes.append(other)
        step = Step(at, tuple(strikes))
        if step.over > seconds:
            return
        yield step
        count += 1
        at = step.over + (QUIET_SECONDS if count % QUIET_EVERY == 0 else random.uniform(*CALM_SECONDS))


def _strike(random: Random, session: float, targets: Mapping[str, Sequence[str]], faults: Kinds) -> Strike:
    [name] = random.choices(list(faults), [weight for weight, *_ in faults.values()])
    _, kind, low, high = faults[name]
    target = random.choice(targets[kind]) if kind else "-"
    amount = random.choice(CLOCK_STEPS) if name == "clock-step" else 0.0
    return Strike(name, target, round(random.uniform(low, high) * session, 3), amount)
