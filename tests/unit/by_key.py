"""A worker with the order of keys and a real subscriber, on a virtual clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import trio

from delivery.batch import encode, peek, stamp
from delivery.dispatch.target import Answer, More, Stream
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.errors import HootError, SubscriberUnreachable
from delivery.filters import filter_of
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.request import Request
from delivery.model import Message
from delivery.rpc.protocol import Call
from subscriber.attachment import Attachment
from subscriber.listeners import Registered, Where, check_listener
from subscriber.service import ListenerService
from subscriber.subscription import Event, Subscription
from tests.dispatch import (
    SMALL,
    STREAM,
    AlwaysReady,
    KeptLetters,
    NoCounters,
    NotedLedger,
    ScriptedPartition,
    push_struct,
)

POLICY = RetryPolicy(order="key", first_seconds=1, jitter=0)
Handle = Callable[[Message], object]


def batch(base: int, *keys: str) -> bytes:
    """A message per key, `-` for none; its body is its id, its topic the key."""
    rows = [(b"%d" % (base + i), None if key == "-" else key.encode(), key, b"") for i, key in enumerate(keys)]
    data = encode(rows, 0)
    header = peek(data)
    assert header is not None
    return stamp(header, data, base, 1)[1]


def _call(job: Callable[[], object]) -> None:
    job()


class ScriptedStrands:
    """Stands for threads: jobs of several strands run in any order, and some while others call their listeners."""

    def __init__(self, random: Random, within: float = 0.5) -> None:
        """`within` is how likely a job runs before, or after, a call of another one."""
        self._random, self._within = random, within
        self._waiting: dict[Hashable, deque[Callable[[], None]]] = {}
        self._busy: set[Hashable] = set()
        self.most_busy = 0
        self.pause_seconds = 0.02
        self._submitted = trio.lowlevel.ParkingLot()
        self.abreast = 8

    def worked(self, messages: int, began: float) -> None: ...

    def hung(self, hangs: bool) -> None: ...

    def submit(self, strand: Hashable, job: Callable[[], None]) -> None:
        self._waiting.setdefault(strand, deque()).append(job)
        self._submitted.unpark()

    async def run(self) -> None:
        """Run all jobs, some time after they were submitted."""
        while True:
            while not any(self._waiting.values()):
                await self._submitted.park()
            await trio.sleep(self.pause_seconds)
            while self.step():
                pass

    def step(self) -> bool:
        """Run a job to its end, unless there is none."""
        ready = [strand for strand, jobs in self._waiting.items() if jobs and strand not in self._busy]
        if not ready:
            return False
        strand = self._random.choice(ready)
        self._busy.add(strand)
        self.most_busy = max(self.most_busy, len(self._busy))
        self._waiting[strand].popleft()()
        self._busy.discard(strand)
        return True

    def within(self, handle: Handle) -> Handle:
        """The listener, with jobs of other strands before and after it."""

        def called(message: Message) -> object:
            if self._random.random() < self._within:
                self.step()
            try:
                return handle(message)
            finally:
                if self._random.random() < self._within:
                    self.step()

        return called


class Process(AlwaysReady):
    """A subscriber: the real service, called for one push after another; what it answers may get lost."""

    def __init__(
        self, listeners: tuple[Registered, ...], policy: RetryPolicy, where: Where | None,
        strands: ScriptedStrands | None, *, manual: bool = False,
    ) -> None:  # fmt: skip
        record = SubscriptionRecord(
            name="mail", queue="orders", generation="g", created_ms=1, starts={0: 0}, all_partitions=True, topics=(),
            retry=policy,
        )  # fmt: skip
        here = SimpleNamespace(submit=lambda _, job: job(), post=_call, hop=None, task_of=None, clock=trio.current_time)
        self.service = ListenerService("mail", cast("Any", here), list[Event]().append)
        request = Request(queue="orders", partitions=None, starts={}, start=0, topics=())
        subscription = Subscription("mail", request, listeners, where, manual=manual)
        listener = ListenerRecord(address="127.0.0.1", port=1, token="t")
        self.service.attached["orders"] = Attachment(subscription, record, listener)
        self.service.attached["orders"].strands = cast("Any", strands)
        self.lose: Callable[[], bool] = bool
        self._asked, self._pushes = trio.open_memory_channel[tuple[Any, Callable[..., None]]](1000)

    def push(
        self, stream: Stream, run: int, after: int, data: bytes, on_answer: Callable[[Answer | HootError], None],
        more: More | None = None,
    ) -> None:  # fmt: skip
        push = push_struct(stream, run, after, data, more)
        self._asked.send_nowait((push, on_answer))

    async def serve(self) -> None:
        async for push, on_answer in self._pushes:
            await trio.sleep(0.01)
            promise = self.service.begin(Call("Listener", "push", 0, SimpleNamespace(push=push)))
            promise.then(partial(self._answer, on_answer))

    def _answer(self, on_answer: Callable[..., None], answer: object) -> None:
        on_answer(SubscriberUnreachable("the connection broke") if self.lose() else answer)


class Site:
    """A worker, its subscriber and its partition."""

    def __init__(
        self, batches: list[bytes], handle: Handle, begin: Begin | None = None, *, where: Where | None = None,
        topics: tuple[str, ...] = (), known: RetryPolicy | None = None, lists: Callable[..., object] | None = None,
        strands: ScriptedStrands | None = None, manual: bool = False,
    ) -> None:  # fmt: skip
        """`known` is the policy as the subscriber knows it, if that is another one; `lists` a batch listener."""
        self.begin, self.moves = begin or Begin(0, 1, POLICY), 0
        self._strands = strands
        self.partition = ScriptedPartition(batches)
        called = handle if strands is None else strands.within(handle)
        listeners = [check_listener(called, "message")] + ([check_listener(lists, "batch")] if lists else [])
        self.process = Process(tuple(listeners), known or self.begin.policy, where, strands, manual=manual)
        self._wanted = filter_of(topics, None)
        self.letters = KeptLetters()
        self.ledger = NotedLedger(self._moved)
        self.position = self.begin.position
        self.worker_now: SubscriptionWorker
        """That of the last run."""

    def _moved(self, position: int) -> None:
        self.position = position

    def worker(self) -> SubscriptionWorker:
        return SubscriptionWorker(
            msgspec.structs.replace(STREAM, moves=self.moves), self.partition, begin=self.begin, wanted=self._wanted,
            config=SMALL, counters=NoCounters(), ledger=self.ledger, letters=self.letters,
        )  # fmt: skip

    async def run(self, seconds: float) -> None:
        worker = self.worker_now = self.worker()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.process.serve)
            nursery.start_soon(self.process.service.lapsing.run)
            if self._strands is not None:
                nursery.start_soon(self._strands.run)
            nursery.start_soon(worker.run, self.process)
            await trio.sleep(seconds)
            nursery.cancel_scope.cancel()
