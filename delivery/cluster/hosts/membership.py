"""Keeping this host registered in ZooKeeper, and knowing when its session can no longer be trusted.

What a session says is advice: the proof of ownership is the epoch, which the store checks at every append. So nothing
here has to be exact; it has to be soon, so that a host that was cut off stops serving what others may have taken over.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final, Literal, Protocol

import msgspec
import trio

from delivery.cluster.bell import Doorbell
from delivery.cluster.hosts.probe import is_gone
from delivery.cluster.load import Load
from delivery.errors import HootError, MetadataUnavailable
from delivery.metastore.records import HostRecord

log = logging.getLogger(__name__)

State = Literal["steady", "suspended", "lost"]
Step = Literal["serve", "stop", "register"]

PATIENCE: Final = 0.6
"""Part of the session timeout that a host serves on without a connection. ZooKeeper's clock began with the last sign
of life, which is up to half the timeout before the connection was seen to break."""

_PAUSE_SECONDS: Final = 0.5
"""Between attempts to register."""


class Session(Protocol):
    """The connection to ZooKeeper, as used here."""

    session_timeout: float

    @property
    def state(self) -> State:
        """Of the connection now."""

    @property
    def session_id(self) -> int:
        """The session, 0 for none."""

    def on_state(self, callback: Callable[[State], None]) -> None:
        """Call `callback` at each change, from another thread."""


class Registry(Protocol):
    """Where hosts are registered (metastore.catalog.Catalog), as used here; blocking."""

    def register_host(self, record: HostRecord) -> None:
        """Register a host for as long as the session lives."""

    def refresh_host(self, record: HostRecord) -> None:
        """Replace the record of a host that is registered. Raises BadVersion when it is not."""

    def host(self, host: str) -> HostRecord | None:
        """A live host."""


class Standing:
    """Decides from the state of the session what this host may do. Plain; `now` is any monotonic clock in seconds."""

    def __init__(self, session_timeout: float) -> None:
        self._patience = session_timeout * PATIENCE
        self._suspended_at: float | None = None
        self.registered = 0
        """The session under which the host is registered, 0 for none."""

    def step(self, state: State, session: int, now: float) -> Step:
        """`serve`, `stop` (own nothing until told otherwise) or `register` (own nothing, then register anew)."""
        if state != "suspended":
            self._suspended_at = None
        if state == "lost":
            return "stop"
        if state == "steady":
            return "serve" if session == self.registered else "register"
        if self._suspended_at is None:
            self._suspended_at = now
        return "serve" if self.registered and now < self.until else "stop"

    @property
    def until(self) -> float:
        """When `step` has to be asked again although nothing happened; infinite for never."""
        return math.inf if self._suspended_at is None else self._suspended_at + self._patience


class Membership:
    """This host among the live ones. `run` owns the registration; the ZooKeeper session's end removes it."""

    def __init__(self, session: Session, registry: Registry, record: HostRecord, check_seconds: float) -> None:
        """`record` without its session; every `check_seconds` the registration is looked for, and mended."""
        self._session, self._registry, self._record = session, registry, record
        self._check_seconds = check_seconds
        self._standing = Standing(session.session_timeout)
        self._serving = False
        self._told = Load()
        self._on_lost: list[Callable[[HootError], None]] = []

    @property
    def host(self) -> str:
        """This host's id."""
        return self._record.host

    @property
    def serving(self) -> bool:
        """Whether this host may own partitions now."""
        return self._serving

    @property
    def session(self) -> int:
        """The session to claim partitions with. Raises MetadataUnavailable while there is none to rely on."""
        if not self._serving or self._session.state != "steady":
            raise MetadataUnavailable("this host has no steady ZooKeeper session; it waits for one")
        return self._standing.registered

    def is_gone(self, other: HostRecord) -> bool:
        """Whether another host is dead although it is registered still (see probe); blocking."""
        return is_gone(other)

    def on_lost(self, callback: Callable[[HootError], None]) -> None:
        """Call `callback(why)` on the trio thread when nothing may be owned any longer."""
        self._on_lost.append(callback)

    async def tell(self, load: Load) -> None:
        """Put this host's load into its record, if it differs noticeably from what is there, and the session lives.

        Whoever calls this limits how often. Raises what ZooKeeper raises; then the record stays as it was.
        """
        if not self._serving or self._session.state != "steady" or not load.differs(self._told):
            return
        record = msgspec.structs.replace(
            self._record, session=self._standing.registered, partitions=load.partitions,
            messages_per_second=round(load.messages_per_second, 1), bytes_per_second=round(load.bytes_per_second),
            draining=load.draining,
        )  # fmt: skip
        await trio.to_thread.run_sync(self._registry.refresh_host, record)
        if record.session == self._standing.registered:  # else it came late: it is mended, and the load told again
            self._record, self._told = record, load

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register, report started, and keep the registration until cancelled.

        Raises what the first registration raises; later failures are tried again.
        """
        bell = Doorbell()
        self._session.on_state(lambda _: bell.ring())
        await self._register()
        task_status.started()
        while True:
            pause = await self._take_step()
            with trio.move_on_after(pause):
                await bell.wait()

    async def _take_step(self) -> float:
        """Do what is due; gives the seconds after which to look again."""
        step = self._standing.step(self._session.state, self._session.session_id, trio.current_time())
        if step == "serve":
            if not self._serving:
                log.info("host %s: the ZooKeeper session lives on", self.host)
            self._serving = True
            await self._mend()
            return min(self._check_seconds, max(0.0, self._standing.until - trio.current_time()))
        self._stop_serving()
        if step == "stop":
            return self._check_seconds
        try:
            await self._register()
        except HootError as error:
            log.warning("host %s cannot register: %s", self.host, error)
            return _PAUSE_SECONDS
        return 0.0

    async def _register(self) -> None:
        session = self._session.session_id
        record = msgspec.structs.replace(self._record, session=session)
        await trio.to_thread.run_sync(self._registry.register_host, record)
        self._standing.registered = session
        self._serving = session == self._session.session_id
        log.info("host %s registered as %s, session %#x", self.host, record.host_port, session)

    async def _mend(self) -> None:
        """Register again when somebody removed the record of a living session, or a load that came late wrote it over.

        What names another session counts as dead, and others would take this host's partitions.
        """
        if self._session.state != "steady":
            return
        try:
            found = await trio.to_thread.run_sync(self._registry.host, self.host)
            if found is None or found.session != self._standing.registered:
                log.warning("host %s: its registration is %s; it registers again", self.host,
                            "gone" if found is None else "that of another session")  # fmt: skip
                await self._register()
        except HootError as error:
            log.debug("host %s: its registration cannot be checked: %s", self.host, error)

    def _stop_serving(self) -> None:
        if not self._serving:
            return
        self._serving = False
        error = MetadataUnavailable("this host lost its ZooKeeper session; it owns nothing until it has another")
        log.warning("host %s: its ZooKeeper session cannot be relied on any longer; it drops its partitions", self.host)
        for callback in self._on_lost:
            callback(error)
