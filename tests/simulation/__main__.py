"""Simulate from the command line.

python -m tests.simulation --first 0 --seeds 1000     many, until one fails
python -m tests.simulation --seed 7 --trace           one, with all that happened
python -m tests.simulation --plant "no fence"         with a mistake planted (see bugs), which has to be found
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from tests.simulation.bugs import PLANTED
from tests.simulation.run import Result, simulate

_COLLECT_EVERY = 5
"""Seeds. A run leaves a tangle of dead tasks behind; to look for such tangles all the time costs a tenth."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every seed held, 1 when one did not."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings have an order of their own in each process; a seed has to mean the same in all.
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )  # fmt: skip
    options = _options(arguments)
    with PLANTED[options.plant].plant() if options.plant else nullcontext():
        if options.digests:
            return _digests(options.first, options.seeds)
        if options.seed is None:
            return _many(options.first, options.seeds, options.jobs)
        return _one(options.seed, trace=options.trace)


def _digests(first: int, seeds: int) -> int:
    for seed in range(first, first + seeds):
        print(seed, simulate(seed).history.digest())
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate a region under faults.")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--trace", action="store_true", help="print all that happened in it")
    parser.add_argument("--first", type=int, default=0, help="the first of many (0)")
    parser.add_argument("--seeds", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes for many (one per processor)")
    parser.add_argument("--digests", action="store_true", help="print what identifies the history of each")
    parser.add_argument("--plant", choices=PLANTED, help="make this mistake")
    return parser.parse_args(arguments)


def _one(seed: int, *, trace: bool) -> int:
    result = simulate(seed, logs=trace)
    if trace:
        print(*result.history.entries, sep="\n")
    if result.violation is None:
        print(f"seed {seed} held: {len(result.history.entries)} entries, {result.history.digest()}")
        return 0
    print(_report(result))
    return 1


def _many(first: int, seeds: int, jobs: int) -> int:
    begun = time.monotonic()
    entries = duplicates = 0
    slowest = 0.0
    gc.disable()
    gc.freeze()  # what was imported is not looked through after every run
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for ended in pool.imap(_summary, range(first, first + seeds)):
            if ended.report:
                print(ended.report)
                return 1
            entries += ended.entries
            duplicates += ended.duplicates
            slowest = max(slowest, ended.settled)
    rate = seeds / (time.monotonic() - begun)
    print(f"{seeds} seeds from {first} held: {rate:.1f} seeds/s, {entries} entries, {duplicates} duplicates;"
          f" the slowest had settled {slowest:.1f} s after its last fault")  # fmt: skip
    return 0


class _Summary(NamedTuple):
    """What is left of a run; its history stays where it was made."""

    report: str
    """Nothing when it held."""
    entries: int
    duplicates: int
    settled: float


def _summary(seed: int) -> _Summary:
    result = simulate(seed)
    report = "" if result.violation is None else _report(result)
    summary = _Summary(report, len(result.history.entries), result.duplicates, result.settled)
    del result
    if seed % _COLLECT_EVERY == 0:
        gc.collect()
    return summary


def _report(result: Result) -> str:
    trace = "".join(traceback.format_exception(result.violation))
    return (
        f"{trace}seed {result.seed} FAILED: {type(result.violation).__name__} {result.violation}\n"
        f"again, alone: python -m tests.simulation --seed {result.seed} --trace"
    )


if __name__ == "__main__":
    sys.exit(main())
