"""A partition that members share by key: a crew, its members with real services, and what becomes of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random
from typing import Any, Self, cast

import msgspec
import trio

from delivery import hop
from delivery.batch import open_batch
from delivery.dispatch.crew import Crew
from delivery.dispatch.members import Seat
from delivery.dispatch.runs import Runs
from delivery.dispatch.scanner import Judge
from delivery.dispatch.shares import Shares
from delivery.dispatch.target import Answer, More, Stream
from delivery.dispatch.worker import Begin, Ledger, SubscriptionWorker
from delivery.errors import HootError, SubscriberUnreachable
from delivery.metastore.managers.records import ParkedKey, Share
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.slots import slot_of
from delivery.model import Message
from tests.dispatch import SMALL, STREAM, AlwaysReady, KeptLetters, NoCounters, ScriptedPartition, simulated
from tests.unit.by_key import batch
from tests.unit.group import Member

BY_KEY = RetryPolicy(order="key", first_seconds=1, jitter=0)
IN_ORDER = RetryPolicy(first_seconds=1, jitter=0)


class Handled(msgspec.Struct):
    """A message in the hands of a member."""

    member: str
    message: Message
    began: float
    ended: float
    """When its push is answered; earlier when the member died before."""


class Line(AlwaysReady):
    """To a member, as a link: it breaks, and is there again."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._out: dict[int, Callable[[Answer | HootError], None]] = {}
        self._sent = 0
        self._up = trio.Event()
        self._up.set()

    async def target(self) -> Self:
        await self._up.wait()
        return await super().target()

    def push(
        self, stream: Stream, run: int, after: int, data: bytes, on_answer: Callable[[Answer | HootError], None],
        more: More | None = None,
    ) -> None:  # fmt: skip
        if not self._up.is_set():
            raise SubscriberUnreachable("the connection broke")
        self._sent += 1
        number = self._sent
        self._out[number] = on_answer

        def answered(answer: Answer | HootError) -> None:
            if (tell := self._out.pop(number, None)) is not None:
                tell(answer)

        self.member.push(stream, run, after, data, answered, more)

    def break_off(self) -> None:
        """What was sent is with the member; its answers get lost."""
        out, self._out = self._out, {}
        if self._up.is_set():
            self._up = trio.Event()
        for tell in out.values():
            tell(SubscriberUnreachable("the connection broke"))

    def mend(self) -> None:
        self._up.set()


class SavedShares:
    """What ZooKeeper has: it is later than what was noted, but for what was to be kept."""

    def __init__(self, check: Callable[[int, tuple[Share, ...]], None]) -> None:
        self.noted: tuple[int, tuple[Share, ...]] = (0, ())
        self.parked: tuple[ParkedKey, ...] = ()
        self.saved: tuple[int, tuple[Share, ...], tuple[ParkedKey, ...]] = (0, (), ())
        self.save_seconds = 0.02
        self.is_over = False
        self._check = check

    def note_shares(self, position: int, shares: tuple[Share, ...]) -> None:
        assert position == min(one.position for one in shares)
        if not self.is_over:
            self._check(position, shares)
            self.noted = position, shares

    def note_parked(self, parked: tuple[ParkedKey, ...]) -> None:
        self.parked = parked

    async def keep(self) -> tuple[Share, ...]:
        saving = (*self.noted, self.parked)
        await trio.sleep(self.save_seconds)
        if self.is_over:
            await trio.sleep_forever()
        self.saved = saving
        return saving[1]

    def save(self) -> None:
        self.saved = (*self.noted, self.parked)


