"""What goes wrong, and when: drawn from the seed, then done to the world, and all mended in the end.

Half of the faults come at some moment. The others wait for a step of the work (a write has landed, a claim has been
granted, a push went out) and hit right behind it, whoever makes it: what matters most happens within milliseconds, and
no moment chosen by chance would ever meet it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.simulation.history import Entry
from tests.simulation.host import SESSION_SECONDS, SimulatedHost
from tests.simulation.machine import Machine
from tests.simulation.operator import SimulatedOperator
from tests.simulation.publisher import QUEUE
from tests.simulation.subscriber import SimulatedSubscriber
from tests.simulation.world import World

FAULTS_MAX: Final = 7
FAULT_SECONDS: Final = 5.0
"""From the start of a run to the end of all faults."""

STEPS: Final = ("accept", "append", "landed", "claimed", "opened", "push", "handled", "checkpoint", "stored")
STEPS_MAX: Final = 40
"""At most so many steps of a kind pass before the fault that waits for it."""

MOVES: Final = ("seeks", "snapshot", "restores", "replays", "promotes", "promoted", "moved")
"""Further ones, where somebody moves positions by hand."""

Session = SimulatedHost | SimulatedSubscriber | SimulatedOperator


class Nemesis:
    """Plans the faults of a run. Some runs have none."""

    def __init__(self, world: World) -> None:
        self._world, self._kernel = world, world.kernel
        self._traps: list[tuple[str, int, Callable[[Machine], None]]] = []
        self.faults = 0 if self._kernel.chance(0.05) else self._kernel.random.randint(1, FAULTS_MAX)
        self._single: list[Callable[[Machine], None]] = [
            self.crash, self.crash, self.pause, self.pause, self.pause, self.cut_from_zookeeper,
            self.cut_from_zookeeper, self.expire, self.reset, self.stall, self.cut_network, self.step_clock,
        ]  # fmt: skip
        self._general: list[Callable[[], None]] = [
            self.slow_disk, self.failing_disk, self.failing_disk, self.stop_host, self.drain_host, self.move_partition,
            self.move_partition,
        ]  # fmt: skip
        self._steps = STEPS if world.desk is None else STEPS + MOVES * 2
        for _ in range(self.faults):
            self._plan()
        if self._traps:
            self._kernel.history.listeners.append(self._watch)
        if not self.faults:
            world.disk.calm = world.script.calm = True
        self._kernel.later(FAULT_SECONDS, self.mend)

    def _plan(self) -> None:
        kernel = self._kernel
        at = kernel.between(0.2, FAULT_SECONDS - 0.5)
        if kernel.chance(0.3):
            kernel.later(at, kernel.random.choice(self._general))
        elif kernel.chance(0.5):
            kernel.later(at, partial(self._hit_any, kernel.random.choice(self._single)))
        else:
            steps = 1 + int(STEPS_MAX * kernel.random.random() ** 3)
            self._traps.append((kernel.random.choice(self._steps), steps, kernel.random.choice(self._single)))

    def _hit_any(self, fault: Callable[[Machine], None]) -> None:
        """Hosts twice as often as subscribers."""
        group = self._world.hosts if self._kernel.chance(0.7) else self._world.subscribers
        if group:
            fault(self._kernel.random.choice(group))

    def _watch(self, entry: Entry) -> None:
        for place, (kind, steps, fault) in enumerate(self._traps):
            if kind == entry.kind:
                self._traps[place] = (kind, steps - 1, fault)
                if steps == 1:
                    self._kernel.later(0.0, partial(self._spring, self._victim(entry), fault))

    def _victim(self, entry: Entry) -> str:
        """Whoever made the step; of what an operator does, a host as often."""
        hosts = self._world.hosts
        if entry.kind in MOVES and hosts and self._kernel.chance(0.5):
            return self._kernel.random.choice(hosts).name
        return entry.who

    def _spring(self, name: str, fault: Callable[[Machine], None]) -> None:
        for machine in self._world.machines():
            if machine.name == name and self._kernel.now < FAULT_SECONDS:
                fault(machine)
                return

    # -- to one machine

    def crash(self, machine: Machine) -> None:
        """kill -9."""
        if isinstance(machine, Session):
            self._note("crash", machine)
            machine.crash()

    def pause(self, machine: Machine) -> None:
        """SIGSTOP, and SIGCONT later; often longer than the session lives."""
        if machine.paused:
            return
        self._note("pause", machine)
        machine.pause()

        def resume() -> None:
            if machine.paused and machine.alive:
                self._note("resume", machine)
                machine.resume()

        self._kernel.later(self._some_seconds(), resume)

    def cut_from_zookeeper(self, machine: Machine) -> None:
        """The one leg, while it reaches everybody else."""
        if isinstance(machine, Session):
            self._note("cut from zk", machine)
            machine.session.cut_off()
            self._kernel.later(self._some_seconds(), machine.session.heal)

    def expire(self, machine: Machine) -> None:
        """Its session ends, though it did nothing wrong."""
        if isinstance(machine, Session):
            machine.session.expire()

    def reset(self, machine: Machine) -> None:
        """All its connections break."""
        self._note("reset", machine)
        for wire in self._world.network.wires():
            if machine in (wire.near, wire.far):
                wire.reset()

    def stall(self, machine: Machine) -> None:
        """Paused for so long that somebody on the way drops its connections."""
        self.pause(machine)
        self._kernel.later(self._kernel.between(0.05, 0.5), partial(self.reset, machine))

    def cut_network(self, machine: Machine) -> None:
        """Between it and one of those that it talks to; nobody is told."""
        talking = [wire for wire in self._world.network.wires() if machine in (wire.near, wire.far)]
        if talking:
            wire = self._kernel.random.choice(talking)
            self._note("cut off", wire.near, wire.far)
            self._world.network.cut(wire.near.name, wire.far.name)
            self._kernel.later(self._some_seconds(), self._world.network.heal)

    def step_clock(self, machine: Machine) -> None:
        """Its wall clock jumps, forth or back."""
        step = self._kernel.random.choice((-600_000, -1000, -10, 10, 1000, 600_000))
        self._note("clock step", machine, step)
        machine.clock_off_ms += step

    # -- to all

    def stop_host(self) -> None:
        """SIGTERM: a host gives its partitions away, and drains."""
        for host in self._world.hosts:
            if host.serving and not host.stopping.is_set():
                self._note("stop", host)
                host.act(host.stopping.set)
                return

    def drain_host(self) -> None:
        """An operator has a host give its partitions away, and changes his mind later."""
        for host in self._world.hosts:
            if host.sharing is not None and host.serving:
                self._note("drain", host)
                drain = host.sharing.drain
                host.operate(partial(drain, draining=True))
                self._kernel.later(self._some_seconds(), partial(host.operate, partial(drain, draining=False)))
                return

    def move_partition(self) -> None:
        """An operator moves a partition from whoever has it to a host."""
        kernel = self._kernel
        partition = kernel.random.randrange(self._world.partitions)
        target = kernel.random.choice([host.name for host in self._world.hosts] or ["nobody"])
        for host in self._world.hosts:
            if host.sharing is not None and host.serving:
                self._note("move", host, partition, target)
                host.operate(partial(host.sharing.move, QUEUE, partition, target))

    def slow_disk(self) -> None:
        """Everything takes long for a while."""
        self._kernel.note("slow disk", "disk")
        self._world.disk.slowness = self._kernel.between(10, 300)
        self._kernel.later(self._some_seconds(), self._world.disk.mend)

    def failing_disk(self) -> None:
        """Some writes fail, which may have landed."""
        self._kernel.note("failing disk", "disk")
        self._world.disk.failing = self._kernel.between(0.2, 0.7)
        self._kernel.later(self._some_seconds(), self._world.disk.mend)

    def mend(self) -> None:
        """The end of all faults."""
        self._kernel.note("mended", "nemesis")
        world = self._world
        world.network.heal()
        world.disk.mend()
        world.disk.calm = world.script.calm = True
        for machine in list(world.machines()):
            if machine.paused:
                machine.resume()
        programs: list[Session] = [*world.hosts, *world.subscribers, *world.operators]
        sessions = [one.session for one in programs]
        for session in sessions:
            if session.cut:
                session.heal()

    def _some_seconds(self) -> float:
        """Now a moment, now longer than a session lives."""
        kernel = self._kernel
        return kernel.between(0.01, 0.5) if kernel.chance(0.4) else kernel.between(0.3, 2.0) * SESSION_SECONDS

    def _note(self, what: str, machine: Machine, *more: object) -> None:
        self._kernel.note(what, machine.name, *more)
