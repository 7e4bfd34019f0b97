"""`python -m tests.chaos --minutes 3 --seed 7`: a chaos run with its report; `make chaos` calls it.

Exit status 1 when an invariant does not hold; then the folder with all histories and logs is kept.
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
from tests.chaos.plan import FAULTS
from tests.chaos.report import report
from tests.chaos.run import Run


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description="Real processes under a seeded nemesis, and a checker.")
    parser.add_argument("--minutes", type=float, default=3.0, help="in which all faults begin and are healed")
    parser.add_argument("--seed", type=int, default=None, help="of the schedule of faults; a random one")
    parser.add_argument("--session", type=float, default=4.0, help="the hosts' session timeout in seconds")
    parser.add_argument("--only", default="", help=f"only these faults, with commas between: {', '.join(FAULTS)}")
    parser.add_argument("--keep", action="store_true", help="keep the folder although everything holds")
    given = parser.parse_args()
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    only = tuple(filter(None, given.only.split(",")))
    if unknown := set(only) - set(FAULTS):
        parser.error(f"no such faults: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix=f"hoot-chaos-{seed}-"))
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:7.2f}  {text}", flush=True)

    run = Run(folder, Shape(session_seconds=given.session), say)
    steps = run.schedule(seed, given.minutes * 60, only)
    say(f"seed {seed}: {sum(len(step.strikes) for step in steps)} faults in {given.minutes:g} min; folder {folder}")
    held = False
    try:
        text, held = report(run.go(steps), given.session)
        print(f"\n{text}")
    finally:
        if held and not given.keep:
            shutil.rmtree(folder)
        else:
            print(f"\nseed {seed}; everything is kept in {folder}", flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
