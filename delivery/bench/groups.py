"""The case `groups`: what the members of a shared subscription get done, and how they take over from one another.

First everything is published as fast as it goes, for the rate of all members together. Then messages come at a steady
rate, to each partition in turn, while one more member comes and goes again. A move is where two messages of a partition
that follow one another were handled by different members; the time between them is what it cost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count, pairwise, takewhile
from typing import Final

import msgspec

from delivery.bench.checking import BenchFailed, check_checkpoints, check_delivered, noted, published
from delivery.bench.report import Result
from delivery.bench.stage import Consumer, Setup, consuming, publish_all, put_paced, queue_for, rated, wait_until
from delivery.bench.tallies import partitions_beside, times_beside
from delivery.client import Queue
from delivery.client.publisher import Receipt

_NAME: Final = "bench"
_ALL_SECONDS: Final = 600.0
"""For everything of the first half to be handled."""
_SETTLE_SECONDS: Final = 1.0
"""Between a change of the members and the next thing."""

Handled = tuple[int, int, int]
"""When a message was handled, its id, and the number of the member."""


def groups(setup: Setup) -> Result:
    """See above."""
    with queue_for(setup) as queue, ExitStack() as stack:
        members = [stack.enter_context(_member(setup, queue, f"m{number}")) for number in range(setup.members)]
        for member in members:
            member.ready()
        _spread_over(setup, queue, [member.task.member for member in members])
        begun = time.monotonic_ns()
        first = publish_all(setup, queue)
        check_checkpoints(setup.client, queue.name, _NAME, published(first), seconds=_ALL_SECONDS, pause=0.5)
        with _steadily(setup, queue) as later:
            came, went = _come_and_go(setup, queue, members)
        wanted = published([*first, *later])
        check_checkpoints(setup.client, queue.name, _NAME, wanted)
        for member in members[: setup.members]:
            member.stop()
        handled = by_partition(members)
        check_delivered(wanted, {partition: [number for _, number, _ in found] for partition, found in handled.items()})
        return _told(setup, published(first), begun, handled, came, went)


def _told(
    setup: Setup, first: dict[int, list[int]], begun: int, handled: dict[int, list[Handled]], came: int, went: int
) -> Result:  # fmt: skip
    ends = {partition: ids[-1] for partition, ids in first.items()}
    last = max(at for partition, end in ends.items() for at, number, _ in handled[partition] if number <= end)
    found = rated("groups", setup, setup.messages, last - begun)
    moves = [move for found in handled.values() for move in moves_of(found)]
    return msgspec.structs.replace(
        found, members=setup.members,
        joined_pause_ms=_longest(pause for at, pause in moves if came <= at < went),
        left_pause_ms=_longest(pause for at, pause in moves if at >= went),
    )  # fmt: skip


def _longest(nanoseconds: Iterator[int]) -> float:
    found = list(nanoseconds)
    if not found:
        raise BenchFailed("no partition moved: use more --partitions than --members")
    return round(max(found) / 1e6, 3)


def by_partition(members: Sequence[Consumer]) -> dict[int, list[Handled]]:
    """All that was handled, in the order of time."""
    found: dict[int, list[Handled]] = {}
    for number, member in enumerate(members):
        ids = member.ids
        for partition, at, one in zip(
            noted(partitions_beside(ids), "H"), noted(times_beside(ids), "q"), noted(ids, "q"), strict=True
        ):
            found.setdefault(partition, []).append((at, one, number))
    return {partition: sorted(handled) for partition, handled in found.items()}


def moves_of(handled: Sequence[Handled]) -> list[tuple[int, int]]:
    """Where a partition went to another member: when, and how long after the message before."""
    return [(after[0], after[0] - before[0]) for before, after in pairwise(handled) if before[2] != after[2]]


def _come_and_go(setup: Setup, queue: Queue, members: list[Consumer]) -> tuple[int, int]:
    """Have one more member for a while; when it came and when it went. It stays in `members` for what it noted."""
    names = [member.task.member for member in members]
    time.sleep(_SETTLE_SECONDS)
    with _member(setup, queue, "guest") as guest:
        came = time.monotonic_ns()
        guest.ready()
        members.append(guest)
        _spread_over(setup, queue, [*names, "guest"])
        wait_until(guest.ids.exists, "the guest has handled something")
        time.sleep(_SETTLE_SECONDS)
        went = time.monotonic_ns()
        guest.stop()
    _spread_over(setup, queue, names)
    time.sleep(_SETTLE_SECONDS)
    return came, went


def _member(setup: Setup, queue: Queue, name: str) -> AbstractContextManager[Consumer]:
    return consuming(
        setup, queue, "latest", name=_NAME, member=name, expected=0, listener="member", spread=True
    )  # fmt: skip


def _spread_over(setup: Setup, queue: Queue, names: Sequence[str]) -> None:
    """Wait until each of the members has partitions, and nobody else has."""

    def is_spread() -> bool:
        holders = setup.client.subscription_info(queue.name, _NAME).holders
        return len(holders) == setup.partitions and set(holders.values()) == set(names)

    wait_until(is_spread, f"partitions are spread over {', '.join(names)}", pause=0.1)


@contextmanager
def _steadily(setup: Setup, queue: Queue) -> Iterator[list[Receipt]]:
    """Messages at the setup's rate until the context ends; their receipts are there then."""
    receipts: list[Receipt] = []
    over = threading.Event()

    def publish() -> None:
        with queue.publisher(linger_ms=0) as publisher:
            numbers = takewhile(lambda _: not over.is_set(), count())
            receipts.extend(put_paced(setup, publisher, numbers, in_turn=True))

    thread = threading.Thread(target=publish, name="steady", daemon=True)
    thread.start()
    try:
        yield receipts
    finally:
        over.set()
        thread.join()
