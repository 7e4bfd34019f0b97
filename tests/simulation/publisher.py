"""A publisher of the simulation: the real accumulator and sender, with all below them, over simulated wires.

Every message is unlike any other and tells its publisher, partition and number, so that the checker knows at sight what
it is. The publisher's thread is a timer here: it sleeps for as long as `Sender.wait` would.
"""

from __future__ import annotations

import math
import select
from collections import deque
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from delivery.client.accumulator import Accumulator, Limits, Room
from delivery.client.hosts import Owners
from delivery.client.receipts import Batch, Receipt
from delivery.client.routing import Router
from delivery.client.sender import Sender
from delivery.errors import HootError, HostUnreachable
from delivery.metastore.records import QueueRecord
from delivery.publish.pending import PendingPublish, Stored
from tests.simulation.kernel import Kernel
from tests.simulation.machine import Machine, here
from tests.simulation.network import Address, Network

if TYPE_CHECKING:
    from delivery.client.links import Stream
    from tests.simulation.host import SimulatedHost

QUEUE: Final = "orders"
TOPICS: Final = ("", "red")
ANSWER_SECONDS: Final = 1.5
SILENT_SECONDS: Final = 0.5
WINDOW: Final = 4
BODY_BYTES_MAX: Final = 1 << 20
LIMITS: Final = Limits(batch_messages=5)
TURN_SECONDS: Final = 0.0001
"""Between two turns of a publisher that has no reason to sleep."""


class SimulatedPublisher(Machine):
    """One process that publishes to every partition."""

    def __init__(self, kernel: Kernel, name: str, network: Network, owners: Owners, queue: QueueRecord) -> None:
        super().__init__(kernel, name)
        self.network = network
        self._owners, self._queue, self._partitions = owners, queue, queue.settings.partitions
        self._messages = [0] * self._partitions
        self._bodies: dict[Batch, list[bytes]] = {}
        """Of each batch without an outcome."""
        self._wakes_at = 0.0

    def start(self) -> None:
        """Be ready to publish, until crashed."""
        self._accumulator = Accumulator(Router(QUEUE, self._partitions, self.kernel.random), LIMITS, BODY_BYTES_MAX)
        self._sender = Sender(self._queue, self._owners, self._accumulator, Room.new(), WINDOW)
        self.on_crash.append(self._sender.close)

    @property
    def idle(self) -> bool:
        """Whether the outcome of everything is known."""
        return not self._bodies

    def publish(self, partition: int, count: int, seconds: float) -> None:
        """Some messages, to be given up after some seconds."""
        bodies = []
        for _ in range(count):
            self._messages[partition] += 1
            topic = self.kernel.random.choice(TOPICS)
            body = f"{self.name}/{partition}/{self._messages[partition]}/{topic}".encode()
            row = (body, None, topic, b"")
            batch, _ = self._accumulator.place(row, len(body), partition, self.kernel.now, seconds)
            if batch not in self._bodies:
                self._bodies[batch] = []
                batch.call_back(partial(self._settled, batch), Receipt(batch, 0))
            self._bodies[batch].append(body)
            bodies.append(body)
        self.kernel.note("publish", self.name, partition, *bodies)
        self.turn()

    def turn(self) -> None:
        """Do all that can be done, and sleep until there is more to do."""
        self._sender.advance()
        self._wakes_at = 0.0
        self._sender.wait(math.inf)
        if not self._wakes_at:
            self.sleep(TURN_SECONDS)

    def sleep(self, seconds: float) -> None:
        """Another turn after some time, unless one comes before."""
        at = self._wakes_at = self.kernel.now + seconds
        if seconds < math.inf:
            self.act_later(seconds, partial(self._wake, at))

    def _wake(self, at: float) -> None:
        if at == self._wakes_at:
            self.turn()

    def _settled(self, batch: Batch, _: Receipt) -> None:
        bodies = self._bodies.pop(batch)
        if batch.error is None:
            self.kernel.note("stored", self.name, batch.partition, batch.base_id, *bodies)
        else:
            self.kernel.note(batch.error.code, self.name, batch.partition, *bodies)


class SimulatedPoll:
    """In the place of the epoll on which a publisher's thread sleeps: links give it a turn by themselves."""

    def __init__(self) -> None:
        self._waker = select.epoll()

    def register(self, fileno: int, _event: int) -> None:
        """The one to wake it by, and links."""
        if fileno >= 0:
            self._waker.register(fileno, select.EPOLLIN)

    def poll(self, seconds: float | None) -> list[tuple[int, int]]:
        """Sleep, and be woken by a turn; the waker, if that was used. Links are asked in each turn."""
        woken = self._waker.poll(0)
        if woken:
            seconds = TURN_SECONDS
        cast("SimulatedPublisher", here.get()).sleep(math.inf if seconds is None else seconds)
        return woken

    def close(self) -> None:
        """No more."""
        self._waker.close()


class SimulatedLink:
    """In the place of delivery.client.links.Link: a wire to a host, who answers in the order of arrival."""

    def __init__(self, address: Address) -> None:
        """Connect. Raises HostUnreachable."""
        self.address, self.port = address
        self.under_way: deque[tuple[Stream, float]] = deque()
        self.looked_at = 0.0
        self._publisher = cast("SimulatedPublisher", here.get())
        self._host: SimulatedHost
        self._wire, self._host = self._publisher.network.connect(self._publisher, address)
        self._wire.on_end[self._publisher] = self._publisher.turn
        self._pending: deque[PendingPublish] = deque()
        """On the host's side."""
        self._arrived: deque[Any] = deque()

    def fileno(self) -> int:
        """None."""
        return -1

    def send(self, _method: str, queue: str, partition: int, batch: bytes, generation: str) -> None:
        """Send a publish. Raises HostUnreachable."""
        self._check()
        self._wire.send(self._publisher, partial(self._arrive, queue, partition, batch, generation))

    def ready(self) -> bool:
        """Whether an answer has arrived, or the wire has ended."""
        return bool(self._arrived) or not self._wire.is_open(self._publisher)

    def receive(self) -> tuple[int, Any]:
        """The next answer. Raises HostUnreachable."""
        if not self._arrived:
            self._check()
        return 0, self._arrived.popleft()

    def close(self) -> None:
        """Nothing is expected of it any more."""
        self._wire.on_end.pop(self._publisher, None)
        self._wire.close(self._publisher)

    def _check(self) -> None:
        if not self._wire.is_open(self._publisher):
            raise HostUnreachable(f"the connection to {self.address} broke")

    def _arrive(self, queue: str, partition: int, batch: bytes, generation: str) -> None:
        """On the host's side."""
        pending = self._host.begin(queue, partition, batch, generation)
        self._pending.append(pending)
        pending.then(lambda _: self._reply())

    def _reply(self) -> None:
        while self._pending and (outcome := self._pending[0].outcome) is not None:
            self._pending.popleft()
            self._wire.send(self._host, partial(self._answered, outcome))

    def _answered(self, outcome: Stored | HootError) -> None:
        if isinstance(outcome, Stored):
            self._arrived.append(
                SimpleNamespace(baseId=outcome.base_id, count=outcome.count, durability=outcome.durability)
            )
        else:
            self._arrived.append(outcome)
        self._publisher.turn()
