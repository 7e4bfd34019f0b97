"""Ends what a killed test run left behind: `python -I -S keeper.py`, a program of its own with the standard library.

It reads process ids, a line each, from its standard input, whose other end the run alone has. At the end of it, however
it came about, it sends SIGKILL to those that still are the processes that were named: a process that was stopped by
SIGSTOP does not notice that its own standard input ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def started_at(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks; None when there is none. A pid alone may be used again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def main() -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    known: dict[int, str] = {}
    for line in sys.stdin:
        pid = int(line)
        if (at := started_at(pid)) is not None:
            known[pid] = at
    for pid, at in known.items():
        if started_at(pid) == at:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
