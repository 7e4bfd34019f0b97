"""Two hosts that may both believe to manage transactions, on a MetaStore that loses answers, seed after seed.

Whatever happens: no pointer is given out twice, what was answered as committed stays so, nobody sees what may still not
be, and of two transactions that changed the same only one that saw the other is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from delivery.cluster.seat import Seat
from delivery.errors import HootError, NotOwner, UnknownOutcome
from delivery.messaging.transactions import Snapshot, Verdict
from delivery.metastore.managers.transactions import Managed, TransactionRecords
from delivery.metastore.ops import InDoubt
from delivery.metastore.records import HostRecord
from delivery.metastore.tables.base import Change, MetastoreTable, Put
from delivery.metastore.tables.memory import MemoryData, MemoryMetaStore, MemoryTable
from delivery.metastore.tables.versions import Version, Versioned
from delivery.transactions.asks import Abort, Asked, Begin, Begun, Commit, Expire, Invalidate, Look
from delivery.transactions.errors import TransactionConflict
from delivery.transactions.state import State

SEEDS = 40
STEPS = 120


class Client(NamedTuple):
    """A transaction as the one knows it who began it."""

    begun: Begun
    keys: frozenset[int]


class World:
    """What two hosts share, what was really kept, and what clients were told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.data = MemoryData()
        self.now = 1_700_000_000_000
        self.late: list[tuple[FaultyTable, Sequence[Change]]] = []
        self.kept: list[State] = [State()]
        self.clients: list[Client] = []
        self.told: dict[int, str] = {}
        self.conflicts = 0
        self.sides = [Side(self, "a"), Side(self, "b")]
        self.busy: list[Side] = []

    def apply(self, changes: Sequence[Change], outcomes: Sequence[Version | HootError]) -> None:
        """The MetaStore did this."""
        for change, outcome in zip(changes, outcomes, strict=True):
            if isinstance(outcome, Version) and isinstance(change, Put):
                self.kept.append(msgspec.json.decode(change.value["state"] or b"", type=State))

    def meanwhile(self) -> None:
        """Others go on while somebody writes."""
        for _ in range(self.random.randrange(3)):
            self.act()

    def act(self) -> None:
        side = self.random.choice(self.sides)
        if side in self.busy:
            self.see(side.seat.at_once(Begin(5000)))
        elif self.late and self.random.random() < 0.3:
            table, changes = self.late.pop(self.random.randrange(len(self.late)))
            table.land(changes)
        else:
            self.busy.append(side)
            self.ask(side, [self.one() for _ in range(self.random.randrange(1, 4))])
            self.busy.remove(side)
        self.now += self.random.choice([0, 1, 200, 6000])

    def one(self) -> Asked:
        if not self.clients or self.random.random() < 0.4:
            return Begin(self.random.choice([3000, 60_000]))
        begun, keys = self.random.choice(self.clients[-6:])
        pointer = begun.pointer
        kinds: list[Asked] = [Abort(pointer), Invalidate(pointer), Expire(), Look()]
        return Commit(pointer, keys) if self.random.random() < 0.6 else self.random.choice(kinds)

    def ask(self, side: Side, asks: list[Asked]) -> None:
        try:
            at_once = side.seat.at_once(asks[0]) if len(asks) == 1 else None
            answers = side.seat.work(asks) if at_once is None else [at_once]
        except (NotOwner, UnknownOutcome):
            return
        for ask, answer in zip(asks, answers, strict=True):
            self.see(answer)
            self.conflicts += isinstance(answer, TransactionConflict)
            if isinstance(ask, Commit) and answer is None:
                assert self.told.setdefault(ask.pointer, "committed") == "committed"
                assert self.kept[-1].finished[ask.pointer], "what is committed has been kept"

    def see(self, answer: object) -> None:
        """Whoever begins, or only looks, sees nothing that is not kept."""
        snapshot = answer.snapshot if isinstance(answer, Begun) else answer
        if not isinstance(snapshot, Snapshot):
            return
        for client in self.clients:
            pointer = client.begun.pointer
            if snapshot.judge(pointer, rolled_back=False) is Verdict.TAKE:
                assert pointer in self.kept[-1].finished
        if isinstance(answer, Begun):
            assert answer.pointer not in {client.begun.pointer for client in self.clients}
            self.clients.append(Client(answer, frozenset(self.random.sample(range(3), self.random.randrange(3)))))

    def check(self) -> None:
        """What was kept, from first to last."""
        committed: dict[int, int] = {}
        for at, state in enumerate(self.kept):
            for pointer, is_committed in state.finished.items():
                if is_committed:
                    committed.setdefault(pointer, at)
            assert not committed.keys() & ({*state.invalid} | state.in_progress.keys())
        assert self.told.keys() <= committed.keys()
        done = [client for client in self.clients if client.begun.pointer in committed]
        for one in done:
            for other in done:
                first, second = committed[one.begun.pointer], committed[other.begun.pointer]
                if one is not other and one.keys & other.keys and first <= second:
                    assert other.begun.snapshot.judge(one.begun.pointer, rolled_back=False) is Verdict.TAKE


class FaultyTable(MemoryTable):
    """Changes may get lost, come late, or be done without an answer."""

    world: World

    def _change(self, changes: Sequence[Change]) -> list[Version | HootError]:
        self.world.meanwhile()
        fate = self.world.random.choice(["done"] * 12 + ["lost", "late", "unheard"])
        if fate == "late":
            self.world.late.append((self, changes))
        outcomes = self.land(changes) if fate in ("done", "unheard") else []
        return outcomes if fate == "done" else [InDoubt(fate)] * len(changes)

    def land(self, changes: Sequence[Change]) -> list[Version | HootError]:
        outcomes = super()._change(changes)
        self.world.apply(changes, outcomes)
        return outcomes


class FaultyStore(MemoryMetaStore):
    def __init__(self, world: World) -> None:
        super().__init__(world.data)
        self._world = world

    def create_table(self, name: str) -> MetastoreTable:
        table = FaultyTable(self, name, self._table(name, ordered=False))
        table.world = self._world
        return table


class Registry:
    """Where a host reads what is kept, and who lives."""

    def __init__(self, world: World) -> None:
        self._records = TransactionRecords(FaultyStore(world))

    def transactions(self) -> Versioned[Managed] | None:
        return self._records.read()

    def keep_transactions(self, managed: Managed, version: Version) -> Version:
        return self._records.write(managed, version)

    def host(self, host: str) -> HostRecord:
        return HostRecord(host, "10.0.0.1", 7000, None, 1, "1", 0)


class Side:
    """One host; whether it takes the other one for dead is a matter of luck."""

    session = 1

    def __init__(self, world: World, host: str) -> None:
        self.host, self._world = host, world
        skew = world.random.choice([0, 0, -20_000, 300])
        self.seat = Seat(Registry(world), self, lambda: world.now + skew)

    def is_gone(self, other: HostRecord) -> bool:
        return self._world.random.random() < 0.3


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_no_two_that_conflict_commit_and_no_pointer_comes_twice(first: int) -> None:
    conflicts = committed = rounds = 0
    for seed in range(first, first + 10):
        world = World(seed)
        for _ in range(STEPS):
            world.act()
        world.check()
        conflicts, committed = conflicts + world.conflicts, committed + len(world.told)
        rounds += len(world.kept)
    assert min(conflicts, committed, rounds) > 20, "it happened"
