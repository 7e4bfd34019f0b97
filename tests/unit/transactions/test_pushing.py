"""Workers of subscriptions with isolation="committed": nothing in progress is passed, nothing undone is delivered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random

import msgspec
import pytest
import trio

from delivery import hop
from delivery.dispatch.committed import CommittedSource
from delivery.dispatch.slotting import InSlots, SlotColumns
from delivery.dispatch.worker import Begin
from delivery.metastore.managers.records import ParkedKey
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.replays import MAX, Replay
from delivery.metastore.slots import ALL
from delivery.model import Message
from tests.dispatch import simulated
from tests.unit.by_key import POLICY, Site
from tests.unit.transactions.histories import Transactions, ids_of

IN_ORDER = msgspec.structs.replace(POLICY, order="partition", deliveries_max=0)


def site_of(known: Transactions, handle: Callable[[Message], object] = bool, **options: object) -> Site:
    """A worker in the order of the partition, unless a policy is given."""
    begin = Begin(**{"position": 0, "first_run": 1, "policy": IN_ORDER, "transactions": known} | options)  # type: ignore[arg-type]
    site = Site([], handle, begin)
    site.partition = known.partition
    return site


class Seen:
    """Keeps what is delivered."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def __call__(self, message: Message) -> None:
        self.ids.append(message.number)


def told(story: Callable[[Transactions, Seen], Awaitable[None]]) -> None:
    async def run() -> None:
        hop.AT_ONCE.set(True)
        await story(Transactions(), Seen())

    simulated(run)


