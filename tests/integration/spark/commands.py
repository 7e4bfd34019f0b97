"""Commands of `hoot` one after another in a process of their own, so that they share a Java.

    python -m tests.integration.spark.commands '[["spark", "export", "orders", "out"], …]'

Prints a line of JSON for each: its status, and what it said on standard output and error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from tests.integration.cli.calling import Done, call
from tests.integration.embedded import ROOT


def run_all(commands: Sequence[Sequence[str]], seconds: float, **environment: str) -> list[Done]:
    """Run them in such a process."""
    given = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.integration.spark.commands", json.dumps(commands)], stdin=subprocess.DEVNULL,
        capture_output=True, timeout=seconds, cwd=ROOT, env=given, check=False, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [Done(*json.loads(line)) for line in ended.stdout.splitlines()]


if __name__ == "__main__":
    for command in json.loads(sys.argv[1]):
        print(json.dumps(call(command, b"", os.environ)), flush=True)
