"""An operator of the simulation: somebody who moves subscriptions by hand, with the real code of the client.

What is to be done is on a desk that outlives the process: whoever is cut down in the middle says it again. The names
here are those of docs/positions.md: snapshots and going back to them, seeking, replays, and their promotion.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import msgspec
import trio

from delivery.client.positions import Positions
from delivery.client.replays import Replays
from delivery.client.snapshots import Snapshots
from delivery.errors import HootError, InvalidRequest, NoHost, SnapshotExists, SubscriptionExists, UnknownSubscription
from delivery.filters import KEEP
from delivery.metastore.catalog import open_catalog
from delivery.metastore.managers.snapshots import SavedPosition
from delivery.metastore.records import SubscriptionRecord
from tests.simulation.kernel import Kernel
from tests.simulation.machine import Crashed, Machine, here
from tests.simulation.network import Network
from tests.simulation.peers import SimulatedPool
from tests.simulation.publisher import QUEUE
from tests.simulation.session import SimulatedSession
from tests.simulation.zookeeper import ZooKeeperServer

REAL: Final = "all"
"""The subscription that all of it is about."""
COMMANDS: Final = (2, 5)
ANSWER_SECONDS: Final = 1.5

Work = Callable[["SimulatedOperator"], None]


class Desk:
    """What is to be done and what is known of what was done: the memory of a person."""

    def __init__(
        self, kernel: Kernel, attach: Callable[[SubscriptionRecord], None], retire: Callable[[str], None], end: float
    ) -> None:  # fmt: skip
        """`attach` starts a subscriber for a shadow, `retire` ends it; commands are given before `end`."""
        self.attach, self.retire = attach, retire
        self.commands: list[tuple[float, Work]] = []
        at = 0.0
        snapshots: list[str] = []
        shadows: list[str] = []
        for number in range(kernel.random.randint(*COMMANDS)):
            at += kernel.between(0.2, end / COMMANDS[1])
            self.commands.append((at, self._some_command(kernel, number, snapshots, shadows)))
        for shadow in shadows if kernel.chance(0.5) else ():
            self.commands.append((at + 0.3, partial(promote, shadow)))

    @staticmethod
    def _some_command(kernel: Kernel, number: int, snapshots: list[str], shadows: list[str]) -> Work:
        choices = ["seek", "snapshot", "replay"] + ["restore"] * 2 * bool(snapshots) + ["promote"] * 2 * bool(shadows)
        chosen = kernel.random.choice(choices)
        if chosen == "snapshot":
            snapshots.append(f"s{number}")
            return partial(take_snapshot, snapshots[-1])
        if chosen == "restore":
            return partial(restore, kernel.random.choice(snapshots))
        if chosen == "replay":
            shadows.append(f"shadow{number}")
            return partial(replay, shadows[-1], kernel.random.random(), kernel.random.choice(("max", 1e6)))
        if chosen == "promote":
            return partial(promote, shadows.pop())
        return partial(seek, kernel.random.random())


class SimulatedOperator(Machine):
    """One process of the operator's."""

    def __init__(self, kernel: Kernel, name: str, network: Network, server: ZooKeeperServer, desk: Desk) -> None:
        super().__init__(kernel, name)
        self.network, self.desk = network, desk
        self.session = SimulatedSession(self, server, reset_chance=0.01, deadline=1.0)
        self.catalog = open_catalog(cast("Any", self.session))
        calls = cast("Any", _Calls(self))
        self.positions = Positions(self.catalog, calls)
        self.snapshots = Snapshots(self.catalog, self.positions)
        self.replays = Replays(self.catalog, calls, self.positions)

    async def run(self, desk: Desk) -> None:
        """Do what is on the desk, until crashed."""
        here.set(self)
        try:
            with self.scope:
                self.session.start()
                while desk.commands:
                    at, work = desk.commands[0]
                    await trio.sleep(max(0.0, at - self.kernel.now))
                    await self._until_done(work)
                    desk.commands.pop(0)
                await trio.sleep_forever()
        except* Crashed:
            pass

    async def _until_done(self, work: Work) -> None:
        while True:
            try:
                await trio.to_thread.run_sync(work, self)
            except HootError as error:
                self.note("in vain", str(error)[:100])
                await trio.sleep(0.2)
            else:
                return

    def note(self, kind: str, *facts: object) -> None:
        """Say in the history what is done."""
        self.kernel.note(kind, self.name, *facts)


