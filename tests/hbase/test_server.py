"""The HBase of the tests: nothing of it outlives whoever started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.embedded import eventually

pytestmark = [pytest.mark.hbase, pytest.mark.slow]

_RUN = """
import sys
from pathlib import Path
from tests.hbase.server import HBase
with HBase(Path(sys.argv[1])) as server:
    print(*(process.pid for process in server.processes.values()), flush=True)
    sys.stdin.read()
"""


def test_its_programs_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _RUN, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        programs = [Path(f"/proc/{pid}") for pid in runner.stdout.readline().split()]
        assert len(programs) == 2
        assert all(program.exists() for program in programs)
        runner.kill()
    eventually(lambda: not any(program.exists() for program in programs), "its programs have ended")
