"""A simulated ZooKeeper: one linearizable tree, sessions that expire, and watches that fire once.

It is the server side. What lies between it and a program (delays, cuts, lost replies) is in `session`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from delivery.metastore.ops import Create, Delete, Op, Refused, Set
from delivery.metastore.watches import Kind
from delivery.metastore.znodes import Aspect
from delivery.testing.znodes import Tree
from tests.simulation.kernel import Kernel
from tests.simulation.machine import Resume
from tests.znodes import FakeZNodes

Fired = Callable[[], None]
Applied = Callable[[str, Op], None]

LATE_WATCH: Final = 0.1
"""Part of the watches that fire late."""
LATE_SECONDS: Final = 3.0


class Connection:
    """One TCP connection, on both sides."""

    def __init__(self) -> None:
        self.open = True
        """As the client sees it."""
        self.pending: dict[int, Resume] = {}
        self.stalled: list[Callable[[], None]] = []
        """What waits for the end of a cut."""
        self.lost = False
        """Whether something got lost with the machine, and so all that was behind it."""
        self.there = self.back = 0.0
        """When the last thing arrives, each way: nothing overtakes."""


class Client:
    """A session on the server's side: who it is, what is ephemeral by it, and the connection that speaks for it."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.alive = True
        self.ephemerals: dict[str, None] = {}
        self.connection: Connection | None = None
        """The newest one; what still arrives by an older one is ignored."""
        self.silences = 0
        """Counts the ends of silences, so that a timer knows its own."""


class ZooKeeperServer:
    """All servers of an ensemble as one."""

    def __init__(self, kernel: Kernel, session_timeout: float) -> None:
        self.kernel, self.session_timeout = kernel, session_timeout
        self.tree = Tree()
        self.on_applied: Applied = lambda _session, _op: None
        """Told of each change, in the order in which they count."""
        self._znodes = FakeZNodes(self.tree)
        self._clients: dict[int, Client] = {}
        self._owners: dict[str, Client] = {}
        self._watches: dict[tuple[Kind, str], dict[Fired, Connection]] = {}
        self._sessions = 0x100

    def begin(self, name: str) -> Client:
        """A new session."""
        self._sessions += 1
        client = self._clients[self._sessions] = Client(self._sessions, name)
        return client

    def silent(self, client: Client) -> None:
        """Nothing is heard of a client from now on: its session ends unless that ends before."""
        client.silences += 1
        silence = client.silences

        def forget() -> None:
            if client.silences == silence:
                self.expire(client)

        self.kernel.later(self.session_timeout * self.kernel.between(0.67, 1.1), forget)

    def heard(self, client: Client) -> None:
        """The silence is over."""
        client.silences += 1

    def expire(self, client: Client) -> None:
        """The end of a session, and of what is ephemeral by it."""
        if not client.alive:
            return
        client.alive = False
        self.kernel.note("expired", client.name, hex(client.number))
        for path in list(client.ephemerals):
            self.transact(client, [Delete(path)])

    def read(self, aspect: Aspect, paths: Sequence[str]) -> list[Any]:
        """As of now."""
        return self._znodes._read(aspect, paths)

    def transact(self, client: Client, ops: Sequence[Op]) -> list[int] | Refused:
        """All or nothing; watches fire."""
        outcome = self._znodes._transact(ops)
        if not isinstance(outcome, Refused):
            for op in ops:
                self._keep_books(client, op)
                self.on_applied(client.name, op)
                self._fire(op)
        return outcome

    def watch(self, kind: Kind, path: str, connection: Connection, fired: Fired) -> None:
        """Call `fired` once, at the next change; whether it gets through is the connection's business."""
        self._watches.setdefault((kind, path), {})[fired] = connection

    def unwatch_all(self, connection: Connection) -> None:
        """A connection has ended, and its watches with it."""
        for watchers in self._watches.values():
            for fired in [fired for fired, by in watchers.items() if by is connection]:
                del watchers[fired]

    def delay(self) -> float:
        """How long the news of a change takes."""
        if self.kernel.chance(LATE_WATCH):
            return self.kernel.between(0, LATE_SECONDS)
        return self.kernel.between(0.001, 0.01)

    def _keep_books(self, client: Client, op: Op) -> None:
        if isinstance(op, Create) and op.ephemeral:
            client.ephemerals[op.path] = None
            self._owners[op.path] = client
        elif isinstance(op, Delete) and (owner := self._owners.pop(op.path, None)) is not None:
            owner.ephemerals.pop(op.path, None)

    def _fire(self, op: Op) -> None:
        if not isinstance(op, Create | Set | Delete):
            return
        kinds: list[tuple[Literal["children", "value"], str]] = [("value", op.path)]
        if not isinstance(op, Set):
            kinds += [("children", op.path), ("children", op.path.rpartition("/")[0])]
        for key in kinds:
            for fired in self._watches.pop(key, {}):
                self.kernel.later(self.delay(), fired)