class Stage:
    """A partition with messages, members, and one owner after another."""

    def __init__(self, random: Random, policy: RetryPolicy, keys: str, batches: int) -> None:
        self.random, self.policy = random, policy
        self.fail: Callable[[str, Message], bool] = lambda _name, _message: False
        self.partition = ScriptedPartition([])
        self.published: list[Message] = []
        self.handled: list[Handled] = []
        self.members: dict[str, Member] = {}
        self.lines: dict[str, Line] = {}
        self.alive: dict[str, trio.CancelScope] = {}
        self.seated: set[str] = set()
        self.ledger = SavedShares(self._check)
        self.epoch = 0
        self.crew: Crew | None = None
        self._keys = keys
        self._slots: dict[int, list[int]] = {}
        """The messages in each slot."""
        self._owner = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        for _ in range(batches):
            self.publish()

    # -- what happens

    def publish(self) -> None:
        base = self.published[-1].number + self.random.randint(1, 50) if self.published else 100
        data = batch(base, *(self.random.choice(self._keys) for _ in range(self.random.randint(1, 9))))
        for one in open_batch(data).messages("orders"):
            self.published.append(one)
            self._slots.setdefault(slot_of(one.key, one.number), []).append(one.number)
        self.partition.add(data)

    def join(self, name: str, seconds: float = 0.0) -> None:
        """A new process, under a name that may have been another one's."""
        assert self._nursery is not None
        self.members[name] = member = Member(
            name, lambda message: self._handle(name, member, message), self.policy, seconds
        )  # fmt: skip
        member.record = msgspec.structs.replace(member.record, port=len(self.handled) + 1)
        self.lines[name] = Line(member)
        self.alive[name] = scope = trio.CancelScope()
        self.seated.add(name)
        self._nursery.start_soon(self._live, member, scope)
        self._tell()

    def kill(self, name: str) -> None:
        """It handles nothing any more, which nobody knows until its session ends."""
        self.alive.pop(name).cancel()
        self.lines[name].break_off()
        for one in self.handled:
            if one.member == name:
                one.ended = min(one.ended, trio.current_time())

    def end_session(self, name: str) -> None:
        self.seated.discard(name)
        self._tell()

    def take_over(self) -> None:
        """Another owner, which knows what is saved; the former one can do nothing any more."""
        assert self._nursery is not None
        self._owner.cancel()
        self.ledger.is_over = True
        self.ledger, before = SavedShares(self._check), self.ledger
        self.ledger.saved, self.epoch = before.saved, self.epoch + 1
        position, shares, parked = before.saved
        for line in self.lines.values():  # it makes connections of its own
            line.break_off()
            line.mend()
        self.ledger.noted, self.ledger.parked = (position, shares), parked
        stream = msgspec.structs.replace(STREAM, epoch=STREAM.epoch + self.epoch)
        self.crew = Crew(
            stream, Begin(position, 1, self.policy), Shares(shares, position, parked), wanted=None, make=self._worker,
            ledger=self.ledger, runs=Runs(),
        )  # fmt: skip
        self._owner = trio.CancelScope()
        self._nursery.start_soon(self._own, self.crew, self._owner)
        self._tell()

    async def run(self, story: Callable[[], Awaitable[None]]) -> None:
        hop.AT_ONCE.set(True)
        async with trio.open_nursery() as self._nursery:
            self.take_over()
            await story()
            self._nursery.cancel_scope.cancel()

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        simulated(lambda: self.run(story))

    # -- what is asked

    def order_of(self, key: bytes) -> list[int]:
        """The messages of a key in the order in which they were handled first."""
        return list(dict.fromkeys(one.message.number for one in self.handled if one.message.key == key))

    def check(self, *, twice: bool) -> None:
        """All was handled, each key in its order, and by one at a time; `twice` says whether it may have come again."""
        numbers = [one.message.number for one in self.handled]
        assert set(numbers) == {one.number for one in self.published}, "nothing is lost"
        assert twice or len(numbers) == len(set(numbers)), "nothing comes twice"
        for key in {one.key for one in self.published if one.key is not None}:
            assert self.order_of(key) == [one.number for one in self.published if one.key == key]
            spans = sorted(
                ((one.began, one.ended, one.member) for one in self.handled if one.message.key == key),
                key=lambda span: span[:2],
            )
            for (_, ended, name), (began, _, other) in pairwise(spans):
                assert name == other or ended <= began, f"{key!r} is at {name} and at {other} at once"
        assert (self.ledger.noted[0], self.ledger.parked) == (self.published[-1].number, ())

    def _check(self, position: int, shares: tuple[Share, ...]) -> None:
        """No checkpoint is beyond a message that was not answered, nor any share's position."""
        settled = {one.message.number for one in self.handled}
        settled.update(number for one in self.ledger.parked for number in one.ids)
        for share in shares:
            for slot in (slot for slot in self._slots if _is_in(slot, share)):
                assert settled.issuperset(number for number in self._slots[slot] if number <= share.position)

    # -- within

    def _handle(self, name: str, member: Member, message: Message) -> None:
        if self.fail(name, message):
            raise ValueError("bad luck")
        now = trio.current_time()
        self.handled.append(Handled(name, message, now, now + member.seconds))

    async def _live(self, member: Member, scope: trio.CancelScope) -> None:
        with scope:
            await member.serve()

    async def _own(self, crew: Crew, scope: trio.CancelScope) -> None:
        with scope:
            await crew.run()

    def _tell(self) -> None:
        """The owner hears of who is there."""
        if self.crew is not None and self.seated:
            links = {name: Seat(self.members[name].record, cast("Any", self.lines[name])) for name in self.seated}
            self.crew.change(links)

    def _worker(self, stream: Stream, begin: Begin, wanted: Judge, ledger: Ledger) -> SubscriptionWorker:
        return SubscriptionWorker(
            stream, self.partition, begin=begin, wanted=wanted, config=SMALL, counters=NoCounters(), ledger=ledger,
            letters=KeptLetters(),
        )  # fmt: skip


def _is_in(slot: int, share: Share) -> bool:
    return any(first <= slot <= last for first, last in share.slots)
