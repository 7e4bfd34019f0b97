"""What an adapter of `hoot bench compare` does, and what its subscriber counts.

All of it blocks. A queue has one partition, and every subscriber begins with its first message. Bodies begin with
their number and the time when they are due, eight bytes each, so that count, order and latency can be told of any peer.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Event
from typing import ClassVar, Final

HEAD_BYTES: Final = 16
"""Of each body: its number, and when it is due in nanoseconds of CLOCK_MONOTONIC."""

Send = Callable[[Iterable[bytes]], None]
"""Publishes these bodies, and returns when every one is acknowledged.

A sequence is there as a whole, and is about the rate; anything else gives each body when it is due, to be sent at once.
"""


class Inbox:
    """What one subscriber receives."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.bodies: list[bytes] = []
        self.latencies: list[int] = []
        self.first_ns = self.last_ns = 0
        self.begun = Event()
        """The first message has come."""
        self.over = False
        """All that is expected has come."""
        self._milestone = 1

    def take(self, body: bytes) -> None:
        """The callback, for each message."""
        self.bodies.append(body)
        if len(self.bodies) == self._milestone:
            self._reached(time.monotonic_ns())

    def _reached(self, now: int) -> None:
        if not self.begun.is_set():
            self.first_ns, self._milestone = now, self.expected
            self.begun.set()
        if len(self.bodies) == self.expected:
            self.last_ns = now
            self.over = True

    def take_timed(self, body: bytes) -> None:
        """As `take`, with the time since the message was due."""
        self.latencies.append(time.monotonic_ns() - int.from_bytes(body[8:16], "little"))
        self.take(body)

    def trouble(self) -> str:
        """What is wrong with what came; empty when each message came once and in order."""
        numbers = [int.from_bytes(body[:8], "little") for body in self.bodies]
        if numbers == list(range(self.expected)):
            return ""
        came = len(set(numbers))
        return f"{self.expected} messages were published; {len(numbers)} came, {came} different ones, or not in order"


Take = Callable[[bytes], None]


class Peer(ABC):
    """One system with one choice of durability."""

    name: ClassVar[str]
    durability: ClassVar[str]
    """What an acknowledged publish has survived, in a few words."""
    library: ClassVar[str]
    """The distribution of its client."""
    module: ClassVar[str]
    """What is imported of it."""
    share: ClassVar[float] = 1.0
    """Of the messages that it gets, so that a slow one does not take all the time."""
    commands: ClassVar[Sequence[str]] = ()
    """Of its server, to be found on PATH."""

    def lacking(self) -> str:
        """Why it cannot be measured here; empty when it can."""
        if importlib.util.find_spec(self.module) is None:
            return f"{self.library} is not installed (pip install 'hoot[compare]')"
        missing = [command for command in self.commands if shutil.which(command) is None]
        return f"not on PATH: {', '.join(missing)}" if missing else ""

    def client(self) -> str:
        """Its client's library and version."""
        try:
            return f"{self.library} {version(self.library)}"
        except PackageNotFoundError:
            return self.library

    @abstractmethod
    def server(self, folder: Path) -> AbstractContextManager[str]:
        """Run its server with data in the folder; gives its address. Raises BenchFailed."""

    @abstractmethod
    def server_version(self, address: str) -> str:
        """What it says it is."""

    @abstractmethod
    def prepare(self, address: str, queue: str, groups: Sequence[str]) -> None:
        """Make a queue, and subscriptions to it, each of which gets all messages."""

    @abstractmethod
    def publisher(self, address: str, queue: str) -> AbstractContextManager[Send]:
        """A connected publisher."""

    @abstractmethod
    def consume(self, address: str, queue: str, group: str, inbox: Inbox, take: Take) -> None:
        """Call `take` with each body of a subscription, and acknowledge, until the inbox is over and all of it is."""
