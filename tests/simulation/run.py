"""One run from a seed: a world, its faults, its checker, and the traffic."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from tests.simulation.checker import Checker, Violation
from tests.simulation.history import History
from tests.simulation.host import SESSION_SECONDS
from tests.simulation.machine import here
from tests.simulation.nemesis import FAULT_SECONDS, Nemesis
from tests.simulation.patches import simulated
from tests.simulation.world import World

SETTLE_SECONDS: Final = SESSION_SECONDS + 6.0
"""After the last fault. Besides the session, it takes a host's restart, its pauses before it claims again, a
publisher's and a link's last pauses, and a reconcile of what a lost watch should have told."""
BATCHES: Final = (6, 20)


class Result(msgspec.Struct):
    """How a run ended."""

    seed: int
    history: History
    violation: BaseException | None
    settled: float
    """Virtual seconds from the end of the faults until everything was done."""
    duplicates: int


def simulate(seed: int, *, logs: bool = False) -> Result:
    """Run a seed. What the code under test raises is a violation, too. With `logs` they are in the history."""
    world = World(seed)
    nemesis = Nemesis(world)
    checker = Checker(world, faultless=not nemesis.faults)
    kernel = world.kernel
    _plan_traffic(world)
    ended = [0.0]

    def until() -> bool:
        if behind := checker.behind():
            if kernel.now > FAULT_SECONDS + SETTLE_SECONDS:
                kernel.fail(Violation("I11", f"{SETTLE_SECONDS:g} s after the last fault {behind}"))
            return kernel.failure is not None
        ended[0] = kernel.now
        return True

    violation: BaseException | None = None
    with simulated(seed, kernel), _logging(world, logging.INFO if logs else logging.ERROR):
        try:
            kernel.run(partial(world.run, until))
            checker.finish()
            violation = kernel.failure
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this run's outcome
            violation = kernel.failure or error
    return Result(seed, kernel.history, violation, ended[0] - FAULT_SECONDS, checker.duplicates)


def _plan_traffic(world: World) -> None:
    """Batches at random moments of the faults; in half of the runs one to each partition when they are over.

    Not in all, for something new may wake what had forgotten the old.
    """
    kernel = world.kernel
    for publisher in world.publishers:
        for _ in range(kernel.random.randint(*BATCHES)):
            partition, count = kernel.random.randrange(world.partitions), kernel.random.choice((1, 1, 2, 5))
            patience = kernel.between(0.02, 0.4) if kernel.chance(0.3) else kernel.between(1.0, 8.0)
            publish = partial(publisher.publish, partition, count, patience)
            kernel.later(kernel.between(0.05, FAULT_SECONDS), partial(publisher.act, publish))
    for partition in range(world.partitions if kernel.chance(0.5) else 0):
        publish = partial(world.publishers[0].publish, partition, 1, 30.0)
        kernel.later(FAULT_SECONDS + 0.2, partial(world.publishers[0].act, publish))


@contextmanager
def _logging(world: World, level: int) -> Iterator[None]:
    """What the engine logs is noted below level ERROR; an exception that it logs and survives is a mistake."""

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if level < logging.ERROR:
                machine = here.get(None)
                world.kernel.note("log", machine.name if machine else "-", record.levelname, record.getMessage())
            if record.exc_info and record.name.startswith("delivery"):
                world.kernel.fail(record.exc_info[1] or AssertionError(record.getMessage()))

    watch = Watch(level)
    logs = [logging.getLogger(name) for name in ("delivery", "subscriber")]
    before = [(log.level, log.propagate) for log in logs]
    for log in logs:
        if level < logging.ERROR:  # the level of the handler does, and to set this one makes all loggers look again
            log.setLevel(level)
        log.propagate = False
        log.addHandler(watch)
    try:
        yield
    finally:
        for log, (old, propagate) in zip(logs, before, strict=True):
            log.removeHandler(watch)
            if log.level != old:
                log.setLevel(old)
            log.propagate = propagate