async def while_it_runs(site: Site, story: Callable[[], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.run, 1_000_000)
        await story()
        nursery.cancel_scope.cancel()


def test_what_is_in_progress_holds_up_all_behind_it_until_it_ends() -> None:
    async def story(known: Transactions, seen: Seen) -> None:
        site = site_of(known, seen)
        before, tx = known.publish("-", "-"), known.begin()
        first, behind, second = known.publish("-"), known.publish("-"), known.publish("-", pointer=tx)
        more = known.publish("-", pointer=tx)
        last = known.publish("-")

        async def ending() -> None:
            await trio.sleep(100)
            assert seen.ids == ids_of([before, first, behind])
            assert site.position == behind[-1]
            source = site.worker_now.parts.committed
            assert source is not None
            assert source.waiting is not None
            assert source.waiting.pointer == tx
            known.end(tx, "committed")
            await trio.sleep(2)
            assert seen.ids == ids_of([before, first, behind, second, more, last])
            assert source.waiting is None

        await while_it_runs(site, ending)

    told(story)


@pytest.mark.parametrize("end", ["aborted", "invalid"])
def test_what_is_undone_moves_the_position_and_is_never_delivered(end: str) -> None:
    async def story(known: Transactions, seen: Seen) -> None:
        site = site_of(known, seen)
        tx = known.begin()
        known.publish("-", "-", pointer=tx)

        async def ending() -> None:
            await trio.sleep(10)
            known.end(tx, end)  # type: ignore[arg-type]
            await trio.sleep(2)
            assert seen.ids == []
            assert site.position == known.last_id
            assert known.publish("-") == [known.last_id]
            await trio.sleep(2)
            assert seen.ids == [known.last_id]

        await while_it_runs(site, ending)

    told(story)


def test_batches_without_messages_of_transactions_cost_no_question() -> None:
    async def story(known: Transactions, seen: Seen) -> None:
        async def publishing() -> None:
            for more in (False, True, False):
                known.publish("-", "-", more=more)
                await trio.sleep(1)
            assert len(seen.ids) == 6
            assert (known.views_given, known.ledgers_read) == (0, 0)

        await while_it_runs(site_of(known, seen), publishing)

    told(story)


def test_what_was_taken_back_while_it_was_parked_comes_no_more_and_becomes_no_dead_letter() -> None:
    async def story(known: Transactions, seen: Seen) -> None:
        tx = known.begin()
        [kept], [undone] = known.publish("a", pointer=tx), known.publish("b", pointer=tx)
        known.end(tx, "committed")
        known.take_back(tx, undone, undone)
        parked = (ParkedKey(b"a", (kept,)), ParkedKey(b"b", (undone,)), ParkedKey(b"c", (undone,), reason="rejected"))
        site = site_of(known, seen, position=known.last_id, policy=POLICY, parked=parked)
        await site.run(10)
        assert seen.ids == [kept]
        assert site.ledger.parked == ()
        assert site.letters.kept == []

    told(story)


def test_of_a_key_the_newest_message_is_one_that_was_not_undone() -> None:
    async def story(known: Transactions, seen: Seen) -> None:
        [older], tx = known.publish("a"), known.begin()
        [newest] = known.publish("a")
        known.publish("a", "b", pointer=tx)
        site = site_of(known, seen, newest=known.last_id)

        async def ending() -> None:
            await trio.sleep(10)
            assert (seen.ids, site.position) == ([], 0)
            known.end(tx, "aborted")
            await trio.sleep(10)
            assert (seen.ids, site.position, older < newest) == ([newest], known.last_id, True)

        await while_it_runs(site, ending)

    told(story)


def test_a_replay_waits_as_well_and_a_bound_passes_over_what_is_too_old_whatever_becomes_of_it() -> None:
    async def story(known: Transactions, seen: Seen) -> None:
        tx, before = known.begin(), known.publish("-")
        late = known.publish("-", pointer=tx)
        replay = site_of(known, seen, replay=Replay("mail", {0: known.last_id}, MAX))
        newest = Seen()
        bounded = site_of(known, newest, bound=2)
        behind = known.publish("-", "-")

        async def ending() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(bounded.run, 10)
                await trio.sleep(5)
            assert newest.ids == behind
            assert (seen.ids, replay.position) == (before, before[-1])
            known.end(tx, "committed")
            await trio.sleep(5)
            assert (seen.ids, replay.position) == (before + late, late[-1])

        await while_it_runs(replay, ending)

    told(story)


class Chance:
    """A random history of a partition, and a listener that fails now and then."""

    def __init__(self, known: Transactions, seen: Seen, seed: str) -> None:
        self.known, self.seen, self.random = known, seen, Random(seed)
        self.by: dict[int, int] = {}
        """The transactions of messages, by their ids."""
        self.keys: dict[int, str] = {}

    def handle(self, message: Message) -> None:
        pointer = self.by.get(message.number)
        assert pointer is None or self.known.ends.get(pointer) == "committed"
        if self.random.random() < 0.2:
            raise ValueError("not now")
        self.seen(message)

    def step(self) -> None:
        """Something begins, is published, or ends."""
        what = self.random.choice(["begin", "plain", *["publish"] * 3, "committed", "aborted", "invalid"])
        opened = sorted(self.known.open)
        if what == "begin":
            self.known.begin()
        elif what == "plain" or not opened:
            self._publish([None])
        elif what == "publish":
            self._publish(self.random.choice([[self.random.choice(opened)], [None, *opened]]))
        else:
            self.known.end(self.random.choice(opened), what)  # type: ignore[arg-type]

    def _publish(self, pointers: Sequence[int | None]) -> None:
        named = [(self.random.choice("abc-"), self.random.choice(pointers)) for _ in range(self.random.randrange(1, 6))]
        ids = self.known.publish_mixed(named, more=self.random.random() < 0.5)
        self.keys.update(zip(ids, (name for name, _ in named), strict=True))
        self.by.update({number: of for number, (_, of) in zip(ids, named, strict=True) if of})

    @property
    def stopped(self) -> int:
        """The first message that is in progress: no position gets there."""
        return min((number for number, pointer in self.by.items() if pointer in self.known.open), default=1 << 62)

    @property
    def wanted(self) -> list[int]:
        """What is to be delivered once everything has ended."""
        return [one for one in self.keys if one not in self.by or self.known.ends[self.by[one]] == "committed"]


@pytest.mark.parametrize("order", ["partition", "key"])
@pytest.mark.parametrize("seed", range(6))
def test_over_random_histories_exactly_what_is_committed_comes_in_order_of_keys(order: str, seed: int) -> None:
    async def story(known: Transactions, seen: Seen) -> None:
        chance = Chance(known, seen, f"{order} {seed}")
        policy = RetryPolicy(order=order, first_seconds=0.5, jitter=0, deliveries_max=0)  # type: ignore[arg-type]
        site = site_of(known, chance.handle, policy=policy)

        async def history() -> None:
            for _ in range(15):
                chance.step()
                await trio.sleep(chance.random.choice([0, 0, 0.1, 3]))
                assert site.position < chance.stopped

        for _ in range(3):
            await while_it_runs(site, history)
            saved = {"position": site.position, "parked": site.ledger.parked}
            site = site_of(known, chance.handle, policy=policy, **saved)  # both were killed
        for pointer in sorted(known.open):
            known.end(pointer, "committed")
        await site.run(10_000)
        assert (site.position, site.ledger.parked) == (known.last_id, ())
        first, wanted = list(dict.fromkeys(seen.ids)), chance.wanted
        assert sorted(first) == wanted
        if order == "partition":
            assert first == wanted
        for key in "abc":
            assert [one for one in first if chance.keys[one] == key] == [n for n in wanted if chance.keys[n] == key]

    told(story)


def test_members_that_share_a_partition_get_together_what_is_committed() -> None:
    async def story(known: Transactions, seen: Seen) -> None:
        columns = SlotColumns()
        sites = [site_of(known, seen) for _ in range(2)]
        for number, site in enumerate(sites):
            mine = frozenset(slot for slot in ALL if slot % 2 == number)
            site._wanted = InSlots([(mine, 0)], columns, None)  # type: ignore[assignment]
        tx, undone = known.begin(), known.begin()
        every = [known.publish_mixed([(key, pointer) for key in "abcdefgh"]) for pointer in (None, undone, tx, None)]

        async def ending() -> None:
            known.end(undone, "aborted")
            await trio.sleep(5)
            assert sorted(seen.ids) == every[0]
            assert {site.position for site in sites} == {every[1][-1]}
            known.end(tx, "committed")
            await trio.sleep(5)
            assert sorted(seen.ids) == ids_of([every[0], *every[2:]])
            assert {site.position for site in sites} == {known.last_id}

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sites[0].run, 100)
            await while_it_runs(sites[1], ending)
            nursery.cancel_scope.cancel()

    told(story)


def test_a_read_in_the_middle_of_a_batch_gives_what_lies_behind() -> None:
    async def story(known: Transactions, seen: Seen) -> None:
        tx = known.begin()
        ids = known.publish("a", "b", "c", pointer=tx)
        known.end(tx, "committed")
        await known.ended(tx)
        source = CommittedSource(known.partition, known.partition, known)
        chunk = await source.read(ids[0], 1000)
        assert chunk is not None
        assert chunk.last_id == ids[-1]

    told(story)
