"""Costs that grow: what a message costs when there are ten times as many partitions, subscriptions, bytes and so on.

    python -m tests.bench.growth > tests/bench/growth.jsonl       # every curve: some ten minutes of a quiet machine
    python -m tests.bench.growth size batch                       # some of them
    python -m tests.bench.growth partitions --most 1000           # no further than that

Prints a JSON line for each point, and beside them, on standard error, how far it is and what each curve says. Each
point is a case of `hoot bench` with its checks; a curve has an engine of its own. `tests.bench.curves` makes the
plots of the lines. The exit status is 1 when a cost is worse than linear anywhere.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, cast, get_args

import msgspec

from delivery import connect
from delivery.bench.cases import drain, live
from delivery.bench.idle import asleep
from delivery.bench.report import Result
from delivery.bench.restart import restart
from delivery.bench.stage import Plan, Setup
from delivery.local import LocalEngine
from delivery.model import Durability
from tests.bench.curves import Point, growth, told

MIB: Final = 1 << 20
BYTES_MAX: Final = 200 * 1000 * 1000
"""Of a point with large messages."""
Found = tuple[int, Result, float]
"""A place, what was measured there, and its cost in microseconds."""


class Given(NamedTuple):
    """What was asked for."""

    curve: str
    most: int
    messages_max: int
    durability: Durability

    def places(self, *all_of_them: int) -> Iterator[int]:
        """Those that are not beyond what was asked for, each told when its turn has come."""
        for at in all_of_them:
            if at <= self.most:
                print(f"{self.curve} {at:,} …", file=sys.stderr, flush=True)
                yield at

    def messages(self, wanted: int) -> int:
        """As many, or fewer."""
        return max(1, min(wanted, self.messages_max))

    @contextmanager
    def engine(self, processes: int = 1) -> Iterator[Setup]:
        """What cases stand on, of 100 bytes a message; it is warm."""
        with (
            tempfile.TemporaryDirectory(prefix="hoot-growth-") as folder,
            LocalEngine(Path(folder), processes=processes) as engine,
            connect(engine.address, deadline=60.0) as client,
        ):
            setup = Setup(
                size=100, messages=self.messages(500_000), durability=self.durability, folder=Path(folder),
                client=client, zookeeper=engine.address, host_pid=engine.host.pid,
            )  # fmt: skip
            live(msgspec.structs.replace(setup, messages=self.messages(50_000)))
            yield setup


def partitions(given: Given) -> Iterator[Found]:
    """Batches of a hundred messages, each to another partition: what they are alone is the same at every point."""
    with given.engine() as setup:
        for at in given.places(1, 10, 100, 1000, 10_000):
            yield _each(at, live(msgspec.structs.replace(setup, partitions=at, batch=100)))


def subscriptions(given: Given) -> Iterator[Found]:
    """One that is busy, all others idle, and of other queues."""
    with given.engine() as setup, ExitStack() as stack:
        there = 1
        for at in given.places(1, 10, 100, 1000, 10_000):
            if at > there:
                there += stack.enter_context(asleep(setup, at - there, beside=there - 1)).count
            yield _each(there, live(setup))


def size(given: Given) -> Iterator[Found]:
    """Bodies from 16 bytes to a MiB."""
    with given.engine() as setup:
        for at in given.places(16, 100, 1000, 10_000, 100_000, MIB):
            messages = given.messages(min(500_000, BYTES_MAX // at))
            yield _each(at, live(msgspec.structs.replace(setup, size=at, messages=messages)))


def batch(given: Given) -> Iterator[Found]:
    """Batches from a single message to as many as a publisher puts together by itself."""
    with given.engine() as setup:
        for at in given.places(1, 10, 100, 1000, 8192):
            messages = given.messages(min(500_000, 20_000 * at))
            yield _each(at, live(msgspec.structs.replace(setup, batch=at, messages=messages)))


def backlog(given: Given) -> Iterator[Found]:
    """The time for all of it."""
    with given.engine() as setup:
        for at in given.places(30_000, 100_000, 300_000, 1_000_000, 3_000_000):
            found = drain(msgspec.structs.replace(setup, messages=at))
            yield at, found, found.seconds * 1e6


def processes(given: Given) -> Iterator[Found]:
    """Of the engine, with as many partitions at every point."""
    for at in given.places(1, 2, 4, 8):
        with given.engine(at) as setup:
            yield _each(at, live(msgspec.structs.replace(setup, partitions=8)))


def restarts(given: Given) -> Iterator[Found]:
    """The time until a host is ready; places are MiB of log."""
    for at in given.places(16, 64, 256, 1024, 4096):
        with tempfile.TemporaryDirectory(prefix="hoot-growth-") as folder:
            found = restart(Plan(size=1000, messages=at * MIB // 1000, folder=Path(folder)))
        assert found.ready_ms is not None
        yield at, found, found.ready_ms * 1e3


CURVES: Final[dict[str, Callable[[Given], Iterator[Found]]]] = {
    "partitions": partitions, "subscriptions": subscriptions, "size": size, "batch": batch, "backlog": backlog,
    "processes": processes, "restart": restarts,
}  # fmt: skip


def _each(at: int, found: Result) -> Found:
    return at, found, 1e6 / found.messages_per_second


def measured(given: Given) -> Iterator[Point]:
    """The points of a curve."""
    for at, found, cost_us in CURVES[given.curve](given):
        yield Point(
            curve=given.curve, at=at, cost_us=round(cost_us, 4), messages=found.messages,
            per_second=found.messages_per_second, host_seconds_per_million=found.host_seconds_per_million,
            host_mib=found.host_mib,
        )  # fmt: skip


def main() -> int:
    """Run it; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("curves", nargs="*", metavar="CURVE", help=f"of {', '.join(CURVES)}; all without")
    parser.add_argument("--most", type=int, default=1 << 40, help="no place is beyond this")
    parser.add_argument("--messages", type=int, default=1 << 40, help="at most, for a point")
    parser.add_argument("--durability", choices=get_args(Durability), default="fsync")
    asked = parser.parse_args()
    if unknown := set(asked.curves) - set(CURVES):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(CURVES)}")
    fine = True
    for curve in asked.curves or CURVES:
        points = []
        for point in measured(Given(curve, asked.most, asked.messages, cast("Durability", asked.durability))):
            points.append(point)
            print(msgspec.json.encode(point).decode(), flush=True)
        print(told(points), file=sys.stderr, flush=True)
        fine = fine and (len(points) < 2 or growth(points).fine)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
