"""What a process and its children cost, as the kernel tells it: the most memory that they had, and processor time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from delivery.bench.gauging import Cost, processor_seconds, resident_mib
from delivery.bench.report import result

WORKER = """
import sys, time
for line in sys.stdin:
    word, number = line.split()
    if word == "hold":
        held = b"x" * (int(number) << 20)
        del held
    else:
        end = time.process_time() + float(number)
        while time.process_time() < end:
            pass
    print("done", flush=True)
"""
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKER!r}])"
THREADED = f"import threading; threading.Thread(target=lambda: exec({PARENT!r})).start()"
TICK = 1 / os.sysconf("SC_CLK_TCK")
KINDS = pytest.mark.parametrize(
    "source", [WORKER, PARENT, THREADED], ids=["alone", "with a child", "with a child of a thread"]
)


@contextmanager
def running(source: str) -> Iterator[tuple[int, Callable[[str], None]]]:
    """A Python process, and what tells it to do something and waits until it has."""
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines, answers = process.stdin, process.stdout

        def tell(words: str) -> None:
            lines.write(f"{words}\n")
            lines.flush()
            assert answers.readline() == "done\n"

        tell("hold 1")
        yield process.pid, tell


@KINDS
def test_what_was_held_for_a_moment_counts_until_the_next_one_begins(source: str) -> None:
    with running(source) as (pid, tell):
        cost, before = Cost(pid), resident_mib(pid)
        tell("hold 100")
        assert before is not None
        assert before + 90 < (cost.peak_mib() or 0) < before + 130
        assert (resident_mib(pid) or 0) < before + 20
        assert (Cost(pid).peak_mib() or 0) < before + 20


@KINDS
def test_processor_time_is_counted_from_the_last_beginning_on_and_told_for_a_million(source: str) -> None:
    found = result("live", 100, 500_000, 1.0)
    with running(source) as (pid, tell):
        cost = Cost(pid)
        tell("work 0.3")
        assert cost.beside(found).host_seconds_per_million == pytest.approx(0.6, abs=0.2)
        cost.begin()
        tell("work 0.1")
        told = cost.beside(found)
        assert told.host_seconds_per_million == pytest.approx(0.2, abs=0.15)
        assert told.host_mib == cost.peak_mib()
        assert processor_seconds(pid) > 0.4 - 2 * TICK, "each of two kinds is told in whole ticks"


def test_an_engine_that_is_not_the_bench_s_own_costs_nothing_that_could_be_told() -> None:
    found = result("live", 100, 500_000, 1.0)
    assert msgspec.structs.astuple(Cost(None).beside(found)) == msgspec.structs.astuple(found)
    assert (Cost(None).peak_mib(), resident_mib(None)) == (None, None)
