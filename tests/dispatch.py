"""A scripted partition and a scripted listener, to run the workers of a region host between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

import msgspec
import trio
from trio.testing import MockClock

from delivery.batch import Header, encode, headers_in, open_batch, peek, stamp
from delivery.batch.select import Refuses
from delivery.config import HostConfig
from delivery.dispatch.deadletters import DeadLetter
from delivery.dispatch.retry import Kind
from delivery.dispatch.target import STATUS_FAILED, STATUS_OK, Answer, More, Stream
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.errors import HootError, StorageUnavailable
from delivery.filters import filter_of
from delivery.metastore.managers.records import Attempts, ParkedKey
from delivery.metastore.policy import RetryPolicy
from delivery.model import Message
from delivery.rpc.protocol import load_idl
from delivery.storage.base import Chunk

STREAM = Stream("orders", "mail", 0, epoch=3)
QUICK = RetryPolicy(first_seconds=1, jitter=0)
SMALL = HostConfig(window_messages=20, window_bytes=100_000, buffer_messages=20, buffer_bytes=100_000, push_bytes=400)


def batch_at(base: int, *topics: str) -> bytes:
    """A stamped batch with a message per topic, its body the id as text."""
    data = encode([(b"%d" % (base + i), None, topic, b"") for i, topic in enumerate(topics)], 0)
    header = peek(data)
    assert header is not None
    return stamp(header, data, base, 1)[1]


class ScriptedPartition:
    """Batches that are there, and more to come."""

    def __init__(self, batches: list[bytes]) -> None:
        self.batches = batches
        self.reads_that_found_nothing = 0
        self.lost: HootError | None = None
        self.in_memory = True
        self._followers: list[Callable[[], None]] = []

    def add(self, batch: bytes) -> None:
        self.batches.append(batch)
        self._tell()

    def lose(self, error: HootError) -> None:
        self.lost = error
        self._tell()

    def follow(self, tell: Callable[[], None]) -> None:
        self._followers.append(tell)

    def unfollow(self, tell: Callable[[], None]) -> None:
        self._followers.remove(tell)

    def has_news(self, after: int) -> bool:
        return self.lost is not None or self._find(after, 1) is not None

    def newest(self, after: int, bytes_max: int) -> Chunk | None:
        return self._find(after, bytes_max) if self.in_memory and self.lost is None else None

    async def read(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        await trio.lowlevel.checkpoint()
        if self.lost is not None:
            raise self.lost
        found = self._find(after, bytes_max)
        self.reads_that_found_nothing += found is None
        return found

    def _tell(self) -> None:
        for tell in list(self._followers):
            tell()

    def _find(self, after: int, bytes_max: int) -> Chunk | None:
        found: list[tuple[Header, bytes]] = []
        size = 0
        for batch in self.batches:
            header = peek(batch)
            assert header is not None
            if header.last_id <= after:
                continue
            if found and size + len(batch) > bytes_max:
                break
            found.append((header, batch))
            size += len(batch)
        if not found:
            return None
        return Chunk(b"".join(data for _, data in found), tuple(header for header, _ in found))


class Refusal(msgspec.Struct):
    """A Failure of the IDL."""

    id: int
    last: int
    kind: int = Kind.RAISED
    afterMs: int | None = None  # noqa: N815
    error: str | None = "ValueError: no"
    key: bytes | None = None


class Reply(msgspec.Struct):
    status: int
    position: int
    failures: list[Refusal] | None = None
    abreast: int | None = None


class ScriptedListener:
    """A link and target in one: calls `on_push` with the messages meant, answers with what it returns.

    As the real listener does it, nothing more of a run is handled once a push of it failed or its connection broke.
    """

    def __init__(self, on_push: Callable[[list[Message]], Awaitable[Reply | HootError]]) -> None:
        self.on_push = on_push
        self.delivered: list[int] = []
        self.connections = 0
        self.push_seconds = 0.0
        """For so long after a push nothing more is taken."""
        self._busy_until = -1.0
        self._waiting, self._waiters = trio.open_memory_channel[Callable[[], None]](1000)
        self._over = 0
        self._answers, self._asked = trio.open_memory_channel[tuple[int, list[Message], Callable[..., None]]](1000)

    async def target(self) -> ScriptedListener:
        self.connections += 1
        await trio.lowlevel.checkpoint()
        return self

    @property
    def ready(self) -> bool:
        return trio.current_time() >= self._busy_until

    def when_ready(self, tell: Callable[[], None]) -> None:
        self._waiting.send_nowait(tell)

    def push(
        self, stream: Stream, run: int, after: int, data: bytes, on_answer: Callable[[Answer | HootError], None],
        more: More | None = None,
    ) -> None:  # fmt: skip
        messages = [
            message
            for at, header in headers_in(data)
            for message in open_batch(data[at : at + header.length]).messages(stream.queue, after)
        ]
        self._answers.send_nowait((run, messages, on_answer))
        self._busy_until = trio.current_time() + self.push_seconds

    async def serve(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_when_ready)
            async for run, messages, on_answer in self._asked:
                if run > self._over:
                    reply = await self.on_push(messages)
                    if isinstance(reply, HootError) or reply.status == STATUS_FAILED:
                        self._over = run
                    on_answer(reply)

    async def _tell_when_ready(self) -> None:
        async for tell in self._waiters:
            await trio.sleep_until(self._busy_until)
            tell()


def ok(messages: list[Message]) -> Reply:
    return Reply(STATUS_OK, messages[-1].number)


def failed_at(number: int, **more: Any) -> Reply:
    """A listener that handled all that it was given up to a message, and not that."""
    return Reply(STATUS_FAILED, number - 1, [Refusal(number, number, **more)])


class NotedLedger:
    """Keeps what a worker notes."""

    def __init__(self, moved: Callable[[int], object] = lambda _: None) -> None:
        self.failing: list[Attempts | None] = []
        self.parked: tuple[ParkedKey, ...] = ()
        self._moved = moved

    def note(self, position: int) -> None:
        self._moved(position)

    def note_failing(self, failing: Attempts | None) -> None:
        self.failing.append(failing)

    def note_parked(self, parked: tuple[ParkedKey, ...]) -> None:
        self.parked = parked


class KeptLetters:
    """Keeps dead letters, and refuses them as long as it is told to."""

    def __init__(self) -> None:
        self.kept: list[DeadLetter] = []
        self.refusals = 0

    async def store(self, letters: Sequence[DeadLetter]) -> None:
        await trio.lowlevel.checkpoint()
        if self.refusals:
            self.refusals -= 1
            raise StorageUnavailable("the disk is full")
        self.kept += letters


class NoCounters:
    def pushed(self, queue: str, subscription: str, messages: int, size: int) -> None: ...
    def acknowledged(self, queue: str, subscription: str, messages: int) -> None: ...
    def failed(self, queue: str, subscription: str) -> None: ...


def simulated(story: Callable[[], Awaitable[None]]) -> None:
    """Run a story on a clock that jumps over every pause."""
    trio.run(story, clock=MockClock(autojump_threshold=0))


async def deliver(
    partition: ScriptedPartition, listener: ScriptedListener, until: int, *, topics: tuple[str, ...] = (),
    position: int = 0, policy: RetryPolicy = QUICK, letters: KeptLetters | None = None,
) -> list[int]:  # fmt: skip
    """Run a worker until its position is `until`; returns every position it reported."""
    positions: list[int] = []
    done = trio.Event()

    def moved(position: int) -> None:
        positions.append(position)
        if position >= until:
            done.set()

    worker = SubscriptionWorker(
        STREAM, partition, begin=Begin(position, 1, policy), wanted=filter_of(topics, None), config=SMALL,
        counters=NoCounters(), ledger=NotedLedger(moved), letters=letters or KeptLetters(),
    )  # fmt: skip
    with trio.fail_after(600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)
            nursery.start_soon(worker.run, listener)
            await done.wait()
            nursery.cancel_scope.cancel()
    return positions


def push_struct(stream: Stream, run: int, after: int, data: bytes, more: More | None) -> Any:
    """The struct of a push, as a subscriber gets it."""
    idl, more = load_idl("subscriber"), more or More()
    return idl.Push(
        queue=stream.queue, subscription=stream.subscription, partition=stream.partition, epoch=stream.epoch,
        run=run, after=after, batches=data, moves=stream.moves, again=more.again, settled=list(more.settled),
        parked=[idl.ParkedMessage(id=number, key=key) for number, key in more.parked or ()],
    )  # fmt: skip


class AlwaysReady:
    """A listener's connection that takes all that is pushed, as a link and as its target."""

    ready = True

    async def target(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    def when_ready(self, tell: Callable[[], None]) -> None:
        raise AssertionError("it is always ready")
