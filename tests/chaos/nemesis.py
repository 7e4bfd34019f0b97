"""Carries a plan out: begins each strike when its time has come, heals it when that is over, and notes both."""

from __future__ import annotations

import heapq
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TypeVar

import msgspec

from tests.chaos.children import Child
from tests.chaos.cluster import BUSIEST, Cluster
from tests.chaos.ensemble import Node
from tests.chaos.history import History
from tests.chaos.plan import OWNER_FAULTS, Step, Strike
from tests.chaos.proxy import HEALTHY, Faults
from tests.integration.embedded import NEVER

Say = Callable[[str], None]
Heal = Callable[[], None]
T = TypeVar("T")

START_SECONDS = 20.0
"""In which a program may give up because ZooKeeper is away, and in which SIGTERM may come before it is expected."""
_LOOK_SECONDS = 0.2
_RESTART_SECONDS = 1.0
"""Before a process that ended by itself is started again."""

_LEGS = {
    "cut": Faults(mode="cut"), "cut-long": Faults(mode="cut"), "silence": Faults(mode="silent"),
    "replies-lost": Faults(drop_replies=True),
}  # fmt: skip
_SLOW = {
    "zookeeper": Faults(delay=0.15), "clients": Faults(delay=0.05, bytes_per_second=200_000),
    "pushes": Faults(delay=0.05, bytes_per_second=100_000),
}  # fmt: skip


