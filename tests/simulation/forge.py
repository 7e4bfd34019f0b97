"""`python -m tests.simulation` many times over, by one process that has imported everything and forks for each case.

What a simulation imports takes a processor longer than twenty seeds do. A fork is as good as a process of its own: no
seed has been played before it, and the order of its sets is that of the hash seed 0, too.

python -m tests.simulation.forge     reads arguments from its input, a list in JSON a line, and answers each with one
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Self

from tests.simulation.__main__ import main

TOP = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONHASHSEED": "0"}


class Forge:
    """The process, from the first case on. A case that is not waited for to its end ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def simulate(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What the command with these arguments gives."""
        process = self._process = self._process or self._begun()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            print(json.dumps(arguments), file=process.stdin, flush=True)
            answer = process.stdout.readline()
        except BaseException:
            self._end()
            raise
        return subprocess.CompletedProcess(arguments, *json.loads(answer))

    def _begun(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.simulation.forge"], cwd=TOP, env=ENVIRONMENT, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def serve() -> None:
    """Answer until the input ends."""
    gc.freeze()  # no fork looks through what was imported
    for line in sys.stdin:
        with TemporaryFile() as out, TemporaryFile() as err:
            case = multiprocessing.get_context("fork").Process(target=_play, args=(json.loads(line), out, err))
            case.start()
            case.join()
            print(json.dumps([case.exitcode, _said(out), _said(err)]), flush=True)


def _play(arguments: Sequence[str], out: IO[bytes], err: IO[bytes]) -> None:
    os.dup2(out.fileno(), sys.stdout.fileno())
    os.dup2(err.fileno(), sys.stderr.fileno())
    sys.exit(main(arguments))


def _said(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


if __name__ == "__main__":
    serve()
