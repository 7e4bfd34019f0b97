"""`.ci/run` with commands that only note that they were called: which stages there are on which machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "run"
TOOLS = ("bash", "dirname", "env", "mktemp", "rm", "timeout")


def stages(folder: Path, *there: str) -> list[str]:
    """What is made on a machine that has Python, make, and `there`; up to the wheel, which the folder has none of."""
    programs, copy = folder / "bin", folder / "clone" / ".ci" / "run"
    programs.mkdir()
    copy.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, copy)
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None, name
        (programs / name).symlink_to(found)
    for name in ("make", *there):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/made\n')
        program.chmod(0o755)
    done = subprocess.run(
        [copy], env={"PATH": str(programs), "TMPDIR": str(folder)}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode, "there is no wheel"
    assert done.stdout.splitlines()[-1].startswith("wheel: clean environment"), done.stdout + done.stderr
    return [line.removeprefix("make ") for line in (folder / "made").read_text().splitlines() if line[:4] == "make"]


@pytest.mark.parametrize("there", [(), ("java",), ("mvn",)], ids=str)
def test_without_maven_or_without_java_everything_else_is_made(tmp_path: Path, there: tuple[str, ...]) -> None:
    made = stages(tmp_path, *there)
    assert {"venv", "check", "test", "test-chaos", "build"} < set(made)
    assert "demo DEMO_ARGS=--events 40000" in made
    assert "test-hbase" not in made


def test_with_them_the_tests_on_a_real_hbase_are_made_too(tmp_path: Path) -> None:
    assert "test-hbase" in stages(tmp_path, "java", "mvn")
