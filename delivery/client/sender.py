"""Moves the bytes of one publisher: takes batches from its accumulator, sends them, and settles them by the answers.

The decisions are elsewhere: what to send next in `inflight`, when a batch may go in `accumulator`, where to in `hosts`.
Whoever has the publisher's turn calls `advance`; there is no thread here. All waiting for hosts and timers is one
`wait`, which may be called without the turn.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
from collections.abc import Iterable
from time import monotonic
from typing import Any, Final

from delivery import logs
from delivery.client.accumulator import Accumulator, Room
from delivery.client.hosts import Owners
from delivery.client.inflight import Entry, Settled
from delivery.client.links import ANSWER_SECONDS, SILENT_SECONDS, Link, Stream
from delivery.client.receipts import Batch
from delivery.errors import DeadlineExceeded, HootError, HostUnreachable, MetadataUnavailable, UnknownOutcome
from delivery.metastore.live import Address
from delivery.metastore.records import QueueRecord
from delivery.telemetry import Published

log = logs.logger(__name__)

LATE_SECONDS: Final = 0.02
"""How often deadlines are looked at, at most."""
NAP_SECONDS: Final = 0.5
"""The longest wait while anything is held, and for as long afterwards: who sends again soon need wake nobody."""
GAP_SECONDS: Final = 0.002
"""How long a batch that is not full waits for the answers to what was sent before it. Where messages come one by one
and fast, batches become larger by it and all come sooner; where answers take longer than this, it costs this much."""


class Sender:
    """Streams and links of one publisher. Not thread-safe, but for `wait` and `wake`; close it when done."""

    def __init__(self, queue: QueueRecord, owners: Owners, accumulator: Accumulator, room: Room, window: int) -> None:
        """`room` is that of the accumulator."""
        self._queue, self._generation = queue.name, queue.generation
        self._owners, self._window = owners, window
        self._accumulator, self._lock, self._room = accumulator, room.lock, room.freed
        self._streams: dict[int, Stream] = {}
        self._active: dict[int, Stream] = {}
        """Those that hold a batch."""
        self._backlog: dict[int, Stream] = {}
        """Those that hold one to be sent."""
        self._links: dict[Address, Link] = {}
        self._epoll = select.epoll()
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waking = threading.Lock()
        self._epoll.register(self._waker, select.EPOLLIN)
        self._late_at = 0.0
        self._sent_at = -math.inf
        self.asleep_until = 0.0
        """Until when a `wait` lasts if nothing happens; 0 when nobody waits."""
        self.held_until = 0.0
        """Until when batches that are not full wait, because something is in flight."""
        self.failure: HootError | None = None
        """The first failure that was not told yet."""
        self.settled: Published | None = None
        """Told of each batch that has an outcome."""

    # -- with the turn

    def advance(self) -> None:
        """Do all that can be done without waiting for an answer."""
        for link in list(self._links.values()):
            self._receive(link)
        now = monotonic()
        if self.held_until and not any(link.under_way for link in self._links.values()):
            self.held_until = 0.0
        full = now < self.held_until
        if now >= self._late_at:
            self._late_at = now + LATE_SECONDS
            self._expire(now)
            for link in list(self._links.values()):
                self._notice_silence(link, now)
        with self._lock:
            ready = self._accumulator.ready(now, full=full)
        for partition in ready:
            self._pump(self._stream(partition), now, full=full)
        for stream in list(self._backlog.values()):
            self._pump(stream, now, full=full)

    def reset(self, why: str) -> None:
        """Something went wrong in the middle of a step: break all connections; what was in flight is sent again."""
        for address in list(self._links):
            self._broke(address, HostUnreachable(why))

    def abandon(self, error: HootError) -> None:
        """Give up all that is held; what is in flight is unknown."""
        self.reset(error.message)
        for stream in list(self._active.values()):
            self._give_out(stream, stream.lane.abandon(error))
        with self._lock:
            held = self._accumulator.take_all()
        for batch in held:
            self._fail(batch, error)

    def close(self) -> None:
        """Close the connections. Nobody may be waiting any more."""
        self.reset("the publisher was closed")
        self._epoll.close()
        with self._waking:  # so that nobody writes to a number that another file gets
            os.close(self._waker)
            self._waker = -1

    # -- without

    def wait(self, seconds: float) -> None:
        """Until an answer arrives, `wake` is called, a timer is due, or `seconds` have passed."""
        self.asleep_until = math.inf  # before looking: who adds a batch after the look sees it and wakes
        now = monotonic()
        seconds = min(seconds, self._next_due(now) - now)
        if seconds > 0:
            self.asleep_until = now + seconds
            for descriptor, _ in self._epoll.poll(None if seconds == math.inf else seconds):
                if descriptor == self._waker:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(descriptor)
        self.asleep_until = 0.0

    def wake(self) -> None:
        """End a `wait`, or the next one."""
        with self._waking:
            if self._waker >= 0:
                os.eventfd_write(self._waker, 1)

    def _next_due(self, now: float) -> float:
        full = now < self.held_until
        with self._lock:
            due = self._accumulator.next_due(now)
            held = bool(self._accumulator.unsettled)
            ready = any(self._can_send(partition, now) for partition in self._accumulator.ready(now, full=full))
            gap = full and bool(self._accumulator.ready(now))
        if ready:
            return now
        times = [now + NAP_SECONDS] if held or now - self._sent_at < NAP_SECONDS else []
        times += [due] if due is not None else []
        times += [self.held_until] if gap else []
        with contextlib.suppress(RuntimeError):  # changed by whoever has the turn: they will look again
            times += [stream.lane.paused_until for stream in self._backlog.values() if not stream.lane.flying]
        return min(times, default=math.inf)

    def _can_send(self, partition: int, now: float) -> bool:
        stream = self._streams.get(partition)
        return stream is None or stream.lane.may_send(now)

    def _stream(self, partition: int) -> Stream:
        found = self._streams.get(partition)
        if found is None:
            found = self._streams[partition] = Stream(self._owners, self._queue, partition, self._window)
        return found

    def _pump(self, stream: Stream, now: float, *, full: bool) -> None:
        """Send of one partition what may be sent, which is what was sent before and what is full, or all."""
        lane = stream.lane
        while lane.may_send(now):
            if not lane.backlog:
                with self._lock:
                    batch = self._accumulator.take(stream.partition, now, full=full)
                if batch is None:
                    break
                lane.add(batch)
            link = self._link(stream)
            entry = None if link is None else lane.launch()
            if link is None or entry is None:
                break
            self._send(stream, link, entry)
        self._note(stream)

    def _link(self, stream: Stream) -> Link | None:
        """The connection for the next batch of a partition. What is in flight on one keeps the others on it."""
        if stream.lane.flying:
            return stream.link
        try:
            address = stream.route.address()
            stream.link = self._links.get(address) or self._connect(address)
        except HootError as error:
            stream.reason = error
            stream.lane.blocked(error)
            self._pause(stream, error)
            if not error.retryable:
                self._give_out(stream, stream.lane.abandon(error))
            return None
        return stream.link

    def _connect(self, address: Address) -> Link:
        link = self._links[address] = Link(address)
        self._epoll.register(link.fileno(), select.EPOLLIN)
        return link

    def _send(self, stream: Stream, link: Link, entry: Entry) -> None:
        self._note(stream)  # if the connection breaks now, those are looked for that hold something
        if not entry.data:
            entry.data = entry.batch.rows.encode(stream.partition, entry.producer, entry.sequence)
        try:
            link.send("publish", self._queue, stream.partition, entry.data, self._generation)
        except HootError as error:
            self._broke((link.address, link.port), error)
        else:
            self._sent_at = monotonic()
            self.held_until = self._sent_at + GAP_SECONDS
            link.under_way.append((stream, self._sent_at))

    def _receive(self, link: Link) -> None:
        """Take the answers that are there."""
        try:
            while link.ready():
                if not link.under_way:
                    raise HostUnreachable(f"{link.address}:{link.port} closed the connection")
                _, answer = link.receive()
                self._answered(link.under_way.popleft()[0], answer)
        except HootError as error:
            self._broke((link.address, link.port), error)

    def _answered(self, stream: Stream, answer: Any) -> None:  # noqa: ANN401 - a PublishReply or a HootError
        if isinstance(answer, HootError):
            stream.lane.failed(answer)
            stream.trouble = stream.trouble or answer
        else:
            stream.route.arrived()
            stream.reason = None
            batch = stream.lane.stored()
            if batch is not None and answer.count != len(batch.rows):
                self._fail(batch, UnknownOutcome("the host answered for another number of messages than were sent"))
            elif batch is not None:
                self._release(batch, None)
                batch.stored(answer.baseId, answer.durability)
        self._after_failure(stream)
        self._note(stream)

    def _notice_silence(self, link: Link, now: float) -> None:
        """A host may be stopped, or cut off, and hold its connections all the same."""
        if not link.under_way:
            return
        stream, since = link.under_way[0]
        address = (link.address, link.port)
        if now - since > ANSWER_SECONDS:
            self._broke(address, DeadlineExceeded(f"{address[0]}:{address[1]} did not answer in {ANSWER_SECONDS:g} s"))
        elif now - max(since, link.looked_at) > SILENT_SECONDS:
            link.looked_at = now
            with contextlib.suppress(MetadataUnavailable):  # then nobody knows better than to wait
                if not self._owners.may_serve(self._queue, stream.partition, address):
                    self._broke(address, HostUnreachable(f"{address[0]}:{address[1]} is silent, and owner no longer"))

    def _broke(self, address: Address, error: HootError) -> None:
        """A connection is of no use any more."""
        link = self._links.pop(address, None)
        if link is None:
            return
        link.close()
        log.info("the connection to %s:%d ended: %s", *address, error.message)
        for stream in {id(stream): stream for stream, _ in link.under_way}.values():
            self._lost(stream, error)
        for stream in [stream for stream in self._active.values() if stream.link is link]:
            self._lost(stream, error)  # one that was being sent is not under way yet

    def _lost(self, stream: Stream, error: HootError) -> None:
        stream.link = None
        if stream.lane.flying:
            stream.lane.broken(error)
            stream.trouble = stream.trouble or error
            self._after_failure(stream)
        self._note(stream)

    def _after_failure(self, stream: Stream) -> None:
        """Once all that was in flight is answered or lost: report what has failed for good, pause before the rest."""
        if stream.trouble is not None and not stream.lane.flying:
            self._pause(stream, stream.trouble)
            stream.trouble, stream.reason = None, stream.trouble
            self._give_out(stream, stream.lane.settle(monotonic()))

    def _expire(self, now: float) -> None:
        for stream in list(self._active.values()):
            self._give_out(stream, stream.lane.settle(now))
        with self._lock:
            late = self._accumulator.expired(now)
        for batch in late:
            reason = self._stream(batch.partition).reason
            self._fail(batch, reason or HostUnreachable("the message could not be sent in time"))

    def _pause(self, stream: Stream, error: HootError) -> None:
        stream.lane.paused_until = monotonic() + stream.route.failed(error)
        self.wake()  # whoever sleeps may do so for longer than that

    def _give_out(self, stream: Stream, settled: Iterable[Settled]) -> None:
        for batch, error in settled:
            self._fail(batch, error)
        self._note(stream)

    def _fail(self, batch: Batch, error: HootError) -> None:
        self.failure = self.failure or error
        self._release(batch, error)
        batch.failed(error)

    def _release(self, batch: Batch, error: HootError | None) -> None:
        if self.settled is not None:
            self.settled(len(batch.rows), monotonic() - batch.begun, error)
        with self._lock:
            self._accumulator.settled(batch)
            self._room.notify_all()

    def _note(self, stream: Stream) -> None:
        """Keep the books of who holds what."""
        for book, belongs in ((self._active, not stream.lane.idle), (self._backlog, stream.lane.backlog)):
            if belongs:
                book[stream.partition] = stream
            else:
                book.pop(stream.partition, None)
