"""For tests of the subscriber: the test itself acts as the region host that pushes, over real sockets."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import trio

from delivery.batch import Row, encode, peek, select, stamp
from delivery.errors import HootError
from delivery.filters import Filter, Topics
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import ListenerRecord
from delivery.model import Message
from delivery.rpc.connection import Connection
from subscriber import AsyncSubscriber, Event, Subscriber, Subscription
from subscriber.unwrapping import only_error

QUEUE, NAME = "flights", "audit"


def batch(first: int, count: int, *, partition: int = 0, epoch: int = 1) -> bytes:
    """A stored batch with ids `first` and up; each body is its id as text, topics alternate between JFK and LGA."""
    rows: list[Row] = [
        (str(number).encode(), None, "JFK" if number % 2 else "LGA", b"") for number in range(first, first + count)
    ]
    data = encode(rows, partition)
    header = peek(data)
    assert header is not None
    return stamp(header, data, first, epoch)[1]


def only(data: bytes, topic: str) -> bytes:
    """What a topic filter leaves of a batch."""
    header = peek(data)
    assert header is not None
    left = select(header, data, Filter(Topics((topic,))))
    assert left is not None
    return left


class Noted:
    """A listener that keeps the ids it got, raises at those it is told to, and waits while it is told to."""

    def __init__(self, *failing: int) -> None:
        self.ids: list[int] = []
        self.failing = set(failing)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.threads: set[str] = set()

    def __call__(self, message: Message) -> None:
        self.entered.set()
        assert self.gate.wait(20)
        if message.number in self.failing:
            raise ValueError(f"{message.number} is no good")
        assert message.body == str(message.number).encode()
        self.ids.append(message.number)
        self.threads.add(threading.current_thread().name)


class Owner:
    """The owner of a partition, as the listener sees it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def begin(
        self, after: int, *batches: bytes, turn: tuple[int, int] = (1, 1), partition: int = 0, queue: str = QUEUE,
        name: str = NAME,
    ) -> Callable[[], Awaitable[Any]]:  # fmt: skip
        """Send a push, waiting while the listener takes nothing; gives what waits for its reply, error or not."""
        answered, answers = trio.Event(), []

        def on_reply(reply: Any) -> None:
            answers.append(reply)
            answered.set()

        async def reply() -> Any:
            await answered.wait()
            return answers[0]

        self.connection.push(queue, name, partition, *turn, after, b"".join(batches), on_reply)
        if not self.connection.ready:
            ready = trio.Event()
            self.connection.when_ready(ready.set)
            await ready.wait()
        return reply

    async def push(self, after: int, *batches: bytes, **more: Any) -> tuple[int, int]:
        """Send a push and wait; gives the status and the position of the reply."""
        reply = await (await self.begin(after, *batches, **more))()
        assert not isinstance(reply, HootError), reply
        return reply.status, reply.position


@contextlib.asynccontextmanager
async def owner_of(listener: ListenerRecord, queue: str = QUEUE, name: str = NAME) -> AsyncIterator[Owner]:
    """Connect to a listener and check that it is the one."""
    connection = await Connection.open(listener.address, listener.port)

    async def receive() -> None:
        with contextlib.suppress(HootError):
            await connection.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        try:
            assert await connection.call("Listener", "hello", queue, name) == listener.token
            yield Owner(connection)
        finally:
            with trio.CancelScope(shield=True):
                await connection.aclose()


def attached(catalog: Catalog, queue: str = QUEUE, name: str = NAME) -> ListenerRecord:
    """The registration of the subscriber that must be attached."""
    found = catalog.listener(queue, name)
    assert found is not None
    return found


def play(story: Callable[[], Awaitable[None]], seconds: float = 30.0) -> None:
    """Run a story that must end within `seconds`."""

    async def run() -> None:
        with trio.fail_after(seconds):
            await story()

    try:
        trio.run(run)
    except BaseExceptionGroup as group:
        raise only_error(group) from None


def ids(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


async def in_thread(event: threading.Event) -> None:
    """Wait for a thread's event."""
    assert await trio.to_thread.run_sync(event.wait, 20)


def numbers(messages: Iterable[Message]) -> list[int]:
    return [message.number for message in messages]


class Stage:
    """A running subscriber with one subscription, and the test as the owner of its partitions."""

    def __init__(self, subscriber: AsyncSubscriber, subscription: Subscription, owner: Owner) -> None:
        self.subscriber, self.subscription, self.owner = subscriber, subscription, owner
        self.events: list[Event] = []
        """Without "attached", of which it may be told before or after it asks for events."""

    def note(self, event: Event) -> None:
        if event.kind != "attached":
            self.events.append(event)


class Theatre:
    """Opens stages over one queue."""

    def __init__(self, catalog: Catalog, zookeeper_hosts: str) -> None:
        self.catalog, self.zookeeper_hosts = catalog, zookeeper_hosts

    @contextlib.asynccontextmanager
    async def stage(
        self, *listeners: object, batches: bool = False, grace: float = 10.0, **more: Any
    ) -> AsyncIterator[Stage]:
        subscriber = AsyncSubscriber(NAME, self.zookeeper_hosts, grace_seconds=grace)
        subscription = await subscriber.subscribe(QUEUE, start="earliest", **more)
        for one in listeners:
            (subscription.batch_listener if batches else subscription.listener)(one)  # type: ignore[type-var]
        async with subscriber, owner_of(attached(self.catalog)) as owner:
            stage = Stage(subscriber, subscription, owner)
            subscriber.on_event(stage.note)
            yield stage


def ignore(message: Message) -> None: ...


def subscribed(subscriber: Subscriber, **more: Any) -> Subscription:
    return subscriber.subscribe(QUEUE, **{"start": "earliest", "listener": ignore, **more})
