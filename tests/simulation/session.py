"""A program's session with the simulated ZooKeeper: what `ZooKeeperClient` is to the real one, with the same promises.

Requests and answers take time, in order, on a connection that breaks: by itself, when the network is cut for too long,
or when the session is over. Who has asked then knows nothing: a read is asked again, a write is InDoubt, whether it was
applied before or not, or will be when the machine's network holds it back until after the break. The connection comes
back by itself, with the same session if that lives on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from delivery.errors import MetadataUnavailable
from delivery.metastore.ops import InDoubt, Op, Refused, check_path, check_request
from delivery.metastore.state import State, StateCallback
from delivery.metastore.watches import Event, Hint, Kind, Watches
from delivery.metastore.znodes import Aspect, ZNodes
from tests.simulation.machine import Machine, Resume, stand_still
from tests.simulation.zookeeper import Client, Connection, ZooKeeperServer

_BROKEN: Final = object()
_CHANGED: Final = SimpleNamespace(type="CHANGED")

Land = Callable[[Client], Any]


class SimulatedSession(ZNodes):
    """Blocking; used in strands. `reset_chance` is that of a request to break the connection."""

    def __init__(self, machine: Machine, server: ZooKeeperServer, *, reset_chance: float, deadline: float) -> None:
        self.session_timeout, self.deadline = server.session_timeout, deadline
        self.state: State = "lost"
        self.session_id = 0
        self.cut = False
        self._machine, self._server, self._kernel = machine, server, machine.kernel
        self._reset_chance = reset_chance
        self._connection = Connection()
        self._connection.open = False
        self._client: Client | None = None
        self._callbacks: list[StateCallback] = []
        self._waiting: list[Resume] = []
        self._watches = Watches(self._set_watch)
        self._asked = 0
        machine.on_pause.append(self._fall_silent)
        machine.on_crash.append(self._fall_silent)
        machine.on_resume.append(self._speak_again)

    # -- what the engine uses

    def on_state(self, callback: StateCallback) -> None:
        """See ZooKeeperClient."""
        self._callbacks.append(callback)

    def watch_children(self, path: str, hint: Hint) -> None:
        """See ZooKeeperClient."""
        self._watches.add("children", check_path(path), hint)

    def watch_value(self, path: str, hint: Hint) -> None:
        """See ZooKeeperClient."""
        self._watches.add("value", check_path(path), hint)

    def unwatch(self, path: str, hint: Hint | None = None) -> None:
        """See ZooKeeperClient."""
        self._watches.remove(path, hint)

    def _read(self, aspect: Aspect, paths: Sequence[str]) -> list[Any]:
        for path in paths:
            check_path(path)
        end = self._kernel.now + self.deadline
        while True:
            answer = self._request(end, lambda _: self._server.read(aspect, paths))
            if answer is not _BROKEN:
                found: list[Any] = answer
                return found

    def _transact(self, ops: Sequence[Op]) -> list[int] | Refused:
        check_request(ops)
        answer = self._request(self._kernel.now + self.deadline, lambda client: self._server.transact(client, ops))
        if answer is _BROKEN:
            raise InDoubt(f"the connection broke; this may or may not have been done: {ops[0].path}")
        done: list[int] | Refused = answer
        return done

    # -- faults, from outside

    def start(self) -> None:
        """Begin to connect. The state tells when that has come to something."""
        self._machine.act_later(self._kernel.between(0.001, 0.02), self._connect)

    def cut_off(self) -> None:
        """The network to ZooKeeper is down. The client notices after some time."""
        if self.cut:
            return
        self.cut = True
        self._fall_silent()
        connection = self._connection

        def notice() -> None:
            if self.cut:
                self._break(connection)

        self._machine.act_later(self.session_timeout * self._kernel.between(0.0, 0.67), notice)

    def heal(self) -> None:
        """The network is back, and what was on its way arrives, unless the connection was given up."""
        self.cut = False
        self._speak_again()
        stalled, self._connection.stalled = self._connection.stalled, []
        for arrive in stalled:
            arrive()

    def expire(self) -> None:
        """ZooKeeper ends the session of a program that did nothing wrong."""
        if self._client is not None and self._client.alive:
            self._server.expire(self._client)
            self._notice_expiry()

    # -- inside: asking

    def _request(self, end: float, land: Land) -> Any:
        while self.state != "steady" or not self._connection.open:
            if self._kernel.now >= end:
                raise MetadataUnavailable("no connection to ZooKeeper, so this was not done")
            stand_still(partial(self._wait, end))
        return stand_still(partial(self._send, land))

    def _wait(self, end: float, resume: Resume) -> None:
        self._waiting.append(resume)
        self._machine.act_later(end - self._kernel.now, partial(self._stop_waiting, resume))

    def _stop_waiting(self, resume: Resume) -> None:
        if resume in self._waiting:
            self._waiting.remove(resume)
            resume(None)

    def _send(self, land: Land, resume: Resume) -> None:
        connection = self._connection
        if not connection.open:
            self._kernel.later(0.0, partial(resume, _BROKEN))
            return
        self._asked += 1
        connection.pending[self._asked] = resume
        self._travel_there(connection, partial(self._land, connection, self._asked, land))

    def _travel_there(self, connection: Connection, arrive: Callable[[], None]) -> None:
        connection.there = max(connection.there, self._kernel.now + self._kernel.between(0.0005, 0.004))
        self._kernel.later(connection.there - self._kernel.now, partial(self._through, connection, arrive))

    def _through(self, connection: Connection, arrive: Callable[[], None]) -> None:
        """To the other side, or not yet."""
        if self.cut:
            connection.stalled.append(partial(self._through, connection, arrive))
        else:
            arrive()

    def _land(self, connection: Connection, number: int, land: Land) -> None:
        client = self._client
        if client is None or client.connection is not connection:
            return
        if not client.alive:
            self._notice_expiry()
            return
        if not self._machine.alive and (connection.lost or self._kernel.chance(0.5)):
            connection.lost = True
            return
        reset = self._kernel.chance(self._reset_chance)
        if reset and self._kernel.chance(0.5):
            self._machine.act(partial(self._break, connection))
            return
        answer = land(client)
        if reset:
            self._machine.act(partial(self._break, connection))
            return
        connection.back = max(connection.back, self._kernel.now + self._kernel.between(0.0005, 0.004))
        arrive = partial(self._machine.act, partial(self._answer, connection, number, answer))
        self._kernel.later(connection.back - self._kernel.now, partial(self._through, connection, arrive))

    def _answer(self, connection: Connection, number: int, answer: object) -> None:
        resume = connection.pending.pop(number, None)
        if resume is not None:
            resume(answer)

    # -- inside: the connection

    def _connect(self) -> None:
        if self.cut:
            self._machine.act_later(self._kernel.between(0.1, 0.5), self._connect)
            return
        old = self._client
        if old is not None and not old.alive:
            self._client = None
            self._change("lost", 0)
            self._machine.act_later(self._kernel.between(0.001, 0.05), self._connect)
            return
        self._client = old or self._server.begin(self._machine.name)
        self._client.connection = self._connection = Connection()
        self._server.heard(self._client)
        self._change("steady", self._client.number)
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume(None)
        self._watches.set_all()

    def _break(self, connection: Connection) -> None:
        """The client notices that a connection is gone, and makes another."""
        if not connection.open:
            return
        connection.open = False
        self._server.unwatch_all(connection)
        if not self.cut:  # else it has been silent for some time
            self._fall_silent()
        self._change("suspended", self.session_id)
        pending, connection.pending = connection.pending, {}
        for resume in pending.values():
            resume(_BROKEN)
        self._machine.act_later(self._kernel.between(0.01, 0.3), self._connect)

    def _notice_expiry(self) -> None:
        self._machine.act_later(self._kernel.between(0.001, 0.05), partial(self._break, self._connection))

    def _change(self, state: State, session: int) -> None:
        self.state, self.session_id = state, session
        self._kernel.note("session", self._machine.name, state, hex(session))
        for callback in list(self._callbacks):
            callback(state)

    def _fall_silent(self) -> None:
        if self._client is not None:
            self._server.silent(self._client)

    def _speak_again(self) -> None:
        client = self._client
        if client is None or self.cut or self._machine.paused or not self._machine.alive:
            return
        if not client.alive:
            self._notice_expiry()
        elif self._connection.open:
            self._server.heard(client)

    # -- inside: watches

    def _set_watch(self, kind: Kind, path: str, fired: Callable[[Event], None], done: Callable[[bool], None]) -> None:
        connection = self._connection
        if self.state != "steady" or not connection.open:
            done(False)
            return

        def land(_: Client) -> None:
            wanted: Kind = kind
            if kind == "children" and self._server.read("children", [path])[0] is None:
                wanted = "value"
            self._server.watch(wanted, path, connection, partial(self._fire, connection, fired))

        def answered(answer: object) -> None:
            done(answer is not _BROKEN)

        self._machine.act(partial(self._send, land, answered))

    def _fire(self, connection: Connection, fired: Callable[[Event], None]) -> None:
        def tell() -> None:
            if connection.open:
                fired(_CHANGED)

        self._through(connection, partial(self._machine.act, tell))
