"""Finds code that was written twice: equal runs of code lines in two places of the given packages.

Lines are compared by their tokens, so layout and comments do not count; docstrings, imports and lines that only close
brackets are left out. It sees copies, not likeness: a run whose names were changed passes.

Usage: `python tests/tools/duplicates.py FOLDER...`; exit code 1 when a run of `RUN` lines or more occurs twice.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from pathlib import Path
from typing import NamedTuple

RUN = 8  # shorter runs are mostly shared idiom: a loop's head, a call with many keywords
SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
CLOSERS = frozenset("()[]{},:")


class Line(NamedTuple):
    """One code line: where it stands and what it says."""

    path: Path
    number: int
    text: str


def code_lines(path: Path) -> list[Line]:
    """The lines of a file that count, in order."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    words: dict[int, list[str]] = {}
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in SILENT and token.start[0] not in skipped:
                words.setdefault(token.start[0], []).append(token.string)
    return [
        Line(path, number, " ".join(said)) for number, said in words.items() if not CLOSERS.issuperset("".join(said))
    ]


def repeats(files: list[list[Line]], run: int = RUN) -> list[tuple[Line, Line, int]]:
    """Every place that repeats an earlier one: (earlier first line, later first line, how many code lines agree)."""
    seen: dict[tuple[str, ...], tuple[int, int]] = {}
    found = []
    for f, lines in enumerate(files):
        i = 0
        while i + run <= len(lines):
            g, j = seen.setdefault(tuple(line.text for line in lines[i : i + run]), (f, i))
            length = 0
            while i + length < len(lines) and (g != f or j + length < i) and j + length < len(files[g]):
                if files[g][j + length].text != lines[i + length].text:
                    break
                length += 1
            if length >= run:
                found.append((files[g][j], lines[i], length))
            i += length if length >= run else 1
    return found


def main(folders: list[str]) -> int:
    """Prints what is repeated; 1 if anything is, 2 if there was nothing to look at."""
    paths = [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]
    if not paths:
        print(f"duplicates: no Python files under {' '.join(folders) or '(no folder named)'}", file=sys.stderr)
        return 2
    found = repeats([code_lines(path) for path in paths])
    for first, second, length in found:
        print(f"{second.path}:{second.number}: {length} code lines repeat {first.path}:{first.number}: {second.text}")
    print(f"duplicates: {len(found)} repeated runs of {RUN} or more code lines in {len(paths)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
