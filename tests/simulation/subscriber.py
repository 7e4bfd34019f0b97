"""A subscriber of the simulation: the real inbox, service and registration, and a listener that follows a script.

A message counts as handled when the listener has returned. The listener fails now and then, and sometimes the process
ends in the middle of a push, with messages handled and not acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

import trio

from delivery.dispatch.target import Stream
from delivery.errors import HootError
from delivery.metastore.catalog import open_catalog
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.request import Request
from delivery.model import Message
from delivery.rpc.promise import Promise
from delivery.rpc.protocol import Call as ThriftCall, load_idl
from subscriber.attachment import Attachment
from subscriber.inbox import Inbox, PartitionInbox, Turn
from subscriber.listeners import Abandoned, check_listener
from subscriber.manual import ManualMessage
from subscriber.registration import Plan, SubscriberZooKeeper
from subscriber.service import ListenerService
from subscriber.subscription import Subscription
from tests.simulation.kernel import Call, Kernel
from tests.simulation.machine import Crashed, Machine, here
from tests.simulation.network import Network, Wire
from tests.simulation.session import SimulatedSession
from tests.simulation.zookeeper import ZooKeeperServer

RENEW_SECONDS: Final = 2.0


class Script:
    """How often a listener goes wrong, and how often it is slow."""

    def __init__(self, failing: float, dying: float, slow: float = 0.03, *, by_hand: bool = False) -> None:
        """`by_hand`: what it gets it acknowledges later, or gives back, or forgets."""
        self.failing, self.dying, self.slow, self.by_hand = failing, dying, slow, by_hand
        self.calm = False


class SimulatedSubscriber(Machine):
    """One process of a subscriber."""

    def __init__(
        self, kernel: Kernel, name: str, port: int, network: Network, server: ZooKeeperServer, script: Script,
        *, member: str,
    ) -> None:  # fmt: skip
        super().__init__(kernel, name)
        self.session = SimulatedSession(self, server, reset_chance=0.002, deadline=1.5)
        self._network, self.script = network, script
        self._address, self._member = (name, port), member
        self._token = f"token-{name}-{port}"
        self._hinted = trio.Event()
        self._service: Service | None = None
        self._acknowledged: dict[tuple[int, int], int] = {}
        """In which beginning of the inbox; what another owner begins ahead of all that was seen here may come twice."""

    async def run(self, record: SubscriptionRecord) -> None:
        """Listen and keep registered, until crashed."""
        here.set(self)
        self._service = service = Service(self, record.name)
        try:
            with self.scope:
                self.session.start()
                listener = ListenerRecord(
                    address=self._address[0], port=self._address[1], token=self._token, member=self._member
                )
                service.attach(record, listener, self._take if self.script.by_hand else self._handle)
                self._network.listen(self._address, self, service)
                async with trio.open_nursery() as nursery:
                    if self.script.by_hand:
                        nursery.start_soon(service.look_at_the_time)
                    await self._keep_registered(record, listener)
        except* Crashed:
            pass

    async def _keep_registered(self, record: SubscriptionRecord, listener: ListenerRecord) -> None:
        session = cast("Any", self.session)
        registration = SubscriberZooKeeper(session, record.name, force=True, member=self._member)
        catalog = open_catalog(session)

        def register() -> None:
            replace = catalog.listener(record.queue, record.name, self._member)
            registration.register(Plan(record, record, replace, self._member), listener)

        registered = False
        registration.watch(record.queue, listener, self._hint)
        while True:
            self._hinted = trio.Event()
            try:
                if registered:
                    work: Callable[[], object] = partial(registration.renew, record, listener)
                else:
                    work = register
                await trio.to_thread.run_sync(work)
                if not registered:
                    self.kernel.note("attached", self.name, record.name)
                registered = True
            except HootError as error:
                self.kernel.note("not attached", self.name, error)
                await trio.sleep(0.2)
                continue
            with trio.move_on_after(RENEW_SECONDS):
                await self._hinted.wait()

    def _hint(self) -> None:
        self._hinted.set()

    def _turn(self, partition: int) -> tuple[Turn, int]:
        """The epoch and run of the push that is being handled, and the number of moves that it follows."""
        inbox = self._inbox(partition)
        return inbox.turn, inbox._moves

    def _inbox(self, partition: int) -> PartitionInbox:
        assert self._service is not None
        return self._service.inbox.partition(partition)

    def _take(self, message: Any) -> None:
        """Of a message that is acknowledged by hand."""
        kernel, calm = self.kernel, self.script.calm
        if not self.alive:
            raise Abandoned
        if self._acknowledged.get((message.partition, message.number)) == self._inbox(message.partition).beginning:
            kernel.fail(AssertionError(f"{self.name} gets {message.number} again, which it has acknowledged"))
        what = 1.0 if calm else kernel.between(0, 1)
        if what < 0.05:
            raise ValueError("the script says so")
        if what < 0.15:
            kernel.note("forgets", self.name, message.partition, message.number)
        elif what < 0.2:
            self.act_later(kernel.between(0, 0.3), message.nack)
        else:
            self.act_later(0 if calm else kernel.between(0, 0.6), partial(self._acknowledge, message))

    def _acknowledge(self, message: ManualMessage) -> None:
        place = message.partition, message.number
        if not message.ack():
            self.kernel.note("too late", self.name, *place)
            return
        self._acknowledged[place] = self._inbox(message.partition).beginning
        self.kernel.note("handled", self.name, *place, message.body, *self._turn(message.partition))
        if not self.script.calm and self.kernel.chance(self.script.dying):
            self.crash()

    def _handle(self, message: Message) -> None:
        kernel = self.kernel
        if not self.alive:
            raise Abandoned
        if not self.script.calm and kernel.chance(self.script.failing):
            kernel.note("fails at", self.name, message.partition, message.number)
            raise ValueError("the script says so")
        place = message.partition, message.number, message.body
        kernel.note("handled", self.name, *place, *self._turn(message.partition))
        if not self.script.calm and kernel.chance(self.script.dying):
            self.crash()
            raise Abandoned


class Service:
    """What a subscriber does with calls: the real service on a simulated dispatch thread, answers in order."""

    def __init__(self, machine: SimulatedSubscriber, name: str) -> None:
        self._machine = machine
        self._dispatcher = _Dispatcher(machine, machine.script.slow)
        self._service = ListenerService(name, cast("Any", self._dispatcher), lambda _: None)
        self._push, self._parked = load_idl("subscriber").Push, load_idl("subscriber").ParkedMessage
        self.inbox = Inbox(())
        self._answers: dict[Wire, deque[tuple[Promise[object], Callable[[Any], None]]]] = {}

    def attach(self, record: SubscriptionRecord, listener: ListenerRecord, handle: Callable[[Message], None]) -> None:
        """Take pushes of a subscription."""
        listeners, by_hand = (check_listener(handle, "message"),), self._machine.script.by_hand
        subscription = Subscription(record.name, _request(record.queue), listeners, manual=by_hand)
        attachment = self._service.attached[record.queue] = Attachment(subscription, record, listener)
        self.inbox = attachment.inbox

    async def look_at_the_time(self) -> None:
        """For what is not acknowledged."""
        await self._service.lapsing.run()

    def hello(self, queue: str, subscription: str) -> Promise[object]:
        """The token, for who asks whether this is the right listener."""
        args = _Args(queue=queue, subscription=subscription)
        return self._service.begin(ThriftCall("Listener", "hello", 0, args))

    def push(
        self, stream: Stream, run: int, after: int, data: bytes, *,
        parked: Sequence[tuple[int, bytes | None]] | None = None, again: bool = False, settled: Sequence[int] = (),
    ) -> Promise[object]:  # fmt: skip
        """A push has arrived."""
        push = self._push(
            queue=stream.queue, subscription=stream.subscription, partition=stream.partition, epoch=stream.epoch,
            run=run, after=after, batches=data, moves=stream.moves, again=again, settled=list(settled),
            parked=[self._parked(id=number, key=key) for number, key in parked or ()],
        )  # fmt: skip
        return self._service.begin(ThriftCall("Listener", "push", 0, _Args(push=push)))

    def call(self, wire: Wire, ask: Callable[[], Promise[object]], answer: Callable[[Any], None]) -> None:
        """Answer what came over a wire, after all that came before it; where that is by hand, as soon as it can be."""
        promise = ask()
        if self._machine.script.by_hand:
            promise.then(lambda outcome: wire.send(self._machine, partial(answer, outcome)))
            return
        waiting = self._answers.setdefault(wire, deque())
        waiting.append((promise, answer))
        promise.then(lambda _: self._flush(wire, waiting))

    def _flush(self, wire: Wire, waiting: deque[tuple[Promise[object], Callable[[Any], None]]]) -> None:
        while waiting and (outcome := waiting[0][0].outcome) is not None:
            wire.send(self._machine, partial(waiting.popleft()[1], outcome))


class _Args:
    """The arguments of a call."""

    def __init__(self, **fields: object) -> None:
        self.__dict__ |= fields


class _Dispatcher:
    """One job after another, each after some time."""

    def __init__(self, machine: Machine, slow: float) -> None:
        self._machine, self._slow = machine, slow
        self._free_at = 0.0
        self.clock = lambda: machine.kernel.now

    def submit(self, _strand: object, job: Call) -> None:
        """A job, behind all others."""
        kernel = self._machine.kernel
        takes = kernel.between(0.0005, 0.005) if not kernel.chance(self._slow) else kernel.between(0, 0.5)
        self._free_at = max(self._free_at, kernel.now) + takes
        self._machine.act_later(self._free_at - kernel.now, job)

    def post(self, call: Call) -> None:
        """A call on the trio thread."""
        call()

    def hop(self, *_: object) -> None:
        """No listener is async here."""
        raise AssertionError("no listener is async here")

    def task_of(self, _: int) -> None:
        """As above."""


def _request(queue: str) -> Request:
    return Request(queue=queue, partitions=None, starts={}, start=0, topics=())
