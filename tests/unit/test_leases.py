"""Leases of listeners: who is attached for how long, whatever the host, its session and other hosts do meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest
import trio
from trio.testing import MockClock

from delivery.api import leases as module
from delivery.api.leases import Leases
from delivery.errors import InvalidRequest, MetadataUnavailable, SubscriptionBusy
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.networks import Networks

PLACE = ("orders", "mail")
MINE = ListenerRecord(address="10.0.0.1", port=7000, token="t" * 16, protocol="plain")
OTHER = msgspec.structs.replace(MINE, port=7001, token="u" * 16)


class Registered:
    """The listener's znode, and this host as its member."""

    def __init__(self) -> None:
        self.host, self.session = "h1", 5
        self.now: ListenerRecord | None = None
        self.writes = 0
        self.silent = False
        self.policy = RetryPolicy()

    def subscription(self, queue: str, name: str) -> SubscriptionRecord:
        return SubscriptionRecord(
            name=name, queue=queue, generation="g", created_ms=1, starts={0: 0}, all_partitions=True, topics=(),
            retry=self.policy,
        )  # fmt: skip

    def listener(self, queue: str, name: str) -> ListenerRecord | None:
        assert (queue, name) == PLACE
        return self.now

    def attach(self, queue: str, name: str, record: ListenerRecord, *, replace: ListenerRecord | None = None) -> None:
        if self.now not in (None, record, replace):
            raise SubscriptionBusy(f"{name} is held")
        self.now = record
        self.writes += 1

    def detach(self, queue: str, name: str, record: ListenerRecord) -> None:
        if self.silent:
            raise MetadataUnavailable("no answer")
        if self.now == record:
            self.now = None


class InTurn(Leases):
    """Asks in the trio thread, for the clock would not wait for another one."""

    seconds = 0.0
    """That it takes."""

    async def _hop(self, work: Callable[[], None]) -> None:
        await trio.sleep(self.seconds)
        work()


@pytest.fixture(autouse=True)
def alive(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The ports at which listeners answer."""
    ports = {MINE.port, OTHER.port}
    monkeypatch.setattr(module, "is_alive", lambda listener, *_: listener.port in ports)
    return ports


def play(story: Callable[[InTurn, Registered], Awaitable[None]]) -> None:
    """On a clock that jumps over every pause."""

    async def run() -> None:
        registered = Registered()
        leases = InTurn(registered, registered, Networks())
        async with trio.open_nursery() as nursery:
            await nursery.start(leases.run)
            await story(leases, registered)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=MockClock(autojump_threshold=0))


def held(by: str = "h1", listener: ListenerRecord = MINE) -> ListenerRecord:
    return msgspec.structs.replace(listener, lease=by)


def test_a_listener_is_attached_for_as_long_as_its_lease_is_renewed_and_renewing_writes_nothing() -> None:
    async def story(leases: InTurn, registered: Registered) -> None:
        for _ in range(5):
            await leases.attach(PLACE, MINE, 30, force=False)
            await trio.sleep(29)
            assert registered.now == held()
        assert registered.writes == 1
        await trio.sleep(2)
        assert registered.listener(*PLACE) is None
        assert len(leases) == 0

    play(story)


def test_a_lease_that_was_shortened_ends_sooner() -> None:
    async def story(leases: InTurn, registered: Registered) -> None:
        await leases.attach(PLACE, MINE, 600, force=False)
        await leases.attach(PLACE, MINE, 1, force=False)
        await trio.sleep(2)
        assert registered.listener(*PLACE) is None

    play(story)


def test_a_renewal_that_is_under_way_when_the_lease_is_over_counts() -> None:
    async def story(leases: InTurn, registered: Registered) -> None:
        await leases.attach(PLACE, MINE, 30, force=False)
        await trio.sleep(29)
        leases.seconds = 2.0
        await leases.attach(PLACE, MINE, 30, force=False)
        await trio.sleep(25)
        assert (registered.listener(*PLACE), registered.writes) == (held(), 1)

    play(story)


def test_what_another_host_holds_by_now_is_left_to_it() -> None:
    async def story(leases: InTurn, registered: Registered) -> None:
        await leases.attach(PLACE, MINE, 30, force=False)
        registered.now = held("h2")
        await trio.sleep(60)
        assert registered.now == held("h2")
        await leases.attach(PLACE, MINE, 30, force=False)
        assert registered.now == held(), "and it may come back"

    play(story)


def test_under_a_new_session_the_next_renewal_attaches_it_again() -> None:
    async def story(leases: InTurn, registered: Registered) -> None:
        await leases.attach(PLACE, MINE, 30, force=False)
        registered.session = 6  # what was made under the old one may end with it at any moment
        await leases.attach(PLACE, MINE, 30, force=False)
        assert registered.writes == 2

    play(story)


def test_a_listener_that_lives_is_in_the_way_and_a_dead_one_is_not(alive: set[int]) -> None:
    async def story(leases: InTurn, registered: Registered) -> None:
        registered.now = OTHER
        with pytest.raises(SubscriptionBusy):
            await leases.attach(PLACE, MINE, 30, force=False)
        assert len(leases) == 0
        await leases.attach(PLACE, MINE, 30, force=True)
        assert registered.now == held()
        registered.now = OTHER
        with pytest.raises(SubscriptionBusy):
            await leases.attach(PLACE, MINE, 30, force=False)  # who was taken over from hears of it
        alive.discard(OTHER.port)
        await leases.attach(PLACE, MINE, 30, force=False)
        assert registered.now == held()

    play(story)


def test_a_listener_is_detached_whichever_host_holds_it_and_no_other_one() -> None:
    async def story(leases: InTurn, registered: Registered) -> None:
        registered.now = held("h2")
        await leases.detach(PLACE, OTHER)
        assert registered.now == held("h2")
        await leases.detach(PLACE, MINE)
        assert registered.listener(*PLACE) is None
        await leases.attach(PLACE, MINE, 30, force=False)
        await leases.detach(PLACE, MINE)
        assert (registered.listener(*PLACE), len(leases)) == (None, 0)

    play(story)


def test_while_zookeeper_is_silent_a_lease_that_is_over_is_kept_in_mind() -> None:
    async def story(leases: InTurn, registered: Registered) -> None:
        await leases.attach(PLACE, MINE, 30, force=False)
        registered.silent = True
        await trio.sleep(60)
        assert registered.now == held()
        registered.silent = False
        await trio.sleep(5)
        assert registered.listener(*PLACE) is None

    play(story)


def test_a_plain_listener_is_refused_where_keys_have_an_order_unless_it_is_attached_already() -> None:
    async def story(leases: InTurn, registered: Registered) -> None:
        await leases.attach(PLACE, MINE, 10, force=False)
        registered.policy = RetryPolicy(order="key")
        await leases.attach(PLACE, MINE, 10, force=False)
        registered.session = 6
        await leases.attach(PLACE, MINE, 10, force=False)
        with pytest.raises(InvalidRequest, match="order of keys"):
            await leases.attach(PLACE, OTHER, 10, force=True)
        assert registered.now is not None
        assert registered.now.port == MINE.port
        await leases.attach(PLACE, msgspec.structs.replace(OTHER, protocol="packed"), 10, force=True)

    play(story)
