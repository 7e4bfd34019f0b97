"""What the batching and the direct publisher have in common: messages gather, and whoever has the turn sends them.

In the batching publisher the turn is its thread's; but a `put` that closes a batch tries for it, too: under load the
batches go out from the thread that makes them and nobody waits for a change of threads. In the direct publisher the
callers themselves take turns: one sends and receives for all until its own messages are settled, and what the others
put in the meantime leaves together as the next batch. So many threads share batches, and a single one pays no hop.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

import msgspec

from delivery.client.accumulator import ROW_BYTES, Accumulator, Limits, Room
from delivery.client.hosts import Owners
from delivery.client.inflight import WINDOW_MAX
from delivery.client.outgoing import Outgoing
from delivery.client.routing import Router
from delivery.client.sender import Sender
from delivery.errors import Closed, InvalidRequest
from delivery.metastore.records import QueueRecord

TIMEOUT_SECONDS_MAX = 24 * 3600.0

_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603 - what a process is, is one thing for all of it
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class Target(msgspec.Struct, frozen=True):
    """Where a publisher publishes to."""

    queue: QueueRecord
    outgoing: Outgoing
    owners: Owners
    sender: type[Sender] = Sender
    random: Callable[[], Random] = Random
    """Decides where messages without a key go."""


class Machine:
    """Accumulator and sender, and the lock between them."""

    def __init__(
        self, target: Target, limits: Limits, in_flight: int, timeout: float, *, granting: bool = False
    ) -> None:  # fmt: skip
        """`granting` says whether there is anybody who takes the accumulator's grants."""
        if not 1 <= in_flight <= WINDOW_MAX:
            raise InvalidRequest(f"in_flight must be 1 to {WINDOW_MAX}, not {in_flight}")
        self._timeout = checked_timeout(timeout)
        self._outgoing = target.outgoing
        self._limits = limits.check()
        queue = target.queue
        router = Router(queue.name, queue.settings.partitions, target.random())
        row_bytes_max = target.outgoing.body_bytes_max + ROW_BYTES if granting else 0
        self._accumulator = Accumulator(router, limits, row_bytes_max)
        room = Room.new()
        self._lock, self._room = room
        self._sender = target.sender(queue, target.owners, self._accumulator, room, in_flight)
        self._sender.settled = target.outgoing.settled
        self._closed = False
        self._forks = _forks

    @property
    def _here(self) -> bool:
        """Whether this is the process that made it; after a fork the connections are not the child's to use."""
        return self._forks == _forks

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the publisher is closed")
        if self._forks != _forks:
            raise Closed("the publisher belongs to another process: connect again after a fork")

    def _step(self) -> None:
        """Move the sender on; with the turn. An interrupt leaves it fit to go on."""
        try:
            self._sender.advance()
        except BaseException as error:
            self._sender.reset(f"interrupted by {type(error).__name__}")
            raise


def checked_timeout(seconds: float) -> float:
    """`seconds` if a call may take so long."""
    if not 0 < seconds <= TIMEOUT_SECONDS_MAX:
        raise InvalidRequest(f"a timeout is more than 0 and at most {TIMEOUT_SECONDS_MAX:.0f} seconds, not {seconds}")
    return seconds
