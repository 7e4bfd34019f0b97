"""Where an application can run: on the engine of the test kit, and on a real one. The same contract holds on both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from delivery import Client, Queue, connect
from delivery.testing import Engine
from subscriber import Message, Reject, Subscriber, Subscription
from tests.integration.embedded import eventually
from tests.saving import is_saved

QUICK_SECONDS = 0.3
"""The first pause after a failure: long enough to be seen, short enough to be waited for."""
_PATIENCE_SECONDS = 30.0
_names = count()


class World(ABC):
    """An engine, with a client, and subscribers that are stopped in the end."""

    client: Client

    def __init__(self) -> None:
        self.queue_name = f"orders-{next(_names)}"
        self.made: list[Subscriber] = []

    def subscriber(self, name: str = "billing", **settings: Any) -> Subscriber:
        self.made.append(self._subscriber(name, **settings))
        return self.made[-1]

    def close(self) -> None:
        for one in self.made:
            one.stop()

    @abstractmethod
    def _subscriber(self, name: str, **settings: Any) -> Subscriber:
        """One that is not started."""

    @abstractmethod
    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Let time pass until that is so."""

    def until_acknowledged(self, subscription: str = "billing") -> None:
        """Nothing waits any more, and that is written down."""
        self.until(
            lambda: is_saved(self.client, self.queue_name, subscription), "all is acknowledged, and that is saved"
        )


class KitWorld(World):
    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine()
        self.client = self.engine.connect()

    def close(self) -> None:
        super().close()
        self.engine.close()

    def _subscriber(self, name: str, **settings: Any) -> Subscriber:
        return self.engine.subscriber(name, **settings)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        self.engine.settle()
        for _ in range(int(_PATIENCE_SECONDS / QUICK_SECONDS)):
            if condition():
                return
            self.engine.advance(QUICK_SECONDS)
        raise AssertionError(f"not: {what}")


class RealWorld(World):
    def __init__(self, zookeeper: str) -> None:
        super().__init__()
        self._zookeeper = zookeeper
        self.client = connect(zookeeper)

    def close(self) -> None:
        super().close()
        self.client.close()

    def _subscriber(self, name: str, **settings: Any) -> Subscriber:
        return Subscriber(name, self._zookeeper, **settings)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        eventually(condition, what, _PATIENCE_SECONDS)


class Handler:
    """A listener that fails as often as it is told to; `bodies` has what it handled."""

    def __init__(self, failing: dict[bytes, int] | None = None, rejected: tuple[bytes, ...] = ()) -> None:
        self.failing, self.rejected = Counter(failing or {}), rejected
        self.bodies: list[bytes] = []
        self.calls: list[bytes] = []

    def __call__(self, message: Message) -> object:
        self.calls.append(message.body)
        if message.body in self.rejected:
            return Reject("it is junk")
        if self.failing[message.body] > 0:
            self.failing[message.body] -= 1
            raise ValueError("not now")
        self.bodies.append(message.body)
        return None


def made_queue(world: World, partitions: int = 1) -> Queue:
    return world.client.create_queue(world.queue_name, partitions=partitions)


def run(world: World, handler: Handler, **options: object) -> Subscription:
    """A subscriber that is started, with this listener."""
    subscriber = world.subscriber()
    made = subscriber.subscribe(world.queue_name, listener=handler, **{"start": "earliest", **options})  # type: ignore[arg-type]
    subscriber.start()
    return made


def numbered(count: int, prefix: bytes = b"") -> list[bytes]:
    return [prefix + b"%d" % number for number in range(count)]
