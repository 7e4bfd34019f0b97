"""Runs a server, and ends it with whoever started this: `python -m delivery.bench.peers.keeper COMMAND...`.

The server and its children are a session of their own. The end of this process's standard input, or SIGTERM, is a
SIGTERM to all of them, and SIGKILL when that takes too long: what they stored belongs to the bench.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import NoReturn

from delivery.embedded.lifeline import STOP_SECONDS, end_with_parent


def main(command: list[str]) -> int:
    """Its exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C comes to the bench, too, and that says when to end
    signal.signal(signal.SIGTERM, _told)
    end_with_parent()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as server:
        try:
            return server.wait()
        finally:
            _end(server)


def _told(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: what follows must not be interrupted
    raise SystemExit(0)


def _end(server: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.wait(STOP_SECONDS / 2)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
