"""`python -m tests.chaos --minutes 3 --seed 7`: a chaos run with its report; `make chaos` calls it.

Exit status 1 when an invariant does not hold; then the folder with all histories and logs is kept, and the last line is
the command that plays the same faults again. With `--runs` several seeds come one after another, whatever becomes of
each, and the failover times of all are told together in the end: a quantile needs more of them than one run has.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.cluster import Shape
from tests.chaos.figures import Failover, failovers
from tests.chaos.plan import FAULTS
from tests.chaos.report import again, failover_lines, report
from tests.chaos.run import Run


def main() -> int:
    given = _given()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    first = random.randrange(1_000_000) if given.seed is None else given.seed
    found: list[Failover] = []
    failed = [seed for seed in range(first, first + given.runs) if not _one(seed, given, found)]
    if given.runs > 1:
        print(f"\n{given.runs} runs from seed {first}:", *failover_lines(found, given.session), sep="\n")
    for seed in failed:
        print(f"seed {seed} FAILED; again: {_command(seed, given)}", flush=True)
    return 1 if failed else 0


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description="Real processes under a seeded nemesis, and a checker.")
    parser.add_argument("--minutes", type=float, default=3.0, help="in which all faults begin and are healed")
    parser.add_argument("--seed", type=int, default=None, help="of the schedule of faults; a random one")
    parser.add_argument("--runs", type=int, default=1, help="so many seeds, one after another (1)")
    parser.add_argument("--session", type=float, default=4.0, help="the hosts' session timeout in seconds")
    parser.add_argument("--only", default="", help=f"only these faults, with commas between: {', '.join(FAULTS)}")
    parser.add_argument("--keep", action="store_true", help="keep the folder although everything holds")
    given = parser.parse_args()
    if unknown := set(_only(given)) - set(FAULTS):
        parser.error(f"no such faults: {', '.join(sorted(unknown))}")
    return given


def _only(given: argparse.Namespace) -> tuple[str, ...]:
    return tuple(filter(None, given.only.split(",")))


def _command(seed: int, given: argparse.Namespace) -> str:
    return again(seed, given.minutes, given.session, _only(given))


def _one(seed: int, given: argparse.Namespace, found: list[Failover]) -> bool:
    """Run one seed and tell of it; its failovers are added to `found`. Whether everything held."""
    folder = Path(tempfile.mkdtemp(prefix=f"hoot-chaos-{seed}-"))
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:7.2f}  {text}", flush=True)

    run = Run(folder, Shape(session_seconds=given.session), say)
    steps = run.schedule(seed, given.minutes * 60, _only(given))
    say(f"seed {seed}: {sum(len(step.strikes) for step in steps)} faults in {given.minutes:g} min; folder {folder}")
    held = False
    try:
        story = run.go(steps)
        found += failovers(story)
        text, held = report(story, given.session)
        print(f"\nseed {seed}, {given.minutes:g} min\n{text}")
    except Exception as error:  # noqa: BLE001 - the seeds that follow are run all the same
        print(f"\nthe run broke off: {error!r}")
    finally:
        if held and not given.keep:
            shutil.rmtree(folder)
        else:
            print(f"\nseed {seed}; everything is kept in {folder}", flush=True)
    return held


if __name__ == "__main__":
    sys.exit(main())
