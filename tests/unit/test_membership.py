"""What a host may do, from the state of its ZooKeeper session and the clock alone; and that it registers again."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from delivery.cluster.hosts.membership import PATIENCE, Membership, Standing, State
from delivery.cluster.load import Load
from delivery.errors import BadVersion, HootError, MetadataUnavailable
from delivery.metastore.records import HostRecord
from tests.hosting import eventually

RECORD = HostRecord("h1", "127.0.0.1", 7000, None, 0, "1", 0)


def registered(session: int = 5, timeout: float = 10.0) -> Standing:
    standing = Standing(timeout)
    assert standing.step("steady", session, 0.0) == "register"
    standing.registered = session
    return standing


def test_a_registered_host_with_a_steady_session_serves() -> None:
    standing = registered()
    assert standing.step("steady", 5, 1.0) == "serve"
    assert standing.until == math.inf


def test_a_short_disconnection_changes_nothing() -> None:
    standing = registered()
    assert standing.step("suspended", 5, 100.0) == "serve"
    assert standing.until == 100.0 + 10.0 * PATIENCE
    assert standing.step("suspended", 5, 105.9) == "serve"
    assert standing.step("steady", 5, 105.9) == "serve"
    assert standing.step("suspended", 5, 200.0) == "serve"


def test_a_long_disconnection_stops_the_host_before_zookeeper_says_so() -> None:
    standing = registered()
    standing.step("suspended", 5, 100.0)
    assert standing.step("suspended", 5, 106.0) == "stop"
    assert standing.step("steady", 5, 107.0) == "serve"


def test_a_new_session_needs_a_new_registration() -> None:
    standing = registered()
    assert standing.step("lost", 0, 1.0) == "stop"
    assert standing.step("steady", 6, 2.0) == "register"


class ScriptedSession:
    """A connection and registry that a story moves."""

    session_timeout = 10.0

    def __init__(self) -> None:
        self.state: State = "steady"
        self.session_id = 5
        self.records: dict[str, HostRecord] = {}
        self.registrations: list[int] = []
        self.refuse: HootError | None = None
        self.gate: threading.Event | None = None
        """Loads are written when it is set."""
        self._callbacks: list[Callable[[State], None]] = []

    def on_state(self, callback: Callable[[State], None]) -> None:
        self._callbacks.append(callback)

    async def become(self, state: State, session: int) -> None:
        """As the client tells it: from another thread."""
        self.state, self.session_id = state, session
        for callback in self._callbacks:
            await trio.to_thread.run_sync(callback, state)
        await trio.sleep(0.1)

    def register_host(self, record: HostRecord) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.records[record.host] = record
        self.registrations.append(record.session)

    def refresh_host(self, record: HostRecord) -> None:
        if self.gate is not None:
            assert self.gate.wait(10)
        if record.host not in self.records:
            raise BadVersion("not registered")
        self.records[record.host] = record

    def host(self, host: str) -> HostRecord | None:
        return self.records.get(host)


def test_a_host_drops_everything_with_its_session_and_registers_under_the_next_one() -> None:
    async def story() -> None:
        session = ScriptedSession()
        member = Membership(session, session, RECORD, check_seconds=30)
        lost: list[HootError] = []
        member.on_lost(lost.append)
        async with trio.open_nursery() as nursery:
            await nursery.start(member.run)
            assert (member.session, session.registrations) == (5, [5])
            await session.become("lost", 0)
            assert len(lost) == 1
            with pytest.raises(MetadataUnavailable):
                _ = member.session
            session.refuse = MetadataUnavailable("not yet")
            await session.become("steady", 6)
            assert not member.serving
            session.refuse = None
            await trio.sleep(2)
            assert (member.session, session.registrations) == (6, [5, 6])
            assert len(lost) == 1
            nursery.cancel_scope.cancel()

    trio.run(story)


def test_a_host_cut_off_for_too_long_drops_everything_without_being_told() -> None:
    async def story() -> None:
        session = ScriptedSession()
        session.session_timeout = 3.0
        member = Membership(session, session, RECORD, check_seconds=30)
        lost: list[HootError] = []
        member.on_lost(lost.append)
        async with trio.open_nursery() as nursery:
            await nursery.start(member.run)
            await session.become("suspended", 5)
            assert not lost
            await eventually(lambda: bool(lost))
            await session.become("steady", 5)
            assert member.session == 5
            assert session.registrations == [5]
            nursery.cancel_scope.cancel()

    trio.run(story)


def test_a_registration_that_somebody_removed_is_mended() -> None:
    async def story() -> None:
        session = ScriptedSession()
        member = Membership(session, session, RECORD, check_seconds=0.05)
        async with trio.open_nursery() as nursery:
            await nursery.start(member.run)
            session.records.clear()
            await eventually(lambda: bool(session.records))
            nursery.cancel_scope.cancel()

    trio.run(story)


def test_a_registration_over_which_a_load_of_the_session_before_was_written_is_mended() -> None:
    async def story() -> None:
        session = ScriptedSession()
        member = Membership(session, session, RECORD, check_seconds=0.05)
        async with trio.open_nursery() as nursery:
            await nursery.start(member.run)
            session.gate = threading.Event()
            nursery.start_soon(member.tell, Load(3))
            await wait_all_tasks_blocked()
            await session.become("steady", 6)
            assert (session.records["h1"].session, session.registrations) == (6, [5, 6])
            session.gate.set()
            await eventually(lambda: session.registrations == [5, 6, 6])
            await member.tell(Load(3))
            assert (session.records["h1"].partitions, session.records["h1"].session) == (3, 6)
            nursery.cancel_scope.cancel()

    trio.run(story)


def test_a_first_registration_that_fails_is_raised() -> None:
    async def story() -> None:
        session = ScriptedSession()
        session.refuse = MetadataUnavailable("no")
        with pytest.raises(MetadataUnavailable):
            await Membership(session, session, RECORD, check_seconds=1).run()
        await wait_all_tasks_blocked()

    trio.run(story, clock=MockClock())


def test_a_hosts_load_is_told_when_it_changed_noticeably_and_kept_by_a_new_registration() -> None:
    async def story() -> None:
        session = ScriptedSession()
        member = Membership(session, session, RECORD, check_seconds=30)
        await member.tell(Load(1))
        assert not session.records, "nothing is told before the first registration"
        async with trio.open_nursery() as nursery:
            await nursery.start(member.run)
            await member.tell(Load(3, 500.0, 1e6))
            assert session.records["h1"].partitions == 3
            await member.tell(Load(3, 590.0, 1.1e6))
            assert session.records["h1"].messages_per_second == 500
            await member.tell(Load(3, 590.0, 1.1e6, draining=True))
            assert session.records["h1"].draining
            await session.become("steady", 6)
            await eventually(lambda: session.registrations == [5, 6])
            assert (session.records["h1"].partitions, session.records["h1"].session) == (3, 6)
            await member.tell(Load(2))
            assert (session.records["h1"].partitions, session.records["h1"].session) == (2, 6)
            nursery.cancel_scope.cancel()

    trio.run(story)
