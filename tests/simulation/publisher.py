"""A publisher of the simulation: the real lanes (sequences, window, retries) and routes, over simulated wires.

Every message is unlike any other and tells its publisher, partition and number, so that the checker knows at sight what
it is. What the sender of the real client does with sockets is done here with wires, step by step the same.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final

from delivery.client.hosts import Owners, Route
from delivery.client.inflight import Entry, Lane
from delivery.client.receipts import Batch
from delivery.errors import HootError, HostUnreachable
from delivery.publish.pending import PendingPublish, Stored
from tests.simulation.host import SimulatedHost
from tests.simulation.kernel import Kernel
from tests.simulation.machine import Machine
from tests.simulation.network import Address, Network, Wire

QUEUE: Final = "orders"
TOPICS: Final = ("", "red")
ANSWER_SECONDS: Final = 1.5
WINDOW: Final = 4


class Stream:
    """One partition of a publisher."""

    def __init__(self, partition: int, lane: Lane, route: Route) -> None:
        self.partition, self.lane, self.route = partition, lane, route
        self.link: Link | None = None
        self.trouble: HootError | None = None
        self.messages = 0
        self.timer = 0.0
        """When it is looked at though nothing happens; 0 for never."""


class Link:
    """A connection to one host, and what is under way on it."""

    def __init__(self, wire: Wire, host: SimulatedHost) -> None:
        self.wire, self.host = wire, host
        self.under_way: deque[tuple[Stream, float]] = deque()
        self.answers: deque[PendingPublish] = deque()
        """On the host's side: answered in the order of arrival."""


class SimulatedPublisher(Machine):
    """One process that publishes to every partition."""

    def __init__(self, kernel: Kernel, name: str, network: Network, owners: Owners, partitions: int) -> None:
        super().__init__(kernel, name)
        self._network = network
        self._number = 0
        self._links: dict[Address, Link] = {}
        self._streams = [Stream(p, Lane(WINDOW, self._fresh), Route(owners, QUEUE, p)) for p in range(partitions)]

    @property
    def idle(self) -> bool:
        """Whether the outcome of everything is known."""
        return all(stream.lane.idle for stream in self._streams)

    def publish(self, partition: int, count: int, seconds: float) -> None:
        """A batch of messages, to be given up after some seconds."""
        stream = self._streams[partition]
        batch = Batch(partition, 0.0, self.kernel.now + seconds)
        bodies = []
        for _ in range(count):
            stream.messages += 1
            bodies.append(b"%s/%d/%d" % (self.name.encode(), partition, stream.messages))
            topic = self.kernel.random.choice(TOPICS)
            batch.rows.append((bodies[-1] + b"/" + topic.encode(), None, topic, b""))
        self.kernel.note("publish", self.name, partition, *batch.rows.bodies)
        stream.lane.add(batch)
        self._pump(stream)

    def _fresh(self) -> int:
        return self.kernel.random.getrandbits(62) | 1

    def _pump(self, stream: Stream) -> None:
        """Send what may be sent; look again when a timer is due."""
        lane, now = stream.lane, self.kernel.now
        while lane.may_send(now) and lane.backlog:
            link = self._link(stream)
            entry = None if link is None else lane.launch()
            if link is None or entry is None:
                break
            self._send(stream, link, entry)
        wake = lane.wake_at()
        if wake is not None and wake >= now and not now < stream.timer <= wake:
            stream.timer = wake + 0.001
            self.act_later(stream.timer - now, partial(self._wake, stream, stream.timer))

    def _wake(self, stream: Stream, timer: float) -> None:
        if stream.timer != timer:
            return
        stream.timer = 0.0
        self._settle(stream)
        self._pump(stream)

    def _link(self, stream: Stream) -> Link | None:
        if stream.lane.flying:
            return stream.link
        try:
            address = stream.route.address()
            stream.link = self._links.get(address) or self._connect(address)
        except HootError as error:
            stream.lane.blocked(error)
            stream.lane.paused_until = self.kernel.now + stream.route.failed(error)
            return None
        return stream.link

    def _connect(self, address: Address) -> Link:
        wire, host = self._network.connect(self, address)
        link = self._links[address] = Link(wire, host)
        wire.on_end[self] = partial(self._broke, address, link)
        return link

    def _send(self, stream: Stream, link: Link, entry: Entry) -> None:
        if not entry.data:
            entry.data = entry.batch.rows.encode(stream.partition, entry.producer, entry.sequence)
        sent = self.kernel.now
        link.under_way.append((stream, sent))
        link.wire.send(self, partial(self._arrive, link, stream.partition, entry.data))
        self.act_later(ANSWER_SECONDS, partial(self._expect, link, sent))

    def _arrive(self, link: Link, partition: int, data: bytes) -> None:
        """On the host's side."""
        pending = link.host.begin(QUEUE, partition, data)
        link.answers.append(pending)
        pending.then(lambda _: self._reply(link))

    def _reply(self, link: Link) -> None:
        while link.answers and (outcome := link.answers[0].outcome) is not None:
            link.answers.popleft()
            link.wire.send(link.host, partial(self._answered, link, outcome))

    def _expect(self, link: Link, sent: float) -> None:
        """A host that does not answer is given up."""
        if link.under_way and link.under_way[0][1] <= sent and self._links.get(link.host.address) is link:
            link.wire.close(self)

    def _answered(self, link: Link, outcome: Stored | HootError) -> None:
        stream, _ = link.under_way.popleft()
        if isinstance(outcome, HootError):
            stream.lane.failed(outcome)
            stream.trouble = stream.trouble or outcome
        else:
            stream.route.arrived()
            batch = stream.lane.stored()
            if batch is not None:
                self.kernel.note("stored", self.name, stream.partition, outcome.base_id, *batch.rows.bodies)
        self._after_failure(stream)
        self._pump(stream)

    def _broke(self, address: Address, link: Link) -> None:
        if self._links.get(address) is link:
            del self._links[address]
        error = HostUnreachable(f"the connection to {address} broke")
        for stream in self._streams:
            if stream.link is link:
                stream.link = None
                if stream.lane.flying:
                    stream.lane.broken(error)
                    stream.trouble = stream.trouble or error
                    self._after_failure(stream)
                self._pump(stream)

    def _after_failure(self, stream: Stream) -> None:
        if stream.trouble is not None and not stream.lane.flying:
            stream.lane.paused_until = self.kernel.now + stream.route.failed(stream.trouble)
            stream.trouble = None
            self._settle(stream)

    def _settle(self, stream: Stream) -> None:
        for batch, error in stream.lane.settle(self.kernel.now):
            self.kernel.note(error.code, self.name, stream.partition, *batch.rows.bodies)
