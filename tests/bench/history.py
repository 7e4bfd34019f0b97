"""What benches gave before: `make bench` prints a run against the last recorded one on the same kind of machine.

    python -m tests.bench.history live --size 100 --messages 1000000
    python -m tests.bench.history --record compare --runs 3

The first runs `hoot bench` with these arguments and compares; the second keeps the run in tests/bench/history.jsonl,
too.
A line of the history is a run: when, on what kind of machine, with which arguments, and its figures, which are medians
where there were several runs. The order of options does not matter. Whether a difference means anything is for who
reads it: machines wander, for which the ratio to the floor (`--with-floor`) makes up.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

HISTORY = Path(__file__).with_name("history.jsonl")
TOLD = (
    "messages_per_second", "per_second", "ratio_to_floor", "ratio_to_one", "requests_per_second",
    "p50_ms", "p99_ms", "p999_ms", "ready_ms", "confirm_us",
    "host_seconds_per_million", "processor_percent", "host_mib",
)  # fmt: skip
NOT_WHAT = ("--json", "--runs")
"""Options that change nothing of what is measured."""


class Run(msgspec.Struct, frozen=True):
    """One run."""

    at: str
    """UTC."""
    machine: str
    arguments: str
    figures: dict[str, float]
    """By what they are of and their names."""


def main(arguments: Sequence[str]) -> int:
    """Run a bench; its exit status."""
    record, given = arguments[:1] == ["--record"], [one for one in arguments if one != "--record"]
    command = [sys.executable, "-m", "delivery.cli", "bench", *given, *([] if "--json" in given else ["--json"])]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(ended.stdout, end="")
    if ended.returncode:
        return ended.returncode
    now = Run(
        datetime.now(UTC).isoformat(timespec="seconds"), machine(), what(given), figures_of(ended.stdout.splitlines())
    )
    print(*against(now, last_like(now, read(HISTORY))), sep="\n")
    if record:
        write(HISTORY, now)
    return 0


def what(arguments: Sequence[str]) -> str:
    """The arguments as a shell takes them: the options sorted, without those that change nothing."""
    options: list[list[str]] = [[]]
    for one in arguments:
        if one.startswith("--"):
            options.append(one.split("=", 1))
        else:
            options[-1].append(one)
    [case, *given] = options
    return shlex.join([*case, *(word for option in sorted(given) if option[0] not in NOT_WHAT for word in option)])


def figures_of(lines: Iterable[str]) -> dict[str, float]:
    """The figures in what a bench printed; a summary's medians are those of its runs."""
    found: dict[str, float] = {}
    for line in lines:
        row: dict[str, Any] = msgspec.json.decode(line)
        row = row.get("median", row)
        of = " ".join(word for word in (row.get("peer"), row.get("case")) if word)
        found |= {f"{of} {name}": row[name] for name in TOLD if row.get(name) is not None}
    return found


def last_like(now: Run, runs: Iterable[Run]) -> Run | None:
    """The last of them that measured the same on the same kind of machine."""
    like = [one for one in runs if one.machine == now.machine and what(shlex.split(one.arguments)) == now.arguments]
    return like[-1] if like else None


def against(now: Run, then: Run | None) -> list[str]:
    """Lines that hold a run against another."""
    if then is None:
        return [f"nothing is recorded yet of `{now.arguments}` on a machine like this ({now.machine})"]
    lines = [f"against {then.at} on a machine like this ({now.machine}):"]
    for name, value in now.figures.items():
        before = then.figures.get(name)
        ratio = f"{value / before:.2f} of {before:,.6g}" if before else "not there before"
        lines.append(f"  {name:<40} {value:>14,.6g}  {ratio}")
    return lines


def machine() -> str:
    """What kind this is: processor, cores, memory, Python."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    python = f"{platform.python_implementation()} {'.'.join(platform.python_version_tuple()[:2])}"
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores, {gib} GiB, {python}"


def read(history: Path) -> list[Run]:
    """All runs that are recorded."""
    lines = history.read_text().splitlines() if history.exists() else []
    return [msgspec.json.decode(line, type=Run) for line in lines]


def write(history: Path, run: Run) -> None:
    """Record one more."""
    with history.open("ab") as file:
        file.write(msgspec.json.encode(run) + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
