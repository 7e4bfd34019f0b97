"""A listener as the parts of a worker see it: what a push says, and what it is answered with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from delivery.dispatch.retry import Failure
from delivery.errors import HootError

STATUS_OK, STATUS_FAILED, STATUS_SKIPPED, STATUS_STALE, STATUS_UNKNOWN = range(5)
"""The status codes of idl/subscriber.thrift."""


class Stream(msgspec.Struct, frozen=True):
    """What all pushes of one worker have in common."""

    queue: str
    subscription: str
    partition: int
    epoch: int
    moves: int = 0
    """Of the state that the worker began with."""

    def __str__(self) -> str:
        return f"{self.queue}/{self.partition}: subscription {self.subscription}"


class More(msgspec.Struct, frozen=True):
    """What few pushes have."""

    parked: Sequence[tuple[int, bytes | None]] | None = None
    """In the first push of a run: all messages that are parked, with their keys."""
    again: bool = False
    """The push repeats parked messages."""
    settled: Sequence[int] = ()
    """Parked messages that were given up."""


class Answer(Protocol):
    """A PushReply of idl/subscriber.thrift."""

    status: int
    position: int
    failures: Sequence[Failure] | None
    abreast: int | None


class Target(Protocol):
    """A connection to a listener that proved to be the right one."""

    @property
    def ready(self) -> bool:
        """Whether it takes a push now."""

    def when_ready(self, tell: Callable[[], None], /) -> None:
        """Call `tell` once when it is ready again, or broken."""

    def push(
        self,
        stream: Stream,
        run: int,
        after: int,
        data: bytes,
        on_answer: Callable[[Answer | HootError], None],
        more: More | None = None,
        /,
    ) -> None:
        """Send one push, whole; `on_answer` is called once, later, on the trio thread.

        Raises HootError when the connection is broken; then `on_answer` is not called.
        """
