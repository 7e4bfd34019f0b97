"""`.ci/run` with commands that only note that they were called: which stages there are on which machine.

And what becomes of tests that fail beside the others and pass alone.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / ".ci"
TOOLS = ("bash", "dirname", "env", "mkdir", "mktemp", "rm", "sed", "timeout")
TESTS = """
case "$*" in
test) mkdir -p .pytest_cache/v/cache; printf '%s' '{failed}' > .pytest_cache/v/cache/lastfailed; exit 2 ;;
test*) exit {again} ;;
esac
"""
"""Of `make test` when tests fail: pytest keeps their names in a file."""


def ran(folder: Path, *there: str, tests: str = "") -> tuple[list[str], str]:
    """What is made on a machine that has Python, make, and `there`, and what is told of it.

    Up to the wheel, which the folder has none of; or to the tests, if these fail.
    """
    programs, clone = folder / "bin", folder / "clone"
    programs.mkdir()
    shutil.copytree(SCRIPTS, clone / ".ci")
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None, name
        (programs / name).symlink_to(found)
    for name in ("make", *there):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/made\n{tests if name == "make" else ""}')
        program.chmod(0o755)
    done = subprocess.run(
        [clone / ".ci" / "run"], env={"PATH": str(programs), "TMPDIR": str(folder)}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode, "there is no wheel"
    lines = (folder / "made").read_text().splitlines()
    return [line.removeprefix("make ") for line in lines if line[:4] == "make"], done.stdout


def stages(folder: Path, *there: str) -> list[str]:
    made, told = ran(folder, *there)
    assert told.splitlines()[-1].startswith("wheel: clean environment"), told
    return made


@pytest.mark.parametrize("there", [(), ("java",), ("mvn",)], ids=str)
def test_without_maven_or_without_java_everything_else_is_made(tmp_path: Path, there: tuple[str, ...]) -> None:
    made = stages(tmp_path, *there)
    assert {"venv", "check", "test", "test-chaos", "build"} < set(made)
    assert "demo DEMO_ARGS=--events 40000" in made
    assert "test-hbase" not in made


def test_with_them_the_tests_on_a_real_hbase_are_made_too(tmp_path: Path) -> None:
    assert "test-hbase" in stages(tmp_path, "java", "mvn")


def failing(*names: str, again: int = 0) -> str:
    """What make does when these tests fail; `again` is how they end alone."""
    listed = ",\n".join(f'  "{name}": true' for name in names)
    return TESTS.format(failed=f"{{\n{listed}\n}}", again=again)


FLOW, KILLS = "tests/integration/cli/test_flow.py::test_a[one, two]", "tests/integration/test_kills.py::test_b"


@pytest.mark.parametrize("names", [(FLOW,), (FLOW, KILLS)])
def test_what_fails_beside_the_others_and_passes_alone_is_told_of_and_holds_nothing_up(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    made, told = ran(tmp_path, tests=failing(*names))
    assert "test WORKERS=0 TEST_ARGS=--last-failed --last-failed-no-failures none" in made
    assert "build" in made
    for name in names:
        assert f"UNSTEADY: {name} failed beside the other tests, and passed alone" in told


@pytest.mark.parametrize(
    ("names", "again"),
    [
        ((FLOW,), 1),
        ((FLOW, KILLS, "tests/integration/test_kills.py::test_c"), 0),
        (("tests/unit/test_window.py::test_d",), 0),
        ((FLOW, "tests/simulation/test_simulation.py::test_e"), 0),
        ((), 0),
    ],
    ids=["it fails again", "they are three", "it has no real processes", "one of them has none", "none is named"],
)
def test_all_other_failures_of_tests_end_it(tmp_path: Path, names: tuple[str, ...], again: int) -> None:
    made, told = ran(tmp_path, tests=failing(*names, again=again))
    assert "build" not in made
    assert "UNSTEADY" not in told
    assert told.splitlines()[-1].startswith("tests ")
    assert told.splitlines()[-1].endswith("FAILED with exit code " + str(again or 2))