class _Calls:
    """In the place of client.calls.Calls: asks one host after the other."""

    def __init__(self, operator: SimulatedOperator) -> None:
        self._operator, self._pool = operator, SimulatedPool()

    def call(self, _queue: str, _partition: int, method: str, *args: object, timeout: float) -> Any:
        """What the owner answers. Raises NoHost."""
        for address in sorted(self._operator.network.listening):
            if address[0].startswith("host"):
                try:
                    return self._pool.call(*address, method, *args, deadline=min(timeout, ANSWER_SECONDS))
                except HootError as error:
                    self._operator.note("not answered", address[0], error.code)
        raise NoHost("no host answers for the partition")


def places(found: dict[int, SavedPosition]) -> tuple[tuple[int, int, object], ...]:
    """Positions and what is parked, as one fact of the history."""
    return tuple((partition, one.position, one.parked) for partition, one in sorted(found.items()))


# -- commands, each of which can be said again


def seek(back: float, one: SimulatedOperator) -> None:
    """Go back in one partition, or to where it is: by as much of it as `back` says."""
    record = one.positions.record(QUEUE, REAL)
    states = one.catalog.states(QUEUE, REAL)
    partition = max(states, default=0)
    position = states[partition].position if partition in states else 0
    wanted = position - int((position - _first(one, partition)) * back) if position else 0
    one.note("seeks", REAL, ((partition, wanted, ()),))
    one.positions.seek(record, wanted + 1, [partition], force=True, dry_run=False)


def _first(one: SimulatedOperator, partition: int) -> int:
    """An id below all."""
    info = one.positions._calls.call(QUEUE, partition, "partitionInfo", QUEUE, partition, timeout=ANSWER_SECONDS)
    return int(info.firstId) - 1


def take_snapshot(name: str, one: SimulatedOperator) -> None:
    """Keep where it stands."""
    try:
        found = one.snapshots.create(QUEUE, REAL, name, dry_run=False)
    except SnapshotExists:  # an earlier try was done after all
        found = one.snapshots.one(QUEUE, REAL, name)
    one.note("snapshot", name, places(found.positions))


def restore(name: str, one: SimulatedOperator) -> None:
    """Go back to a snapshot."""
    one.note("restores", REAL, places(one.snapshots.one(QUEUE, REAL, name).positions), name)
    one.snapshots.restore(QUEUE, REAL, name, force=True, dry_run=False)


def replay(shadow: str, back: float, speed: float | str, one: SimulatedOperator) -> None:
    """Deliver a stretch again, and attach a subscriber to it."""
    states = one.catalog.states(QUEUE, REAL)
    last = max((state.position for state in states.values()), default=0)
    start = last - int((last - _first(one, 0)) * back) if last else 0
    one.note("replays", shadow, start)
    try:
        one.replays.replay(
            QUEUE, REAL, shadow, start=start, end="latest", speed=speed, filter_=KEEP, dry_run=False
        )  # fmt: skip
    except InvalidRequest as error:
        one.note("nothing to replay", shadow, error)
        return
    except SubscriptionExists:
        pass  # an earlier try was done after all
    record = one.catalog.subscription(QUEUE, shadow)
    assert record is not None
    one.desk.attach(msgspec.structs.replace(record))


def promote(shadow: str, one: SimulatedOperator) -> None:
    """Have the real one go on where the shadow stands."""
    if one.catalog.subscription(QUEUE, shadow) is not None:
        one.note("promotes", shadow)
        try:
            one.replays.promote(QUEUE, shadow, force=True, dry_run=False)
        except UnknownSubscription:
            return  # an earlier try was done after all
        one.note("promoted", shadow)
    one.desk.retire(shadow)
