"""House rules that no linter knows, checked over every file of the repository."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.duplicates import RUN, code_lines, repeats

TOP = Path(__file__).resolve().parents[2]
LINES_MAX = 320

# Files that may be longer, each with the reason. A file that shrinks below the limit again must leave the list.
LONGER: dict[str, str] = {}

# Spelt in halves, so that this file does not mark itself.
MARKERS = ("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK", "NotImplemented" + "Error")
UNFINISHED = re.compile(rf"\b({'|'.join(MARKERS)})\b")
# The home or scratch folder of one user on one machine.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:(?:home|Users)/\w+|root|work|farm|tmp/\w+\.\d+)/")
TEXT = {".py", ".md", ".toml", ".thrift", ".yaml", ".yml", ".json", ".cfg", ".sh", ""}


def kept_files() -> list[Path]:
    """Every file that git keeps or would keep; in an unpacked source archive, every file of the project's folders."""
    command = ["git", "-C", str(TOP), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, capture_output=True, check=False)
    if (TOP / ".git").exists() and listed.returncode == 0:
        paths = [TOP / name for name in listed.stdout.decode().split("\0") if name]
    else:
        folders = ("delivery", "subscriber", "tests", "examples", "idl", "docs", "docker")
        paths = [path for folder in folders for path in (TOP / folder).rglob("*")]
    return sorted(path for path in paths if path.is_file() and "__pycache__" not in path.parts)


FILES = kept_files()
PYTHON = [path for path in FILES if path.suffix == ".py"]
PACKAGES = [path for path in PYTHON if path.relative_to(TOP).parts[0] in ("delivery", "subscriber")]


def name(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


def imported(path: Path) -> Iterator[str]:
    """The top-level names of what a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def importers(library: str) -> set[str]:
    return {name(path) for path in PACKAGES if library in path.read_text() and library in imported(path)}


def test_the_lints_see_the_code() -> None:
    assert len(PACKAGES) > 5
    assert Path(__file__).resolve() in PYTHON


def test_kazoo_is_imported_in_one_file() -> None:
    assert importers("kazoo") <= {"delivery/metastore/zookeeper.py"}


def test_pyspark_is_imported_under_delivery_spark_alone() -> None:
    assert {path for path in importers("pyspark") if not path.startswith("delivery/spark/")} == set()


def test_happybase_is_imported_under_delivery_hbase_alone() -> None:
    assert {path for path in importers("happybase") if not path.startswith("delivery/hbase/")} == set()


def test_every_module_has_a_docstring() -> None:
    """Test modules too: theirs says which contract they hold. Empty package markers have nothing to say."""
    silent = [name(p) for p in PYTHON if p.read_text().strip() and not ast.get_docstring(ast.parse(p.read_bytes()))]
    assert silent == []


def test_no_file_is_longer_than_the_limit_without_a_reason() -> None:
    longer = {name(path) for path in PYTHON if path.read_text().count("\n") > LINES_MAX}
    assert longer == set(LONGER)


def test_no_test_sleeps() -> None:
    """A test waits for a condition with a deadline; a sleep is either too short or too long."""
    sleeping = [
        f"{name(path)}:{node.lineno}"
        for path in PYTHON
        if "tests" in path.parts and "sleep" in path.read_text()
        for node in ast.walk(ast.parse(path.read_bytes()))
        if (isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep")
        or (isinstance(node, ast.ImportFrom) and node.module == "time" and "sleep" in [a.name for a in node.names])
    ]
    assert sleeping == []


def marked(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    lines = [(path, n, line) for path in paths for n, line in enumerate(path.read_text().splitlines(), 1)]
    return [f"{name(path)}:{n}: {line.strip()}" for path, n, line in lines if pattern.search(line)]


def test_nothing_is_marked_as_unfinished() -> None:
    assert marked(UNFINISHED, PYTHON) == []


def test_no_file_holds_a_path_of_one_machine() -> None:
    assert marked(MACHINE_PATH, [path for path in FILES if path.suffix in TEXT]) == []


def test_the_script_of_the_checks_can_be_run() -> None:
    assert (TOP / ".ci" / "run").stat().st_mode & 0o111


STORY = "\n".join(f"    total += weigh({n}, 'grain')" for n in range(RUN))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (STORY, [RUN + 1]),
        (STORY.replace("weigh(", "weigh( ").replace("\n", "  # grain\n\n"), [RUN + 1]),
        ("\n".join(STORY.split("\n")[2:]), []),
        (STORY.replace("weigh", "measure"), []),
    ],
    ids=["a copy", "a copy laid out anew", "one line too few", "another call"],
)
def test_a_run_of_copied_lines_is_found(tmp_path: Path, other: str, expected: list[int]) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text(f"def first(total):\n{STORY}\n    return total\n")
    second.write_text(f"def second(total):\n    total = 0\n{other}\n    return total\n")
    assert [length for _, _, length in repeats([code_lines(first), code_lines(second)])] == expected


def test_a_run_repeated_inside_one_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text(f"def first(total):\n{STORY}\n\n\ndef second(total):\n{STORY}\n")
    [(first, second, length)] = repeats([code_lines(path)])
    assert (first.number, second.number, length) == (2, RUN + 5, RUN)
