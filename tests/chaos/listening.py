"""A subscriber of a chaos run: `python -m tests.chaos.listening ORDERS`. Every callback is written down."""

from __future__ import annotations

import random
import threading
import time

import msgspec

from delivery.errors import HootError, SubscriptionBusy
from subscriber import Event, Message, Subscriber
from tests.chaos import role
from tests.chaos.history import History, fields
from tests.integration.embedded import NEVER

HICCUP_EVERY = 400


class Orders(msgspec.Struct, frozen=True):
    """What to listen to."""

    zookeeper: str
    queue: str
    name: str
    file: str
    port: int
    advertise: str
    """Where the proxy listens for the hosts."""
    topics: list[str] = []
    partitions: list[int] | None = None
    pause: float = 0.0
    """In each callback, so that pushes are under way when something breaks."""
    hiccup: float = 0.0
    """In every HICCUP_EVERYth callback."""
    churn: bool = False
    """Subscribe and unsubscribe without end, some 50 ms between."""


class Listening:
    """Starts, and starts again after errors that pass, until told to stop."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._history = History(orders.file)
        self._stop = threading.Event()
        self._subscriber: Subscriber | None = None
        self._count = 0

    def stop(self) -> None:
        """At SIGTERM: `run` returns when the callback under way has been answered."""
        self._stop.set()
        if self._subscriber is not None and not self._orders.churn:
            self._subscriber.stop()

    def run(self) -> None:
        self._history.note("begin")
        while not self._stop.is_set():
            try:
                self._churn() if self._orders.churn else self._listen()
            except HootError as error:
                if not error.retryable and not isinstance(error, SubscriptionBusy):
                    raise
                print(f"{time.monotonic():.3f} {type(error).__name__}: {error}", flush=True)
                self._stop.wait(role.AGAIN_SECONDS)
        self._history.note("end")

    def _listen(self) -> None:
        with self._made(self._orders.name) as subscriber:
            self._history.note("attached")
            self._subscriber = subscriber
            if self._stop.is_set():
                return
            subscriber.run()

    def _churn(self) -> None:
        name = f"{self._orders.name}-{random.randint(0, 3)}"
        with self._made(name) as subscriber:
            self._stop.wait(random.uniform(0, 0.1))
            subscriber.unsubscribe(self._orders.queue)
            self._history.note("churned")
        self._stop.wait(random.uniform(0, 0.1))

    def _made(self, name: str) -> Subscriber:
        orders = self._orders
        subscriber = Subscriber(name, zookeeper=orders.zookeeper, port=orders.port, advertise=orders.advertise)
        subscriber.subscribe(
            orders.queue, partitions=orders.partitions, topics=orders.topics or None,
            start="earliest", listener=self._called,
        )  # fmt: skip
        subscriber.on_event(self._heard)
        return subscriber

    def _heard(self, event: Event) -> None:
        if event.kind == "moved" and not self._orders.churn:
            self._history.note("moved", event.partition, event.former_epoch, event.epoch)

    def _called(self, message: Message) -> None:
        if self._orders.churn:
            return
        self._history.note("call", *fields(message))
        self._count += 1
        pause = self._orders.pause if self._count % HICCUP_EVERY else self._orders.hiccup
        if pause:
            NEVER.wait(pause)


def main() -> None:
    listening = Listening(role.given(Orders))
    role.on_sigterm(listening.stop)
    listening.run()


if __name__ == "__main__":
    main()
