"""The HBase of the tests: a gateway of it stores rows, and nothing of it outlives whoever started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import happybase
import pytest

from tests.hbase.server import HBase
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


def test_what_is_put_through_one_gateway_is_read_through_the_other_after_a_region_server_was_killed(
    tmp_path: Path,
) -> None:
    with HBase(tmp_path, region_servers=2) as server:
        first, second = (
            happybase.Connection(host, port, timeout=60_000, transport="framed", protocol="binary")
            for host, port in server.gateways
        )
        first.create_table("kept", {"f": {}})
        rows = {f"{number:03}".encode(): {b"f:n": b"%d" % number} for number in range(100)}
        for row, cells in rows.items():
            first.table("kept").put(row, cells)
        server.processes["region-0"].kill()
        assert dict(second.table("kept").scan()) == rows
        server.processes["region-0"].start()
        server.processes["region-1"].kill()
        assert dict(first.table("kept").scan()) == rows


def test_its_programs_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _RUN, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        programs = [Path(f"/proc/{pid}") for pid in runner.stdout.readline().split()]
        assert len(programs) == 2
        assert all(program.exists() for program in programs)
        runner.kill()
    eventually(lambda: not any(program.exists() for program in programs), "its programs have ended")