class Nemesis:
    """One run's. `run` blocks until everything is healed."""

    def __init__(self, cluster: Cluster, say: Say) -> None:
        self._cluster, self._say = cluster, say
        self._history = History(cluster.history("nemesis"))
        self._down: set[str] = set()
        """Children that are meant not to run."""
        self._ended: dict[str, float] = {}
        self._turn = count()
        self.problems: list[str] = []
        """Processes that ended as none should."""

    def run(self, steps: list[Step], each: Callable[[], None]) -> None:
        """Strike and heal; `each` is called several times a second."""
        begun = time.monotonic()
        heals: list[tuple[float, int, Strike, Heal]] = []
        todo = list(reversed(steps))
        while todo or heals:
            now = time.monotonic() - begun
            while heals and heals[0][0] <= now:
                _, _, strike, heal = heapq.heappop(heals)
                heal()
                self._history.note("healed", strike.fault, strike.target)
                self._say(f"  healed {strike.fault} {strike.target}")
            while todo and todo[-1].at <= now:
                for planned in todo.pop().strikes:
                    strike, heal = self._strike(planned)
                    heapq.heappush(heals, (time.monotonic() - begun + strike.seconds, next(self._turn), strike, heal))
            self.revive()
            each()
            NEVER.wait(_LOOK_SECONDS)

    def retire(self, child: Child) -> None:
        """It is meant to end now and to stay away."""
        self._down.add(child.name)

    def revive(self) -> None:
        """Start again what ended by itself: a host that finds no ZooKeeper as it starts gives up, as it should."""
        now = time.monotonic()
        for child in self._cluster.children():
            if child.alive or child.name in self._down or child.exit_status is None:
                self._ended.pop(child.name, None)
            elif child.name not in self._ended:
                self._ended[child.name] = now
                self._note_end(child, now)
            elif now > self._ended[child.name] + _RESTART_SECONDS:
                child.start()

    def _note_end(self, child: Child, now: float) -> None:
        """A program that finds no ZooKeeper as it starts may give up; one that ran must not."""
        lived = now - child.started
        self._history.note("ended", child.name, child.exit_status)
        self._say(f"  {child.name} ended by itself with status {child.exit_status} after {lived:.1f} s")
        if lived > START_SECONDS:
            self.problems.append(f"{child.name} ended by itself with status {child.exit_status}, {lived:.0f} s old")

    def _strike(self, strike: Strike) -> tuple[Strike, Heal]:
        """Take aim, tell, and do it."""
        held = self._cluster.owned() if strike.target == BUSIEST or strike.fault in OWNER_FAULTS else {}
        if strike.target == BUSIEST:
            strike = msgspec.structs.replace(strike, target=max(held, key=lambda name: len(held[name])))
        owned: set[int] = set()
        if strike.fault in OWNER_FAULTS:
            owned = held[strike.target] if strike.target in held else set().union(*held.values())
        self._history.note("fault", strike.fault, strike.target, ",".join(map(str, sorted(owned))) or "-")
        of_all = f" (owns {len(owned)} of {self._cluster.shape.partitions} partitions)" if owned else ""
        self._say(f"{strike}{of_all}")
        return strike, self._begin(strike)

    def _begin(self, strike: Strike) -> Heal:
        cluster = self._cluster
        kind, _, what = strike.fault.partition("-")
        if strike.fault == "clock-step":
            cluster.step_clock(strike.target, strike.amount)
            return lambda: cluster.step_clock(strike.target, 0.0)
        if strike.fault == "churn":
            return self._churn()
        if kind in _SLOW and (what in _LEGS or what == "slow"):
            return self._disturb(kind, strike.target, _LEGS.get(what) or _SLOW[kind])
        if kind == "zookeeper":
            return self._zookeeper(what, strike.seconds)
        return self._process(what, self._targets(kind, strike.target))

    def _targets(self, kind: str, target: str) -> list[Child]:
        cluster = self._cluster
        if kind == "hosts":
            return list(cluster.hosts.values())
        groups = {"host": cluster.hosts, "subscriber": cluster.subscribers, "publisher": cluster.publishers}
        return [groups[kind][target]]

    def _process(self, what: str, children: list[Child]) -> Heal:
        if what in ("pause", "blip"):
            return _stopped(children)
        self._down.update(child.name for child in children)
        young = {child.name for child in children if time.monotonic() < child.started + START_SECONDS}
        for child in children:
            child.signal(signal.SIGTERM if what == "terminate" else signal.SIGKILL)

        def start() -> None:
            for child in children:
                if what == "terminate" and not child.ended() and child.name not in young:
                    self.problems.append(f"{child.name} did not end cleanly after SIGTERM: status {child.exit_status}")
                    self._say(f"  {self.problems[-1]}")
                child.kill()
                child.start()
                self._down.discard(child.name)

        return start

    def _disturb(self, kind: str, target: str, faults: Faults) -> Heal:
        leg = target if kind == "pushes" else f"{target}.{kind}"
        self._cluster.disturb(leg, faults)
        return lambda: self._cluster.disturb(leg, HEALTHY)

    def _churn(self) -> Heal:
        churn = self._cluster.churn
        assert churn is not None
        churn.start()

        def end() -> None:
            self.retire(churn)
            churn.stop()

        self._down.discard(churn.name)
        return end

    def _zookeeper(self, what: str, seconds: float) -> Heal:
        ensemble = self._cluster.ensemble
        if what == "rolling-restart":
            for node in ensemble.nodes:
                self._restart(node)
                NEVER.wait(seconds / len(ensemble.nodes))
            return lambda: None
        role = what.partition("-")[0]
        nodes = ensemble.nodes if role == "kill" else ensemble.by_role("leader" if role == "leader" else "follower")[:1]
        if what.endswith("pause"):
            return _stopped(nodes)
        for node in nodes:
            node.end()
        return lambda: _each(nodes, ensemble.start)

    def _restart(self, node: Node) -> None:
        self._say(f"  restarting ZooKeeper {node.number} ({node.role()})")
        node.end()
        self._cluster.ensemble.start(node)
        self._cluster.ensemble.wait(everybody=True)


def _stopped(processes: Sequence[Child | Node]) -> Heal:
    for process in processes:
        process.signal(signal.SIGSTOP)
    return lambda: _each(processes, lambda process: process.signal(signal.SIGCONT))


def _each(those: Iterable[T], work: Callable[[T], None]) -> None:
    for one in those:
        work(one)
