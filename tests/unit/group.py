"""Members of a group with real services, and the worker of a partition that goes from one to another."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import trio

from delivery.dispatch.members import Way
from delivery.dispatch.target import Answer, More, Stream
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.errors import HootError
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.request import Request
from delivery.model import Message
from delivery.rpc.promise import Promise
from delivery.rpc.protocol import Call
from subscriber import Event, Subscription
from subscriber.attachment import Attachment
from subscriber.listeners import check_listener
from subscriber.service import ListenerService
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

Handle = Callable[[Message], object]


class Member(AlwaysReady):
    """A subscriber: pushes wait until it has answered those before. One with messages to handle takes time."""

    def __init__(self, name: str, handle: Handle, policy: RetryPolicy, seconds: float) -> None:
        self.seconds = seconds
        self.record = ListenerRecord(address="127.0.0.1", port=1, token=name, member=name)
        record = SubscriptionRecord(
            name="mail", queue="orders", generation="g", created_ms=1, starts={0: 0}, all_partitions=True, topics=(),
            retry=policy, kind="shared",
        )  # fmt: skip
        self._jobs: list[Callable[[], object]] = []
        self._calls = 0

        def counting(message: Message) -> object:
            self._calls += 1
            return handle(message)

        here = SimpleNamespace(
            submit=lambda _, job: self._jobs.append(job), post=lambda job: job(), hop=None, task_of=None,
            clock=trio.current_time,
        )  # fmt: skip
        self._service = ListenerService("mail", cast("Any", here), list[Event]().append)
        request = Request(queue="orders", partitions=None, starts={}, start=0, topics=())
        subscription = Subscription("mail", request, (check_listener(counting, "message"),))
        self._service.attached["orders"] = Attachment(subscription, record, self.record)
        self._asked, self._taken = trio.open_memory_channel[tuple[Any, Promise[object], Callable[..., None]]](1000)
        self.runs: list[tuple[int, bool]] = []
        """Of each push, and whether it was to recall the others."""

    def push(
        self, stream: Stream, run: int, after: int, data: bytes, on_answer: Callable[[Answer | HootError], None],
        more: More | None = None,
    ) -> None:  # fmt: skip
        self.runs.append((run, not data))
        push = push_struct(stream, run, after, data, more)
        promise = self._service.begin(Call("Listener", "push", 0, SimpleNamespace(push=push)))
        self._asked.send_nowait((self._jobs.pop() if self._jobs else None, promise, on_answer))

    async def serve(self) -> None:
        async for job, promise, on_answer in self._taken:
            if job is not None:
                before = self._calls
                job()
                await trio.sleep(self.seconds if self._calls > before else 0)
            on_answer(cast("Any", promise.outcome))


class Group:
    """A partition, its worker, and members among whom it goes."""

    def __init__(self, batches: list[bytes], policy: RetryPolicy) -> None:
        self.policy, self.members = policy, dict[str, Member]()
        self.ledger, self.way = NotedLedger(self._moved), Way()
        self.position = 0
        self.worker = SubscriptionWorker(
            STREAM, ScriptedPartition(batches), begin=Begin(0, 1, policy), wanted=None, config=SMALL,
            counters=NoCounters(), ledger=self.ledger, letters=KeptLetters(),
        )  # fmt: skip

    def _moved(self, position: int) -> None:
        self.position = position

    def join(self, name: str, handle: Handle, seconds: float) -> None:
        self.members[name] = Member(name, handle, self.policy, seconds)

    def give(self, name: str) -> None:
        """A member gets the partition."""
        self.way.turn(self.members[name].record, cast("Any", self.members[name]))

    def move(self, name: str, grace_seconds: float = 60.0) -> None:
        """As a delivery does it."""
        self.give(name)
        self.worker.recall(grace_seconds)

    async def run(self, story: Callable[[], Any]) -> None:
        """The worker and all members work while the story is told."""
        async with trio.open_nursery() as nursery:
            for member in self.members.values():
                nursery.start_soon(member.serve)
            nursery.start_soon(self.worker.run, self.way)
            await story()
            nursery.cancel_scope.cancel()
