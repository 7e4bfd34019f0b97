"""The seat of the manager: who may take it, what goes on from memory, what a round keeps, what is left at its end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from delivery.cluster.forgetting import Forgetter
from delivery.cluster.seat import Seat
from delivery.cluster.transacting import Transacting
from delivery.errors import MetadataUnavailable, NotOwner
from delivery.messaging.names import TRANSACTION_LIFE_MS
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.managers.transactions import Managed, TransactionRecords
from delivery.metastore.records import HostRecord
from delivery.metastore.tables.memory import MemoryData, MemoryMetaStore
from delivery.metastore.tables.versions import Version, Versioned
from delivery.transactions.asks import Abort, Ask, Asked, Begin, Begun, Commit, Invalidate, Look, MayWrite
from delivery.transactions.forgetting import SKEW_MS
from delivery.transactions.limits import LEASE_MS
from delivery.transactions.pointers import began_ms
from tests.hosting import eventually

BEGIN = Begin(60_000)


class Host:
    """A host among others that live unless they are `dead`; its clock stands still."""

    def __init__(self, data: MemoryData, host: str) -> None:
        self._records = TransactionRecords(MemoryMetaStore(data))
        self.member = Member(host)
        self.now = 1_700_000_000_000
        self.writes = 0
        self.sessions: dict[str, int] = {"a": 1, "b": 1}
        self.seat = Seat(self, self.member, lambda: self.now)

    def transactions(self) -> Versioned[Managed] | None:
        return self._records.read()

    def keep_transactions(self, managed: Managed, version: Version) -> Version:
        self.writes += 1
        return self._records.write(managed, version)

    def host(self, host: str) -> HostRecord | None:
        session = self.sessions.get(host)
        return HostRecord(host, f"{host}.example", 7000, None, session, "1", 0) if session else None

    def ask(self, ask: Asked) -> object:
        found = self.seat.at_once(ask)
        return self.seat.work([ask])[0] if found is None else found

    def begin(self) -> int:
        found = self.ask(BEGIN)
        assert isinstance(found, Begun)
        return found.pointer


class Member:
    def __init__(self, host: str) -> None:
        self.host, self.current = host, 1
        self.gone: set[str] = set()

    @property
    def session(self) -> int:
        if not self.current:
            raise MetadataUnavailable("no session")
        return self.current

    def is_gone(self, other: HostRecord) -> bool:
        return other.host in self.gone


@pytest.fixture
def pair() -> tuple[Host, Host]:
    data = MemoryData()
    return Host(data, "a"), Host(data, "b")


def ending_of_session(other: Host) -> None:
    other.sessions["a"] = 2


def refused_connection(other: Host) -> None:
    other.member.gone.add("a")


def end_of_registration(other: Host) -> None:
    del other.sessions["a"]


@pytest.mark.parametrize("end", [ending_of_session, refused_connection, end_of_registration])
def test_the_seat_is_taken_from_a_dead_host_and_not_from_a_living_one(
    pair: tuple[Host, Host], end: Callable[[Host], None]
) -> None:
    first, second = pair
    pointer = first.begin()
    with pytest.raises(NotOwner) as refusal:
        second.begin()
    assert refusal.value.address == "a.example:7000"
    end(second)
    assert second.begin() > pointer
    assert second.ask(Ask(pointer)) == "in_progress"
    with pytest.raises(NotOwner):
        first.ask(Commit(pointer))
    assert not first.seat.is_held
    assert second.ask(Commit(pointer)) is None


def test_beginning_and_looking_write_nothing_as_long_as_the_lease_is_young(pair: tuple[Host, Host]) -> None:
    host, _ = pair
    host.begin()
    writes = host.writes
    assert len({host.begin() for _ in range(5)}) == 5
    host.ask(Look())
    assert host.writes == writes
    host.now += LEASE_MS + 1
    host.ask(Look())
    assert host.writes == writes + 1


def test_whoever_is_cut_off_begins_nothing_and_a_new_session_takes_the_seat_anew(pair: tuple[Host, Host]) -> None:
    host, _ = pair
    pointer = host.begin()
    host.member.current = 0
    for ask in (BEGIN, Look(), Commit(pointer)):
        with pytest.raises(MetadataUnavailable):
            host.ask(ask)
    host.member.current = 2
    assert host.ask(Commit(pointer)) is None
    found = host.transactions()
    assert found is not None
    assert found.value.manager == OwnerInfo("a", 2, 2)


def test_a_seat_that_is_given_up_is_free_and_leaves_nothing_unknown(pair: tuple[Host, Host]) -> None:
    first, second = pair
    pointer, other = first.begin(), first.begin()
    first.ask(Abort(other))
    first.seat.release()
    first.seat.release()
    second.begin()
    found = second.transactions()
    assert found is not None
    assert list(found.value.state.in_progress) == [pointer]


def test_many_that_end_at_once_share_a_round_and_what_is_too_old_is_found_by_itself(pair: tuple[Host, Host]) -> None:
    host, _ = pair
    pointers = [host.begin() for _ in range(50)]
    short = host.ask(Begin(1000))
    assert isinstance(short, Begun)
    writes = host.writes

    async def story() -> None:
        transacting = Transacting(host.seat, lambda: None, nobody)
        async with trio.open_nursery() as nursery:
            await nursery.start(transacting.run)
            async with trio.open_nursery() as together:
                for pointer in pointers:
                    together.start_soon(transacting.answer, Commit(pointer))
            assert host.writes - writes <= 2
            assert transacting.manages
            host.now += 1000
            await eventually(lambda: host.ask(Ask(short.pointer)) == "invalid")
            nursery.cancel_scope.cancel()
        assert not transacting.manages

    trio.run(story)


def test_an_invalid_one_is_forgotten_when_that_is_safe_and_nobody_is_asked_before(pair: tuple[Host, Host]) -> None:
    host, _ = pair
    pointer = host.begin()
    host.ask(Invalidate(pointer))
    answers = [0, host.now + 1000]
    asked: list[int] = []

    def before_ms(oldest: int) -> int:
        asked.append(oldest)
        return answers.pop(0)

    async def story() -> None:
        transacting = Transacting(host.seat, lambda: None, nobody)
        forgetter = Forgetter(transacting, before_ms, lambda: host.now)
        await forgetter.look()
        assert asked == [], "it is young"
        host.now += TRANSACTION_LIFE_MS + SKEW_MS + 1000
        await forgetter.look()
        assert asked == [began_ms(pointer)]
        assert transacting.counts() == (0, 1), "messages of it are left"
        await forgetter.look()
        assert transacting.counts() == (0, 0)
        await forgetter.look()
        assert len(asked) == 2

    trio.run(story)


async def nobody(_: HostRecord) -> None:
    raise AssertionError("there is no other host")


def test_a_draining_host_hands_the_seat_to_another_which_is_asked_at_once(pair: tuple[Host, Host]) -> None:
    first, second = pair
    pointer = first.begin()
    target = first.host("b")

    async def take(host: HostRecord) -> None:
        assert host == target
        with pytest.raises(NotOwner) as refusal:
            await transacting.answer(BEGIN)
        assert refusal.value.address == "b.example:7000"
        assert second.ask(MayWrite([pointer, pointer + 1])) == ["in_progress", None]

    transacting = Transacting(first.seat, lambda: target, take)

    async def story() -> None:
        assert await transacting.answer(MayWrite([pointer])) == ["in_progress"]
        await transacting.leave()
        assert not transacting.manages
        assert second.seat.is_held

    trio.run(story)
    assert second.ask(Commit(pointer)) is None
    found = second.transactions()
    assert found is not None
    assert (found.value.manager, found.value.state.in_progress) == (OwnerInfo("b", 1, 2), {})


def test_a_draining_host_takes_no_seat_but_the_one_that_it_is_named_for(pair: tuple[Host, Host]) -> None:
    first, second = pair
    first.seat.successor = first.host("b")
    with pytest.raises(NotOwner) as refusal:
        first.begin()
    assert refusal.value.address == "b.example:7000"
    second.begin()
    second.seat.release(first.host("a"))
    first.begin()
    assert first.seat.is_held
